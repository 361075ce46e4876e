#include "passes/module/check_scales.h"

#include <limits>

#include "ops/known.h"

namespace situ {

Status check_scales(const Graph& graph) {
  ReasonList refused;
  for (const Node& node : graph.nodes) {
    ReasonList of_node;
    check_numbers(graph, node, std::numeric_limits<int64_t>::max(), &of_node);
    for (const Reason& r : of_node.reasons()) refused.add(node.error(r.detail, r.kind), r.kind);
  }
  return refused.status();
}

}  // namespace situ
