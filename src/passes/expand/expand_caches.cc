#include "passes/expand/expand_caches.h"

#include <limits>

namespace situ {
namespace {

Status fail(const Node& n, const std::string& what) { return Status::error(n.label() + ": " + what); }

// The extent of an axis, a scalar.
ValueId extent_of(Builder& b, ValueId x, int64_t axis) {
  const ValueId list = b.op("Shape", {x});
  b.last().set_int("start", axis);
  b.last().set_int("end", axis + 1);
  return b.op("Squeeze", {list, b.constant_i64({0})});
}

// 0 .. count - 1 [count]
ValueId counted(Graph& graph, Builder& b, ValueId count) {
  const ValueId zero = graph.add_constant("cache/zero", Tensor::scalar_i64(0)),
                one = graph.add_constant("cache/one", Tensor::scalar_i64(1));
  return b.op("Range", {zero, count, one});
}

Status check_one_sequence(const Graph& graph, const Node& n, ValueId v, const char* name) {
  const Shape& shape = graph.values[v].info.shape;
  if (shape.size() == 1 && shape[0] == Dim(1)) return Status::ok();
  return fail(n, std::string(name) + " " + shape_str(shape, &graph.symbol_names()) + " should be [1], of one sequence");
}

}  // namespace

Status expand_tensor_scatter(Graph& graph, Builder& builder, const Node& n) {
  const Shape past_shape = graph.values[n.in[0]].info.shape;
  const int64_t rank = static_cast<int64_t>(past_shape.size()), given = n.attr_int("axis", -2),
                axis = given < 0 ? given + rank : given;
  if (past_shape[0] != Dim(1))
    return fail(n, "past_cache " + shape_str(past_shape, &graph.symbol_names()) + " is of several sequences");
  std::vector<int64_t> front{axis}, back(static_cast<size_t>(rank));
  for (int64_t i = 0; i < rank; ++i)
    if (i != axis) front.push_back(i);
  for (int64_t i = 0; i < rank; ++i) back[static_cast<size_t>(front[static_cast<size_t>(i)])] = i;
  ValueId place = counted(graph, builder, extent_of(builder, n.in[1], axis));
  if (n.has_input(2)) {
    SITU_RETURN_IF_ERROR(check_one_sequence(graph, n, n.in[2], "write_indices"));
    place = builder.op("Add", {place, builder.cast(n.in[2], DType::kI64)});
  }
  if (n.attr_string("mode", "linear") == "circular")
    place = builder.op("Mod", {place, extent_of(builder, n.in[0], axis)});
  place = builder.op("Unsqueeze", {place, builder.constant_i64({1})});
  const ValueId past = builder.transpose(n.in[0], front), update = builder.transpose(n.in[1], front);
  builder.transpose(builder.op("ScatterND", {past, place, update}), back, n.out[0]);
  return Status::ok();
}

Status hide_padding(Graph& graph, Builder& builder, const Node& n, ValueId* mask) {
  SITU_RETURN_IF_ERROR(check_one_sequence(graph, n, n.in[6], "nonpad_kv_seqlen"));
  const int64_t row_axis = graph.values[n.in[0]].info.shape.size() == 3 ? 1 : 2;
  const Dim keys = graph.values[n.in[1]].info.shape[static_cast<size_t>(row_axis)];
  const DType type = *mask == kNoValue ? DType::kBool : graph.values[*mask].info.type;
  if (*mask != kNoValue) {
    const Shape given = graph.values[*mask].info.shape;
    if (given.empty() || (given.back() != keys && given.back() != Dim(1)))
      return fail(n, "attn_mask " + shape_str(given, &graph.symbol_names()) + " has not a column for each of " +
                         keys.str(&graph.symbol_names()) + " keys");
  }
  const ValueId length = builder.cast(n.in[6], DType::kI64),
                columns = counted(graph, builder, extent_of(builder, n.in[1], row_axis));
  ValueId shown = builder.op("Less", {columns, length});
  if (n.attr_int("is_causal", 0) != 0) {
    const ValueId queries = extent_of(builder, n.in[0], row_axis), rows = counted(graph, builder, queries),
                  first = builder.op("Sub", {length, queries});
    const ValueId own = builder.op("Unsqueeze", {builder.op("Add", {rows, first}), builder.constant_i64({1})});
    shown = builder.op("And", {shown, builder.op("LessOrEqual", {columns, own})});
  } else {
    shown = builder.op("Unsqueeze", {shown, builder.constant_i64({0})});
  }
  if (*mask == kNoValue) {
    *mask = shown;
  } else if (type == DType::kBool) {
    *mask = builder.op("And", {*mask, shown});
  } else {
    const Tensor hidden = Tensor::allocate(DType::kF32, {});
    *hidden.view().as<float>() = -std::numeric_limits<float>::infinity();
    ValueId low = graph.add_constant(n.name + "/hidden", hidden);
    if (type != DType::kF32) low = builder.cast(low, type);
    *mask = builder.op("Where", {shown, *mask, low});
  }
  return Status::ok();
}

Result<StoredRows> stored_rows(const Graph& graph, const Node& n, bool keys, int64_t kv_heads, int64_t head_size) {
  const std::string key = keys ? "k_quant_type" : "v_quant_type", name = keys ? "k_scale" : "v_scale";
  const size_t past = keys ? 3 : 4, operand = keys ? 12 : 13;
  const std::string kind = n.attr_string(key, "NONE");
  StoredRows rows;
  if (kind == "NONE") {
    if (n.has_input(operand)) return fail(n, key + " is NONE, and there is a " + name);
    return rows;
  }
  if (kind != "PER_TENSOR" && kind != "PER_CHANNEL")
    return fail(n, key + " is '" + kind + "', should be NONE, PER_TENSOR or PER_CHANNEL");
  const int64_t bits = n.attr_int("kv_cache_bit_width", 8);
  if (bits != 4 && bits != 8) return fail(n, "kv_cache_bit_width is " + std::to_string(bits) + ", should be 4 or 8");
  if (!n.has_input(operand)) return fail(n, key + " is " + kind + ", and " + name + " is missing");
  const Value& scale = graph.values[n.in[operand]];
  const bool by_channel = kind == "PER_CHANNEL";
  rows.form = {head_size, static_cast<int32_t>(bits), by_channel ? ScaleOf::kChannel : ScaleOf::kTensor};
  const int64_t heads = by_channel ? kv_heads : 1, size = by_channel ? head_size : 1;
  if (!scale.constant.present() || scale.info.type != DType::kF32 || scale.constant.count() != heads * size)
    return fail(n, name + " " + shape_str(scale.info.shape, &graph.symbol_names()) + " should be " +
                       std::to_string(heads * size) + " constant numbers of float32");
  const DType stored = rows.form.type();
  if (n.has_input(past) && graph.values[n.in[past]].info.type != stored)
    return fail(n, "the past is " + std::string(dtype_name(graph.values[n.in[past]].info.type)) + ", and rows of " +
                       std::to_string(bits) + " bits are " + dtype_name(stored));
  rows.scales = Tensor::allocate(DType::kF32, {heads, size});
  const std::vector<double> numbers = scale.constant.to_f64();
  for (size_t i = 0; i < numbers.size(); ++i) rows.scales.view().as<float>()[i] = static_cast<float>(numbers[i]);
  return rows;
}

ValueId encode_rows(Graph& graph, Builder& builder, ValueId x, const StoredRows& rows) {
  if (rows.form.plain()) return x;
  const Tensor factors = Tensor::allocate(DType::kF32, rows.scales.dims());
  for (int64_t i = 0; i < factors.count(); ++i) {  // integers that are worth nothing are any
    const float scale = rows.scales.view().as<float>()[i];
    factors.view().as<float>()[i] = scale != 0 ? 1.0f / scale : 1.0f;
  }
  const ValueId y = builder.op("EncodeRows", {x, graph.add_constant("cache/factors", factors)}, kNoValue, "situ");
  StateEncoding form = rows.form;
  form.size = 0;
  set_state_encoding(&builder.last(), 0, form);
  return y;
}

// Numbers [groups or 1, D or 1] beside rows of so many heads, [1, heads or 1, 1, D or 1].
static ValueId of_heads(Graph& graph, Builder& builder, const Tensor& numbers, int64_t heads, DType type) {
  const int64_t groups = numbers.dims()[0], size = numbers.dims()[1], count = groups > 1 ? heads : 1;
  const Tensor all = Tensor::allocate(DType::kF32, {1, count, 1, size});
  for (int64_t i = 0; i < all.count(); ++i)
    all.view().as<float>()[i] = numbers.view().as<float>()[i / size / (count / groups) * size + i % size];
  const ValueId v = graph.add_constant("cache/worth", all);
  return type == DType::kF32 ? v : builder.cast(v, type);
}

ValueId scale_rows(Graph& graph, Builder& builder, ValueId x, const StoredRows& rows, int64_t heads, DType type) {
  return rows.form.plain() ? x : builder.op("Mul", {x, of_heads(graph, builder, rows.scales, heads, type)});
}

ValueId less_zeros(Graph& graph, Builder& builder, ValueId x, const StoredRows& rows, int64_t heads, DType type) {
  return rows.zeros.present() ? builder.op("Sub", {x, of_heads(graph, builder, rows.zeros, heads, type)}) : x;
}

}  // namespace situ
