// An elementwise operator of one operand that reads a repeated value, f(Reshape(Expand(x))), is computed before the
// repetition: Reshape(Expand(f(x))). It is computed once for what was repeated, and what is left behind it
// are views alone (the cos and sin of repeat_interleave, which rotary embeddings then read unrepeated).
#include <algorithm>

#include "passes/builder.h"
#include "passes/pass.h"

namespace situ {
namespace {

bool movable(const Node& n) {
  return n.domain.empty() && n.out.size() == 1 &&
         (n.op == "Reshape" || n.op == "Expand" || n.op == "Unsqueeze" || n.op == "Squeeze" || n.op == "Transpose" || n.op == "Flatten");
}

// View nodes from the computed value to `v`, first applied first; empty unless one of them repeats.
std::vector<int> repeats(const Graph& graph, ValueId v) {
  std::vector<int> chain;
  bool expands = false;
  while (graph.values[v].producer >= 0 && movable(graph.nodes[graph.values[v].producer])) {
    const int p = graph.values[v].producer;
    expands = expands || graph.nodes[p].op == "Expand";
    chain.insert(chain.begin(), p);
    v = graph.nodes[p].in[0];
  }
  return expands && graph.values[v].producer >= 0 ? chain : std::vector<int>{};
}

}  // namespace

Status sink_repeats(PassContext& context) {
  Graph& graph = context.graph;
  Builder builder(graph);
  const std::vector<Node> nodes = graph.nodes;
  for (const Node& n : nodes) {
    const bool unary = n.domain.empty() && n.in.size() == 1 && n.out.size() == 1 && n.def && n.def->placement == Placement::kElementwise;
    const bool same = unary && graph.values[n.in[0]].info.type == graph.values[n.out[0]].info.type && dtype_is_float(graph.values[n.out[0]].info.type);
    const std::vector<int> chain = same ? repeats(graph, n.in[0]) : std::vector<int>{};
    if (chain.empty()) {
      builder.keep(n);
      continue;
    }
    builder.start(n);
    ValueId v = builder.op(n.op, {nodes[chain[0]].in[0]});
    builder.last().attrs = n.attrs;
    builder.last().opset = n.opset;
    for (int c : chain) {
      std::vector<ValueId> in = nodes[c].in;
      in[0] = v;
      v = builder.op(nodes[c].op, in, c == chain.back() ? n.out[0] : kNoValue);
      builder.last().attrs = nodes[c].attrs;
      builder.last().opset = nodes[c].opset;
    }
  }
  SITU_RETURN_IF_ERROR(builder.finish());
  graph.remove_dead_nodes();
  return Status::ok();
}

}  // namespace situ
