// Which tables of ISAs that this CPU does not have can be run all the same.
#include <cstring>

#include "kernels/strided_test.h"

namespace situ {

#define SITU_DECLARE_TABLE(isa)    \
  namespace isa {                  \
  extern const KernelTable kTable; \
  }
#if defined(SITU_AVXVNNI_EMULATED)
SITU_DECLARE_TABLE(avxvnni_emulated)
#endif
#if defined(SITU_AMX_EMULATED)
SITU_DECLARE_TABLE(amx_emulated)
#endif
#if defined(SITU_HAVE_AMX)
SITU_DECLARE_TABLE(amx)
#endif

void trap_tile_instructions();  // trapped_tiles_test.cc

namespace {

const KernelTable* available_table(const char* isa) {
  const KernelTable* available[8];
  const int count = available_kernel_tables(available, 8);
  for (int i = 0; i < count; ++i) {
    if (std::strcmp(available[i]->isa, isa) == 0) return available[i];
  }
  return nullptr;
}

[[maybe_unused]] void add(const KernelTable& table, const char* base, std::vector<EmulatedTable>* tables) {
  if (const KernelTable* found = available_table(base)) tables->push_back({&table, found});
}

}  // namespace

const std::vector<EmulatedTable>& emulated_tables() {
  static const std::vector<EmulatedTable> found = [] {
    std::vector<EmulatedTable> tables;
#if defined(SITU_AVXVNNI_EMULATED)
    add(avxvnni_emulated::kTable, SITU_AVXVNNI_EMULATED, &tables);
#endif
#if defined(SITU_AMX_EMULATED)
    add(amx_emulated::kTable, SITU_AMX_EMULATED, &tables);
#endif
    return tables;
  }();
  return found;
}

const std::vector<EmulatedTable>& trapped_tables() {
  static const std::vector<EmulatedTable> found = [] {
    std::vector<EmulatedTable> tables;
#if defined(SITU_HAVE_AMX) && defined(__linux__) && defined(__x86_64__)
    if (available_table("amx") == nullptr) add(amx::kTable, "avx512vnni", &tables);
    if (!tables.empty()) trap_tile_instructions();
#endif
    return tables;
  }();
  return found;
}

}  // namespace situ
