#include "passes/module/cache_places.h"

#include <algorithm>
#include <set>
#include <string>

namespace situ {
namespace {

// Whether `v`, by operators of these names, becomes an operand that is meant.
template <typename Meant>
bool becomes(const Graph& graph, const Users& users, ValueId v, const std::set<std::string>& through, Meant meant) {
  std::set<ValueId> seen{v};
  for (std::vector<ValueId> open{v}; !open.empty();) {
    const ValueId x = open.back();
    open.pop_back();
    for (const auto& [user, operand] : users[static_cast<size_t>(x)]) {
      if (user < 0) continue;
      const Node& n = graph.nodes[static_cast<size_t>(user)];
      if (meant(n, operand)) return true;
      if (!n.domain.empty() || !through.count(n.op) || (n.op == "Sub" && operand != 0)) continue;
      for (const ValueId y : n.out)
        if (y != kNoValue && seen.insert(y).second) open.push_back(y);
    }
  }
  return false;
}

// An input of three dims or more, or a moved one.
bool is_moved_state(const Graph& graph, ValueId v) {
  v = graph.behind(v, {"Identity", "Cast", "Transpose", "Unsqueeze", "Squeeze", "Reshape", "Gather"});
  const Value& value = graph.values[v];
  return std::find(graph.inputs.begin(), graph.inputs.end(), v) != graph.inputs.end() &&
         dtype_is_float(value.info.type) && value.info.shape.size() >= 3;
}

bool scatters(const Node& n) {
  return n.is("ScatterND") || n.is("ScatterElements") || n.is("Scatter") || n.is("TensorScatter");
}

}  // namespace

PlaceUse place_use(const Graph& graph, const Users& users, ValueId input) {
  static const std::set<std::string> moves{"Identity", "Cast", "Unsqueeze", "Squeeze", "Reshape", "Expand",
                                           "Min",      "Max",  "Clip",      "Relu",    "Mod",     "Flatten"};
  static const auto with = [](std::set<std::string> names, std::initializer_list<const char*> more) {
    names.insert(more.begin(), more.end());
    return names;
  };
  static const std::set<std::string> sums =
      with(moves, {"Add", "Concat", "Range", "Where", "Transpose", "Slice", "Gather"});
  static const std::set<std::string> differences = with(sums, {"Sub"});
  const auto is = [&](const std::set<std::string>& through, auto meant) {
    return becomes(graph, users, input, through, meant);
  };
  if (is(moves, [](const Node& n, int operand) { return operand == 6 && n.is("Attention"); })) return PlaceUse::kLength;
  const auto first = [](const Node& n, int operand) { return operand == 2 && n.is("TensorScatter"); };
  if (is(sums, first)) return PlaceUse::kFirst;
  if (is(differences, first)) return PlaceUse::kBehind;
  const auto index = [](const Node& n, int operand) { return operand == 1 && scatters(n) && !n.is("TensorScatter"); };
  if (is(sums, index)) return PlaceUse::kIndex;
  // Where what stands before a step's rows ends, and what stands behind them begins.
  const auto cut = [&](const Node& n, int operand) {
    return (operand == 1 || operand == 2) && n.is("Slice") && is_moved_state(graph, n.in[0]);
  };
  if (is(sums, cut)) return PlaceUse::kCut;
  return is(sums, [](const Node& n, int) { return n.is("Equal"); }) ? PlaceUse::kEqual : PlaceUse::kNone;
}

bool is_scattered_into(const Graph& graph, const Users& users, ValueId state) {
  return becomes(graph, users, state, {"Identity", "Cast", "Transpose", "Unsqueeze", "Squeeze", "Reshape"},
                 [](const Node& n, int operand) { return operand == 0 && scatters(n); });
}

void say_number(Graph& graph, ValueId input, const Dim& number) {
  const ValueInfo info = graph.values[input].info;
  if (info.shape.size() < 2) {
    graph.values[input].info.content = Shape{number};
    return;
  }
  // Content is that of vectors.
  const std::string name = graph.values[input].name;
  const ValueId one = graph.add_value(name + "/number", info.type), dims = graph.add_shape(name + "/dims", info.shape);
  graph.values[one].info = {info.type, true, {Dim(1)}, Shape{number}};
  Node reshape;
  reshape.name = name;
  reshape.op = "Reshape";
  reshape.opset = 14;
  reshape.in = {one, dims};
  reshape.out = {input};
  graph.nodes.push_back(std::move(reshape));
}

void show_written(Graph& graph, ValueId mask, const Dim& past, const Dim& tokens) {
  const std::string name = graph.values[mask].name;
  const bool by_token = graph.values[mask].info.shape.size() == 4;
  const auto dim = [&](const char* what, const Dim& d) {
    const ValueId v = graph.add_value(name + what, DType::kI64);
    graph.values[v].info = {DType::kI64, true, {}, Shape{d}};
    return v;
  };
  const auto op = [&](const char* kind, std::vector<ValueId> in, ValueId out) {
    Node n;
    n.name = graph.values[out].name;
    n.op = kind;
    n.opset = 13;
    n.in = std::move(in);
    n.out = {out};
    graph.nodes.push_back(std::move(n));
    return out;
  };
  const auto range = [&](const std::string& what, const Dim& from, const Dim& to) {
    return op("Range", {dim("/first", from), dim("/end", to), dim("/one", Dim(1))},
              graph.add_value(name + what, DType::kI64));
  };
  const auto unsqueeze = [&](ValueId v, const char* what, const std::vector<int64_t>& axes) {
    return op("Unsqueeze", {v, graph.add_constant(name + what + "/axes", Tensor::vector_i64(axes))},
              graph.add_value(name + what, graph.values[v].info.type));
  };
  // Never as numbers of their own: a file says how many there are.
  const ValueId row = unsqueeze(range("/places", Dim(0), graph.values[mask].info.shape.back()), "/row", {0}),
                length = by_token ? unsqueeze(range("/lengths", past + Dim(1), past + tokens + Dim(1)), "/column", {1})
                                  : graph.add_shape(name + "/length", {past + tokens});
  const ValueId shown = op("Less", {row, length}, graph.add_value(name + "/shown", DType::kBool));
  op("Cast", {by_token ? unsqueeze(shown, "/heads", {0, 1}) : shown}, mask);
  graph.nodes.back().set_int("to", static_cast<int64_t>(graph.values[mask].info.type));
}

}  // namespace situ
