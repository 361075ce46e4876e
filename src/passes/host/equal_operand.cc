#include "passes/host/equal_operand.h"

#include <algorithm>
#include <optional>

#include "eval/interpreter.h"
#include "ops/op.h"

namespace situ {
namespace {

// The single value of a constant float or integer tensor of one element.
std::optional<double> scalar(const Graph& graph, ValueId v) {
  const Tensor& t = graph.values[v].constant;
  if (!t.present() || t.count() != 1 || dtype_bytes(t.type()) == 0 || t.type() == DType::kBool) return std::nullopt;
  return t.to_f64()[0];
}

// A constant of floats that are all 0: the mask of an encoder whose grid says that every patch sees every other.
bool all_zero(const Graph& graph, ValueId v) {
  const Tensor& t = graph.values[v].constant;
  if (!t.present() || t.type() != DType::kF32 || t.count() == 0 || t.view().as<float>()[0] != 0) return false;
  const std::vector<double> numbers = t.to_f64();
  return std::all_of(numbers.begin(), numbers.end(), [](double n) { return n == 0; });
}

}  // namespace

bool alike(const Graph& graph, ValueId a, ValueId b) {
  return graph.values[a].info.type == graph.values[b].info.type &&
         graph.values[a].info.shape == graph.values[b].info.shape;
}

bool walks_back(const Graph& graph, const Node& n) {
  if (n.op != "Slice" || !n.has_input(4)) return false;
  const Tensor& steps = graph.values[n.in[4]].constant;
  if (!steps.present()) return true;
  for (int64_t step : steps.to_i64())
    if (step < 0) return true;
  return false;
}

static bool reshapes(const Node& n) {
  return n.domain.empty() && (n.op == "Reshape" || n.op == "Squeeze" || n.op == "Unsqueeze" || n.op == "Flatten");
}

ValueId equal_operand(const Graph& graph, const Node& n) {
  if (!n.domain.empty() || n.in.empty() || n.out.empty() || n.in[0] == kNoValue) return kNoValue;
  const ValueId x = n.in[0], y = n.out[0];
  if (n.op == "Identity") return x;
  if (n.op == "Dropout") return n.has_output(1) ? kNoValue : x;
  const bool movement = n.op == "Cast" || n.op == "Expand" || n.op == "Reshape" || n.op == "Slice" ||
                        n.op == "Squeeze" || n.op == "Unsqueeze" || n.op == "Flatten";
  if (movement && alike(graph, x, y) && !walks_back(graph, n)) return x;
  for (ValueId v = x; reshapes(n) && graph.producer(v) && reshapes(*graph.producer(v));) {
    v = graph.producer(v)->in[0];
    if (graph.values[v].info.ranked && alike(graph, v, y)) return v;  // there and back
  }
  if (n.op == "Concat" && n.in.size() == 1) return x;
  if (n.op == "Pad" && alike(graph, x, y)) {
    const auto pads = content_of(graph, n, 1);
    if (pads && std::count(pads->begin(), pads->end(), Dim(0)) == std::ssize(*pads)) return x;
  }
  if ((n.op == "Split" || n.op == "Tile") && n.out.size() == 1 && alike(graph, x, y)) return x;
  if (n.in.size() != 2 || n.in[1] == kNoValue) return kNoValue;
  for (int side = 0; side < 2; ++side) {
    const ValueId other = n.in[side], value = n.in[1 - side];
    if (!alike(graph, value, y)) continue;
    // x + 0 keeps x except -0 + 0 = 0, which no later operator here tells apart.
    if (n.op == "Add" && all_zero(graph, other)) return value;
    const auto c = scalar(graph, other);
    if (!c) continue;
    if (n.op == "Mul" && *c == 1.0) return value;
    if (n.op == "Div" && *c == 1.0 && side == 1) return value;
    if (n.op == "Add" && *c == 0.0) return value;
    if (n.op == "Sub" && *c == 0.0 && side == 1) return value;
  }
  return kNoValue;
}

}  // namespace situ
