// Chooses the kernel table once: the best ISA that the CPU and the operating system offer, or SITU_ISA.
// To add an ISA: a line here and one in CMakeLists.txt.
#include <cstdlib>
#include <string>

#include "kernels/kernel.h"

namespace situ {

#define SITU_DECLARE_TABLE(isa)    \
  namespace isa {                  \
  extern const KernelTable kTable; \
  }
SITU_DECLARE_TABLE(portable)
#if defined(SITU_HAVE_AVX2)
SITU_DECLARE_TABLE(avx2)
#endif
#if defined(SITU_HAVE_AVX512)
SITU_DECLARE_TABLE(avx512)
#endif
#if defined(SITU_HAVE_AVX512VNNI)
SITU_DECLARE_TABLE(avx512vnni)
#endif
#undef SITU_DECLARE_TABLE

namespace {

struct Candidate {
  const KernelTable* table;
  bool (*available)();
};

bool always() { return true; }
// The feature levels include what XGETBV says of the registers that the operating system saves.
#if defined(SITU_HAVE_AVX2)
bool has_v3() { return __builtin_cpu_supports("x86-64-v3") != 0; }
#endif
#if defined(SITU_HAVE_AVX512)
bool has_v4() { return __builtin_cpu_supports("x86-64-v4") != 0; }
#endif
#if defined(SITU_HAVE_AVX512VNNI)
bool has_v4_vnni() { return __builtin_cpu_supports("x86-64-v4") != 0 && __builtin_cpu_supports("avx512vnni") != 0; }
#endif

// Best last.
constexpr Candidate kCandidates[] = {
    {&portable::kTable, always},
#if defined(SITU_HAVE_AVX2)
    {&avx2::kTable, has_v3},
#endif
#if defined(SITU_HAVE_AVX512)
    {&avx512::kTable, has_v4},
#endif
#if defined(SITU_HAVE_AVX512VNNI)
    {&avx512vnni::kTable, has_v4_vnni},
#endif
};

struct Choice {
  const KernelTable* table = nullptr;
  std::string error;
};

Choice choose() {
#if defined(__x86_64__)
  __builtin_cpu_init();
#endif
  Choice choice;
  const char* wanted = std::getenv("SITU_ISA");
  const std::string name = wanted == nullptr ? "" : wanted;
  std::string known, reason = "unknown name";
  for (const Candidate& c : kCandidates) {
    known += (known.empty() ? "" : ", ") + std::string(c.table->isa);
    const bool available = c.available();
    if (name == c.table->isa) {
      if (available) return Choice{c.table, ""};
      reason = "this CPU does not have it";
    }
    if (available) choice.table = c.table;
  }
  if (!name.empty()) {
    choice.error = "SITU_ISA=" + name + ": " + reason + " (known: " + known + ")";
  }
  return choice;
}

const Choice& chosen() {
  static const Choice choice = choose();
  return choice;
}

}  // namespace

const KernelTable& kernels() { return *chosen().table; }

const char* select_isa_error() { return chosen().error.c_str(); }

int available_kernel_tables(const KernelTable** tables, int capacity) {
#if defined(__x86_64__)
  __builtin_cpu_init();
#endif
  int count = 0;
  for (const Candidate& c : kCandidates) {
    if (count < capacity && c.available()) tables[count++] = c.table;
  }
  return count;
}

}  // namespace situ
