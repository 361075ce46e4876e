#include "passes/expand_static_cache.h"

#include <limits>

namespace situ {
namespace {

// Until the next value is added.
const Shape& shape_of(const Graph& graph, ValueId v) { return graph.values[v].info.shape; }

// The extent of an axis, a scalar.
ValueId extent(Builder& builder, ValueId x, int64_t axis) {
  const ValueId list = builder.op("Shape", {x});
  builder.last().set_int("start", axis);
  builder.last().set_int("end", axis + 1);
  return builder.op("Squeeze", {list, builder.constant_i64({0})});
}
// 0 .. count - 1 [count]
ValueId counted(Graph& graph, Builder& builder, const Node& n, ValueId count) {
  const ValueId zero = graph.add_constant(n.name + "/zero", Tensor::scalar_i64(0)),
                one = graph.add_constant(n.name + "/one", Tensor::scalar_i64(1));
  return builder.op("Range", {zero, count, one});
}
Status check_one_sequence(const Graph& graph, const Node& n, ValueId v, const char* name) {
  if (shape_of(graph, v).size() == 1 && shape_of(graph, v)[0] == Dim(1)) return Status::ok();
  return Status::error(n.label() + ": " + std::string(name) + " " +
                       shape_str(shape_of(graph, v), &graph.symbol_names()) + " should be [batch], of one sequence");
}

}  // namespace

// ai.onnx.TensorScatter:
//   ScatterND(past, w + (0 .. S - 1), update) on the axis of the rows, which is moved to the front and back
Status expand_tensor_scatter(Graph& graph, Builder& builder, const Node& n) {
  const int64_t rank = static_cast<int64_t>(shape_of(graph, n.in[0]).size()), given = n.attr_int("axis", -2),
                axis = given < 0 ? given + rank : given;
  if (shape_of(graph, n.in[0])[0] != Dim(1))
    return Status::error(n.label() + ": " + "past_cache " + shape_str(shape_of(graph, n.in[0]), &graph.symbol_names()) +
                         " is of several sequences");
  std::vector<int64_t> front{axis}, back(static_cast<size_t>(rank));
  for (int64_t i = 0; i < rank; ++i)
    if (i != axis) front.push_back(i);
  for (int64_t i = 0; i < rank; ++i) back[static_cast<size_t>(front[static_cast<size_t>(i)])] = i;
  ValueId place = counted(graph, builder, n, extent(builder, n.in[1], axis));
  if (n.has_input(2)) {
    SITU_RETURN_IF_ERROR(check_one_sequence(graph, n, n.in[2], "write_indices"));
    place = builder.op("Add", {place, builder.cast(n.in[2], DType::kI64)});
  }
  if (n.attr_string("mode", "linear") == "circular") place = builder.op("Mod", {place, extent(builder, n.in[0], axis)});
  place = builder.op("Unsqueeze", {place, builder.constant_i64({1})});
  const ValueId past = builder.transpose(n.in[0], front), update = builder.transpose(n.in[1], front);
  builder.transpose(builder.op("ScatterND", {past, place, update}), back, n.out[0]);
  return Status::ok();
}

// Of ai.onnx.Attention 24: of the keys, as many as nonpad_kv_seqlen says are attended to, and the queries are the
// last of these. `mask`: what hides more of them, of bool or added.
//   j < n and, where causal, j <= i + n - S
Status hide_padding(Graph& graph, Builder& builder, const Node& n, const Dim& keys, bool causal, ValueId* mask) {
  SITU_RETURN_IF_ERROR(check_one_sequence(graph, n, n.in[6], "nonpad_kv_seqlen"));
  const bool flat = shape_of(graph, n.in[0]).size() == 3;
  const int64_t row_axis = flat ? 1 : 2;
  if (*mask != kNoValue) {
    const Shape given = shape_of(graph, *mask);
    if (given.empty() || (given.back() != keys && given.back() != Dim(1)))
      return Status::error(n.label() + ": " + "attn_mask " + shape_str(given, &graph.symbol_names()) +
                           " has not a column for each of " + keys.str(&graph.symbol_names()) + " keys");
  }
  const ValueId length = builder.cast(n.in[6], DType::kI64),
                columns = counted(graph, builder, n, extent(builder, n.in[1], row_axis));
  ValueId shown = builder.op("Less", {columns, length});
  if (causal) {
    const ValueId queries = extent(builder, n.in[0], row_axis), rows = counted(graph, builder, n, queries),
                  first = builder.op("Sub", {length, queries});
    const ValueId own = builder.op("Unsqueeze", {builder.op("Add", {rows, first}), builder.constant_i64({1})});
    shown = builder.op("And", {shown, builder.op("LessOrEqual", {columns, own})});
  } else {
    shown = builder.op("Unsqueeze", {shown, builder.constant_i64({0})});
  }
  if (*mask == kNoValue) {
    *mask = shown;
  } else if (graph.values[*mask].info.type == DType::kBool) {
    *mask = builder.op("And", {*mask, shown});
  } else {
    Tensor hidden = Tensor::allocate(DType::kF32, {});
    *hidden.view().as<float>() = -std::numeric_limits<float>::infinity();
    ValueId low = graph.add_constant(n.name + "/hidden", hidden);
    if (const DType type = graph.values[*mask].info.type; type != DType::kF32) low = builder.cast(low, type);
    *mask = builder.op("Where", {shown, *mask, low});
  }
  return Status::ok();
}

}  // namespace situ
