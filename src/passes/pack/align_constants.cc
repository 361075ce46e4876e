// Large weights that stand at odd addresses in their file are left there by the importer, because most of them are laid
// out anew: those that only products with constant matrices read, by pack_dense. What is left is copied to where
// kernels can read it, and the file's pages are given back.
#include <algorithm>

#include "base/pages.h"
#include "passes/pack/align_constants.h"
#include "passes/pack/pack_store.h"

namespace situ {
namespace {

bool aligned(const Tensor& t) {
  const uintptr_t size = static_cast<uintptr_t>(std::max<int64_t>(1, std::min<int64_t>(8, dtype_bytes(t.type()))));
  return reinterpret_cast<uintptr_t>(t.view().data) % size == 0;
}

// All that reads it are products, perhaps behind a transposition or a cast, whose other operand is no constant.
bool for_products(const Graph& graph, const std::vector<std::vector<std::pair<int, int>>>& users, ValueId v) {
  return std::all_of(users[v].begin(), users[v].end(), [&](const auto& use) {
    if (use.first < 0) return false;
    const Node& n = graph.nodes[use.first];
    const bool through = n.is("Transpose") || n.is("Cast");
    if (use.second != (through ? 0 : 1)) return false;
    if (through) return !graph.is_output(n.out[0]) && for_products(graph, users, n.out[0]);
    return (n.is("MatMul") || n.is("Gemm")) && n.has_input(0) && !graph.values[n.in[0]].constant.present();
  });
}

}  // namespace

void align_constants(Graph& graph, PackStore* packs, bool all) {
  std::vector<std::vector<std::pair<int, int>>> users;
  for (size_t v = 0; v < graph.values.size(); ++v) {
    Tensor& t = graph.values[v].constant;
    if (!t.present() || aligned(t)) continue;
    if (users.empty()) users = graph.users();
    const bool read = !users[v].empty() || graph.is_output(static_cast<ValueId>(v));
    if (packs && read && !all && for_products(graph, users, static_cast<ValueId>(v))) continue;
    const Tensor odd = t;
    t = packs ? packs->aligned(odd) : aligned_copy(odd, true);
  }
}

}  // namespace situ
