// Chooses the kernel table once: the best ISA that the CPU and the operating system offer, or SITU_ISA.
// To add an ISA: a line here and one in CMakeLists.txt.
#include <cstdlib>
#include <string>

#if defined(__x86_64__)
#include <cpuid.h>
#endif
#if defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif

#include "kernels/replace_kernels.h"

namespace situ {

#define SITU_DECLARE_TABLE(isa)    \
  namespace isa {                  \
  extern const KernelTable kTable; \
  }
SITU_DECLARE_TABLE(portable)
#if defined(SITU_HAVE_AVX2)
SITU_DECLARE_TABLE(avx2)
#endif
#if defined(SITU_HAVE_AVXVNNI)
SITU_DECLARE_TABLE(avxvnni)
#endif
#if defined(SITU_HAVE_AVX512)
SITU_DECLARE_TABLE(avx512)
#endif
#if defined(SITU_HAVE_AVX512VNNI)
SITU_DECLARE_TABLE(avx512vnni)
#endif
#if defined(SITU_HAVE_AMX)
SITU_DECLARE_TABLE(amx)
#endif
#undef SITU_DECLARE_TABLE

namespace {

struct Candidate {
  const KernelTable* table;
  bool (*available)();
};

bool always() { return true; }
// The feature levels, and the features of vectors, include what XGETBV says of the registers that the operating system
// saves. Clang has no names of levels before version 18: these are the parts of them that it knows.
#if defined(__clang__) && __clang_major__ < 18
#define SITU_SUPPORTS_V3                                                                               \
  (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi") && \
   __builtin_cpu_supports("bmi2"))
#define SITU_SUPPORTS_V4                                                                          \
  (SITU_SUPPORTS_V3 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && \
   __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512cd"))
#else
#define SITU_SUPPORTS_V3 (__builtin_cpu_supports("x86-64-v3") != 0)
#define SITU_SUPPORTS_V4 (__builtin_cpu_supports("x86-64-v4") != 0)
#endif
#if defined(SITU_HAVE_AVX2)
bool has_v3() { return SITU_SUPPORTS_V3; }
#endif
#if defined(SITU_HAVE_AVXVNNI)
// GCC 12 has no name for it.
bool has_v3_vnni() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (!has_v3() || __get_cpuid_count(7, 0, &a, &b, &c, &d) == 0 || a < 1) return false;  // a: the last subleaf
  __cpuid_count(7, 1, a, b, c, d);
  return (a >> 4 & 1) != 0;
}
#endif
#if defined(SITU_HAVE_AVX512)
bool has_v4() { return SITU_SUPPORTS_V4; }
#endif
#if defined(SITU_HAVE_AVX512VNNI) || defined(SITU_HAVE_AMX)
bool has_v4_vnni() { return SITU_SUPPORTS_V4 && __builtin_cpu_supports("avx512vnni") != 0; }
#endif
#if defined(SITU_HAVE_AMX)
// Linux gives a process the 8 KiB of tile registers when it asks for them; every thread has them then.
bool may_use_tiles() {
#if defined(__linux__) && defined(SYS_arch_prctl)
  constexpr int kRequestPermission = 0x1023, kTileData = 18;  // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
#else
  return false;
#endif
}
bool has_amx() {
  if (!has_v4_vnni()) return false;  // so that there is XGETBV
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (__get_cpuid_count(7, 0, &a, &b, &c, &d) == 0) return false;
  constexpr unsigned kTiles = 1u << 24 | 1u << 25 | 1u << 22,  // tiles, their products of bytes and of bfloat16
      kTileState = 1u << 17 | 1u << 18;                        // XCR0: configuration, data
  if ((d & kTiles) != kTiles) return false;
  unsigned enabled = 0, high = 0;
  __asm__("xgetbv" : "=a"(enabled), "=d"(high) : "c"(0));
  return (enabled & kTileState) == kTileState && may_use_tiles();
}
#endif

// Best last.
constexpr Candidate kCandidates[] = {
    {&portable::kTable, always},
#if defined(SITU_HAVE_AVX2)
    {&avx2::kTable, has_v3},
#endif
#if defined(SITU_HAVE_AVXVNNI)
    {&avxvnni::kTable, has_v3_vnni},
#endif
#if defined(SITU_HAVE_AVX512)
    {&avx512::kTable, has_v4},
#endif
#if defined(SITU_HAVE_AVX512VNNI)
    {&avx512vnni::kTable, has_v4_vnni},
#endif
#if defined(SITU_HAVE_AMX)
    {&amx::kTable, has_amx},
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

const KernelTable* replacement = nullptr;

}  // namespace

const KernelTable& kernels() { return replacement ? *replacement : *chosen().table; }

void replace_kernels(const KernelTable* table) { replacement = table; }

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
