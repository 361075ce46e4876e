// Only the logits of a prompt's last token are read: 512 tokens do not need 512 rows of vocabulary. The last L rows of
// the step, one for each sequence, are selected as early as the values above the logits are token by token.
#include <algorithm>
#include <limits>

#include "passes/context/builder.h"
#include "passes/context/pass_context.h"
#include "passes/move/passes.h"

namespace situ {
namespace {

// The operand through which row i of the output depends on row i of that operand alone, or -1.
int token_wise_operand(const Graph& graph, const Node& n) {
  auto constant = [&](size_t i) { return n.in[i] == kNoValue || graph.values[n.in[i]].constant.present(); };
  auto weight_view = [&](ValueId v) {
    while (!graph.values[v].constant.present()) {
      if (graph.values[v].producer < 0) return false;
      const Node& p = graph.nodes[graph.values[v].producer];
      if (!p.def || p.def->placement != Placement::kView) return false;
      v = p.in[0];
    }
    return true;
  };
  const std::string& op = n.op;
  if (op == "MatMul" || op == "MatMulNBits" || op == "Project" || op == "IntegerMatMul")
    return weight_view(n.in[1]) ? 0 : -1;
  const bool norm = op == "LayerNormalization" || op == "RMSNormalization" || op == "SimplifiedLayerNormalization";
  if (norm) return n.attr_int("axis", -1) == -1 || n.attr_int("axis", -1) == 2 ? 0 : -1;
  if (n.def->placement != Placement::kElementwise && op != "Cast") return -1;
  int data = -1;
  for (size_t i = 0; i < n.in.size(); ++i) {
    const bool row = constant(i) && (n.in[i] == kNoValue || graph.values[n.in[i]].info.shape.size() <= 1);
    if (row) continue;
    if (data >= 0) return -1;
    data = static_cast<int>(i);
  }
  return data;
}

// -L, where a step may want the logits of several tokens.
ValueId wanted_from(Graph& graph, Phase phase) {
  const ValueId v = graph.add_value("last_token/begin", DType::kI64);
  ValueInfo& info = graph.values[v].info;
  info.ranked = true;
  info.shape = {Dim(1)};
  info.content = Shape{Dim(-1) * (phase == Phase::kAny ? Dim::symbol(kSymL) : Dim(1))};
  return v;
}

}  // namespace

Status last_token(PassContext& context) {
  Graph& graph = context.graph;
  const Dim tokens = Dim::symbol(kSymS);
  auto rows = [&](ValueId v) {
    const Shape& s = graph.values[v].info.shape;
    return s.size() == 3 && s[1] == tokens;
  };
  const ValueId logits = context.binding.logits;
  if (logits == kNoValue || !rows(logits)) return Status::ok();
  const auto users = graph.users();
  ValueId cut = logits;
  while (graph.values[cut].producer >= 0) {
    const Node& n = graph.nodes[graph.values[cut].producer];
    const int operand = n.def ? token_wise_operand(graph, n) : -1;
    if (operand < 0 || !rows(n.in[operand]) || n.out[0] != cut) break;
    if (cut != logits && (users[cut].size() != 1 || graph.is_output(cut))) break;
    cut = n.in[operand];
  }
  if (cut == logits) return Status::ok();
  // The users of `cut` on the way to the logits read the row; others (residual, states) keep all rows.
  std::vector<char> below(graph.values.size(), 0);
  {
    ValueId v = logits;
    while (v != cut) {
      below[v] = 1;
      const Node& n = graph.nodes[graph.values[v].producer];
      v = n.in[token_wise_operand(graph, n)];
    }
  }
  std::vector<Node> nodes = std::exchange(graph.nodes, {});
  Builder builder(graph);
  const int producer = graph.values[cut].producer;
  ValueId row = kNoValue;
  auto select = [&](const std::string& name) {
    Node origin;
    origin.name = name;
    builder.start(origin);
    constexpr int64_t kEnd = std::numeric_limits<int64_t>::max();
    const ValueId begin = wanted_from(graph, context.phase), end = builder.constant_i64({kEnd}),
                  axis = builder.constant_i64({1});
    row = builder.op("Slice", {cut, begin, end, axis});
  };
  if (producer < 0) select("last_token");
  below.resize(graph.values.size() + 16, 0);
  for (size_t i = 0; i < nodes.size(); ++i) {
    Node& n = nodes[i];
    if (row != kNoValue && !n.out.empty() && n.out[0] != kNoValue && n.out[0] < static_cast<ValueId>(below.size()) &&
        below[n.out[0]])
      for (ValueId& v : n.in)
        if (v == cut) v = row;
    builder.keep(std::move(n));
    if (static_cast<int>(i) == producer) select("last_token");
  }
  context.note("last token", graph.values[cut].name, "logits of the last token only");
  return builder.finish();
}

}  // namespace situ
