// The kernel table of one ISA; compiled once per ISA like the kernels. An ISA with a base (-DSITU_BASE_ISA) has kernels
// of its own for SITU_DOT_KERNEL and takes the others from its base; one with tiles takes attention, which has no use
// for them, from the ISA with vectors of the same (-DSITU_PAIR_ISA).
#include "kernels/isa.h"
#include "kernels/simd.h"

// An ISA with tiles is one that takes kernels from one with pairs.
#ifdef SITU_PAIR_ISA
#define SITU_TILE_ISA SITU_ISA
#else
#define SITU_TILE_ISA SITU_BASE_ISA
#endif
#ifndef SITU_BASE_ISA
#define SITU_BASE_ISA SITU_ISA
#endif
#ifndef SITU_PAIR_ISA
#define SITU_PAIR_ISA SITU_ISA
#endif
#define SITU_TEXT_OF(x) #x
#define SITU_TEXT(x) SITU_TEXT_OF(x)

#define SITU_DECLARE(isa, name)                               \
  namespace situ::isa {                                       \
  void name(const KernelCall& call, int thread, int threads); \
  }
#define SITU_KERNEL(name) SITU_DECLARE(SITU_BASE_ISA, name)
#define SITU_DOT_KERNEL(name) SITU_DECLARE(SITU_ISA, name)
#define SITU_PAIR_KERNEL(name) SITU_DECLARE(SITU_PAIR_ISA, name)
#define SITU_TILE_KERNEL(name) SITU_DECLARE(SITU_TILE_ISA, name)
#include "kernels/kernels.inc"
#undef SITU_KERNEL

namespace situ::SITU_ISA {
namespace {

// GCC empties the upper halves of registers at most ends of functions, not at all; what was left there made each
// exponential of the sampler, which is in no ISA's code, take 200 ns instead of 5.
template <KernelFn kKernel>
void entry(const KernelCall& call, int thread, int threads) {
  kKernel(call, thread, threads);
  empty_upper_halves();
}

}  // namespace

extern const KernelTable kTable;
#define SITU_KERNEL(name) &entry<&SITU_BASE_ISA::name>,
#define SITU_DOT_KERNEL(name) &entry<&SITU_ISA::name>,
#define SITU_PAIR_KERNEL(name) &entry<&SITU_PAIR_ISA::name>,
#define SITU_TILE_KERNEL(name) &entry<&SITU_TILE_ISA::name>,
const KernelTable kTable = {
    SITU_TEXT(SITU_ISA),
    SITU_TEXT(SITU_BASE_ISA),
#include "kernels/kernels.inc"
};
#undef SITU_KERNEL

}  // namespace situ::SITU_ISA
