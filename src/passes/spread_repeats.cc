// An elementwise operator on a repetition whose axis was merged with others, f(Reshape(Expand(x)), ..): no strides name
// its elements, and it would be copied. It is computed with the axes that the repetition has, and the result merged:
// Reshape(f(Expand(x), Reshape(..))).
#include <algorithm>

#include "passes/builder.h"
#include "passes/pass.h"

namespace situ {
namespace {

// The operand that is a merged repetition of as many elements as the result; -1: none is.
int merged_repetition(const Graph& graph, const Node& n) {
  if (!n.domain.empty() || n.out.size() != 1 || !n.def || n.def->placement != Placement::kElementwise) return -1;
  const Shape& y = graph.values[n.out[0]].info.shape;
  for (size_t i = 0; i < n.in.size(); ++i) {
    const Node* reshape = graph.producer(n.in[i], "Reshape");
    const Node* expand = reshape ? graph.producer(reshape->in[0], "Expand") : nullptr;
    if (!expand || graph.values[n.in[i]].info.shape != y || graph.producer(expand->in[0]) == nullptr) continue;
    const Shape &from = graph.values[expand->in[0]].info.shape, &to = graph.values[expand->out[0]].info.shape;
    // The last axis is repeated, and is none of its own in the result.
    if (!from.empty() && from.back() == Dim(1) && to.back() != Dim(1) && to.size() > y.size())
      return static_cast<int>(i);
  }
  return -1;
}

}  // namespace

Status spread_repeats(PassContext& context) {
  Graph& graph = context.graph;
  bool any = true;
  for (int round = 0; any && round < 8; ++round) {
    any = false;
    Builder builder(graph);
    const std::vector<Node> nodes = graph.nodes;
    for (const Node& n : nodes) {
      const int operand = merged_repetition(graph, n);
      const Shape y = operand < 0 ? Shape{} : graph.values[n.out[0]].info.shape;
      const auto number = [&](ValueId v) {
        return v == kNoValue || (graph.values[v].constant.present() && graph.values[v].constant.count() == 1);
      };
      const bool fits = operand >= 0 && std::all_of(n.in.begin(), n.in.end(), [&](ValueId v) {
                          return number(v) || graph.values[v].info.shape == y;
                        });
      if (!fits) {
        builder.keep(n);
        continue;
      }
      any = true;
      builder.start(n);
      const Node& reshape = *graph.producer(n.in[static_cast<size_t>(operand)]);
      const ValueInfo spread = graph.values[reshape.in[0]].info, info = graph.values[n.out[0]].info;
      std::vector<ValueId> in;
      for (const ValueId v : n.in) {
        const Node* other = v == kNoValue ? nullptr : graph.producer(v, "Reshape");
        if (number(v))
          in.push_back(v);
        else if (other && graph.values[other->in[0]].info.shape == spread.shape)
          in.push_back(other->in[0]);
        else
          in.push_back(builder.op("Reshape", {v, graph.add_shape(n.name + "/spread", spread.shape)}));
      }
      const ValueId whole = builder.again(n, in);
      graph.values[whole].info = {info.type, true, spread.shape, {}};
      builder.op("Reshape", {whole, graph.add_shape(n.name + "/merged", y)}, n.out[0]);
    }
    SITU_RETURN_IF_ERROR(builder.finish());
    graph.rebuild_links();
    graph.remove_dead_nodes();
    graph.rebuild_links();
  }
  return Status::ok();
}

}  // namespace situ
