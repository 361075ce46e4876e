// Threads share the keys of a single token: each sums blocks of them on its own, and leaves what others go on with in a
// workspace (kernels/attention_token.h). It is an output that nobody reads, so that it has a place in the arena like
// any other, and what else uses that place waits.
#include <algorithm>

#include "kernels/attention_blocks.h"
#include "passes/context/pass_context.h"
#include "passes/lower/attention_workspaces.h"

namespace situ {

ValueId attention_workspace(const Node& node) {
  return node.is("Attention", "situ") && node.has_output(1) ? node.out[1] : kNoValue;
}

void add_attention_workspaces(Graph& graph, int threads, int64_t keys, int64_t tokens) {
  if (threads < 2 || pass_disabled("attention_workspaces")) return;
  for (Node& n : graph.nodes) {
    if (!n.is("Attention", "situ") || n.has_output(1)) continue;
    const Shape q = graph.values[n.in[0]].info.shape, k = graph.values[n.in[1]].info.shape,
                y = graph.values[n.out[0]].info.shape;
    if (q[0] != Dim(1) || !q[1].is_const() || !k[1].is_const() || !y[3].is_const()) continue;
    const int64_t window = n.attr_int("window", 0) > 0 && n.attr_int("first", 0) == 0 ? n.attr_int("window", 0) : keys;
    const ValueId v = graph.add_value(n.name + "/workspace", DType::kF32);
    graph.values[v].info = {
        DType::kF32,
        true,
        {Dim(threads - 1), Dim(attention_blocks(std::min(keys, window))),
         Dim(attention_rows_together(q[1].value(), k[1].value(), tokens)), Dim(attention_partial_floats(y[3].value()))},
        {}};
    n.out.push_back(v);
  }
  graph.rebuild_links();
}

}  // namespace situ
