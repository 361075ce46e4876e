// A cast to half precision of what one kernel computes for it alone: the kernel rounds as it writes. This is how new
// rows of K and V reach a half-precision state without standing in memory as floats first.

#include "ops/op.h"
#include "passes/context/pass_context.h"
#include "passes/lower/passes.h"

namespace situ {

namespace {

// The node that computes `v`, through views that each have one reader; -1: something else reads it too.
int maker(const Graph& graph, const std::vector<std::vector<std::pair<int, int>>>& users, ValueId v) {
  while (graph.values[v].producer >= 0 && users[v].size() == 1 && !graph.is_output(v)) {
    const Node& n = graph.nodes[graph.values[v].producer];
    if (!n.def || n.def->placement != Placement::kView) return graph.values[v].producer;
    if (n.out.size() != 1) return -1;
    v = n.in[0];
  }
  return -1;
}

}  // namespace

Status fuse_casts(PassContext& context) {
  Graph& graph = context.graph;
  graph.rebuild_links();
  const auto users = graph.users();
  std::vector<std::pair<ValueId, ValueId>> replaced;
  for (Node& cast : graph.nodes) {
    if (!cast.is("Cast") || graph.is_output(cast.out[0])) continue;
    const DType to = graph.values[cast.out[0]].info.type;
    const int made = maker(graph, users, cast.in[0]);
    if (made < 0 || (to != DType::kF16 && to != DType::kBF16)) continue;
    Node& n = graph.nodes[made];
    if (!n.is("Rotary", "situ") && !n.is("PackedMatMul", "situ") && !n.is("IntegerMatMul", "situ")) continue;
    n.set_int("to", static_cast<int64_t>(to));
    replaced.emplace_back(cast.out[0], cast.in[0]);
  }
  for (const auto& [from, by] : replaced) graph.replace_uses(from, by);
  graph.remove_dead_nodes();
  return Status::ok();
}

}  // namespace situ
