#include "situ/version.h"

#include "kernels/kernel.h"

namespace situ {

const char* version() { return SITU_VERSION; }

BuildFacts build_facts() {
  BuildFacts facts;
#if defined(__clang__)
  facts.compiler = "Clang " __clang_version__;
#else
  facts.compiler = "GCC " __VERSION__;
#endif
  facts.isa = kernels().isa;
  const KernelTable* tables[16] = {};
  const int count = available_kernel_tables(tables, 16);
  for (int i = 0; i < count; ++i) facts.isas.push_back(tables[i]->isa);
  facts.features = {"audio", "hub", "images", "server", "speech"};
  if (*SITU_SANITIZER != 0) facts.features.push_back("sanitizer=" SITU_SANITIZER);
  return facts;
}

}  // namespace situ
