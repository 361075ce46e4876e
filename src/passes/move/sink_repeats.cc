// An elementwise operator of one operand (or of one and constant numbers; rounding to integers and back too) that reads
// a repeated value, f(Reshape(Expand(x))), is computed before the repetition: Reshape(Expand(f(x))). It is computed
// once for what was repeated, and what is left behind it are views alone (the cos and sin of repeat_interleave, which
// rotary embeddings then read unrepeated).
#include <algorithm>

#include "passes/context/builder.h"
#include "passes/context/pass_context.h"
#include "passes/move/passes.h"

namespace situ {
namespace {

bool movable(const Node& n) {
  return n.domain.empty() && n.out.size() == 1 &&
         (n.op == "Reshape" || n.op == "Expand" || n.op == "Unsqueeze" || n.op == "Squeeze" || n.op == "Transpose" ||
          n.op == "Flatten");
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

// The operand of an elementwise node that is no constant number, if there is one alone; else -1.
int varying_operand(const Graph& graph, const Node& n) {
  const bool rounds = n.is("RoundLinear", "situ") || n.is("QuantizeLinear") || n.is("DequantizeLinear"),
             elementwise = n.domain.empty() && n.def && n.def->placement == Placement::kElementwise;
  if ((!rounds && !elementwise) || n.out.size() != 1 || n.in.empty() || n.in.size() > (rounds ? 3 : 2)) return -1;
  int found = -1;
  for (size_t i = 0; i < n.in.size(); ++i) {
    if (n.in[i] == kNoValue) return -1;
    const Tensor& t = graph.values[n.in[i]].constant;
    if (t.present() && t.count() == 1 && t.rank() <= 1) continue;
    if (found >= 0) return -1;
    found = static_cast<int>(i);
  }
  return found;
}

// Moves every node that it can, one node each; how many were moved.
Result<int> sink(PassContext& context) {
  Graph& graph = context.graph;
  Builder builder(graph);
  const std::vector<Node> nodes = graph.nodes;
  int moved = 0;
  for (const Node& n : nodes) {
    const int operand = varying_operand(graph, n);
    const ValueId x = operand < 0 ? kNoValue : n.in[static_cast<size_t>(operand)];
    const ValueInfo result = graph.values[n.out[0]].info;
    const bool same_type = x != kNoValue && graph.values[x].info.type == result.type && dtype_is_float(result.type),
               same = x != kNoValue && (same_type || n.is("QuantizeLinear") || n.is("DequantizeLinear")) &&
                      graph.values[x].info.shape == result.shape;
    const std::vector<int> chain = same ? repeats(graph, x) : std::vector<int>{};
    if (chain.empty()) {
      builder.keep(n);
      continue;
    }
    ++moved;
    builder.start(n);
    std::vector<ValueId> operands = n.in;
    const ValueId once = nodes[static_cast<size_t>(chain[0])].in[0];
    operands[static_cast<size_t>(operand)] = once;
    ValueId v = builder.again(n, operands);
    graph.values[v].info = graph.values[once].info;
    graph.values[v].info.type = result.type;
    for (int c : chain) {
      std::vector<ValueId> in = nodes[c].in;
      in[0] = v;
      v = builder.again(nodes[c], in, c == chain.back() ? n.out[0] : kNoValue);
      graph.values[v].info = graph.values[nodes[c].out[0]].info;
      graph.values[v].info.type = result.type;
    }
  }
  SITU_RETURN_IF_ERROR(builder.finish());
  graph.remove_dead_nodes();
  return moved;
}

}  // namespace

Status sink_repeats(PassContext& context) {
  // What reads a node that has been moved reads a repetition only then.
  constexpr int kMostInARow = 16;
  for (int i = 0; i < kMostInARow; ++i) {
    const Result<int> moved = sink(context);
    if (!moved.is_ok()) return moved.status();
    if (*moved == 0) break;
  }
  return Status::ok();
}

}  // namespace situ
