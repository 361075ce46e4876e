// The kernel table of one ISA; compiled once per ISA like the kernels.
#include "kernels/isa.h"

#define SITU_TEXT_OF(x) #x
#define SITU_TEXT(x) SITU_TEXT_OF(x)

namespace situ {
namespace SITU_ISA {

#define SITU_KERNEL(name) void name(const KernelCall& call, int thread, int threads);
#include "kernels/kernels.inc"
#undef SITU_KERNEL

extern const KernelTable kTable;
#define SITU_KERNEL(name) &name,
const KernelTable kTable = {SITU_TEXT(SITU_ISA),
#include "kernels/kernels.inc"
};
#undef SITU_KERNEL

}  // namespace SITU_ISA
}  // namespace situ
