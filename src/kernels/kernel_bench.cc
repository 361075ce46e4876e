// Speed of every kernel on the shapes of a small language model (SmolLM2-135M), per ISA and thread count.
//   kernel_bench [isa [kernel]]   milliseconds, GB/s of operands that must be read or written, and GFLOP/s
//   kernel_bench --once           every case once, on the best ISA: that no kernel is without one, and none fails
#include "kernels/kernel_bench.h"

namespace situ {
namespace {

struct Name {
  KernelFn KernelTable::* kernel;
  const char* name;
};
const Name kNames[] = {
#define SITU_KERNEL(name) {&KernelTable::name, #name},
#include "kernels/kernels.inc"
#undef SITU_KERNEL
};

// Whether all kernels that were wanted have been timed, and met nothing that they could not use.
bool run(const KernelTable& table, int threads, const char* only, bool once) {
  Bench bench(table, threads, only, once);
  bench_products(bench);
  bench_others(bench);
  bool good = bench.problem().empty();
  if (!good) std::fprintf(stderr, "kernel_bench: %s\n", bench.problem().c_str());
  for (const Name& n : kNames) {
    if (!bench.wants(n.name) || bench.timed(n.kernel)) continue;
    std::fprintf(stderr, "kernel_bench: '%s' has no case\n", n.name);
    good = false;
  }
  return good;
}

}  // namespace
}  // namespace situ

int main(int argc, char** argv) {
  const bool once = argc > 1 && std::strcmp(argv[1], "--once") == 0;
  const char* const isa = argc > 1 && !once ? argv[1] : "";
  const char* const only = argc > 2 && !once ? argv[2] : "";
  const situ::KernelTable* tables[8];
  const int count = situ::available_kernel_tables(tables, 8);
  bool good = true, found = false;
  if (*only != '\0' && std::none_of(std::begin(situ::kNames), std::end(situ::kNames),
                                    [&](const situ::Name& n) { return std::strcmp(n.name, only) == 0; })) {
    std::fprintf(stderr, "kernel_bench: no kernel '%s'\n", only);
    return 1;
  }
  for (int i = count - 1; i >= 0 && !(once && found); --i) {
    if (*isa != '\0' && std::strcmp(isa, tables[i]->isa) != 0) continue;
    found = true;
    for (const int threads : {1, 2}) good = situ::run(*tables[i], threads, only, once) && good;
  }
  if (!found) std::fprintf(stderr, "kernel_bench: no '%s' on this CPU\n", isa);
  return good && found ? 0 : 1;
}
