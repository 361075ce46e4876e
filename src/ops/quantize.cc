// Operators on quantised weights: DequantizeLinear, com.microsoft.MatMulNBits and GatherBlockQuantized. The
// sizes of every packed tensor are checked against the attributes here, so that kernels can trust them.
#include "kernels/packed_layout.h"
#include "kernels/params.h"
#include "ops/infer.h"
#include "ops/ops.h"
#include "ops/quantised.h"

namespace situ {
namespace {

constexpr uint64_t kScaleTypes = type_bit(DType::kF32) | type_bit(DType::kF16) | type_bit(DType::kBF16);
constexpr uint64_t kNibbleTypes = type_bit(DType::kU4) | type_bit(DType::kI4);

bool is_one_of(DType type, uint64_t types) { return (type_bit(type) & types) != 0; }

// Larger than any tensor; products of two stay within int64.
constexpr int64_t kMaxExtent = int64_t{1} << 31;

Status need_range(InferContext& c, const char* key, int64_t value, int64_t low, int64_t high) {
  if (value >= low && value <= high) return Status::ok();
  return c.fail(std::string(key) + " is " + std::to_string(value) + ", should be from " + std::to_string(low) + " to " +
                std::to_string(high));
}

Status need_block(InferContext& c, int64_t block) {
  if (block >= 16 && block < kMaxExtent && (block & (block - 1)) == 0) return Status::ok();
  return c.fail("block_size is " + std::to_string(block) + ", should be a power of two from 16 on");
}

// " (K 64, N 31, bits 4, block_size 16)": what the file says, for messages.
std::string attributes_text(const Node& node) {
  std::string text;
  for (const char* key : {"K", "N", "bits", "block_size"})
    if (node.attr(key))
      text += std::string(text.empty() ? " (" : ", ") + key + " " + std::to_string(node.attr_int(key, 0));
  return text.empty() ? text : text + ")";
}

// Operand i holds exactly `expected` elements of one of `types`.
Status need_elements(InferContext& c, size_t i, const char* name, uint64_t types, __int128 expected) {
  SITU_RETURN_IF_ERROR(c.need(i, name));
  const ValueInfo& v = c.input(i);
  const std::string which = "input " + std::to_string(i) + " (" + name + ")";
  if (!is_one_of(v.type, types))
    return c.fail(which + " has type " + dtype_name(v.type) + ", which is not supported here");
  __int128 count = 1;
  for (const Dim& d : v.shape) {
    if (!d.is_const()) return c.fail(which + " has the shape " + shape_str(v.shape) + ", which is not constant");
    if (d.value() < 0 || (count *= d.value()) > (__int128{1} << 62))
      return c.fail(which + " has the impossible shape " + shape_str(v.shape));
  }
  if (count == expected) return Status::ok();
  const std::string wanted = expected > INT64_MAX ? "more than 2^63" : std::to_string(static_cast<int64_t>(expected));
  return c.fail(which + " " + shape_str(v.shape) + " holds " + std::to_string(static_cast<int64_t>(count)) +
                " elements, the attributes ask for " + wanted + attributes_text(c.node));
}

// The group of every k: which scale and zero point are its own.
Status need_groups(InferContext& c, int64_t k, int64_t groups) {
  if (!c.has(4)) return Status::ok();
  const Tensor* given = 4 < c.constants.size() ? c.constants[4] : nullptr;
  if (given == nullptr || !given->present() || !is_one_of(given->type(), kIndexTypes))
    return c.fail("input 4 (g_idx) is not a constant of integers");
  const std::vector<int64_t> values = given->to_i64();
  if (static_cast<int64_t>(values.size()) < k)
    return c.fail("input 4 (g_idx) has " + std::to_string(values.size()) + " elements for K " + std::to_string(k));
  for (int64_t i = 0; i < k; ++i) {
    const int64_t group = values[static_cast<size_t>(i)];
    if (group < 0 || group >= groups)
      return c.fail("input 4 (g_idx) puts k " + std::to_string(i) + " into group " + std::to_string(group) +
                    ", there are " + std::to_string(groups));
  }
  return Status::ok();
}

// An order of the elements of a row: none beyond the row.
Status need_order(InferContext& c, size_t i, int64_t k, const Dim& width) {
  SITU_RETURN_IF_ERROR(need_elements(c, i, "order", type_bit(DType::kI32), k));
  const Tensor* order = i < c.constants.size() ? c.constants[i] : nullptr;
  if (order == nullptr || !order->present() || !width.is_const()) return c.fail("order is not a constant");
  for (const int64_t place : order->to_i64())
    if (place < -1 || place >= width.value())
      return c.fail("order has " + std::to_string(place) + " for rows of " + width.str());
  return Status::ok();
}

}  // namespace

// Y [.., N] = A [.., K] * W^T + bias, W [N, K] in blocks of block_size along K:
//   B uint8 [N, blocks, block_size * bits / 8], low bits first; scales [N * blocks]; zero_points? uint8
//   [N * ceil(blocks * bits / 8)] or floats [N * blocks], else 2^(bits-1); g_idx? [K], the block whose scale and zero
//   point each k has; bias? [N]. onnxruntime contrib operator.
// Of a MatMulBnb4 (passes/expand/expand_quantised.cc): `table`, a DigitTable, and `high_first`.
Status infer_matmul_nbits(InferContext& c) {
  SITU_RETURN_IF_ERROR(c.need(0, "A"));
  const QuantisedMatrix w = quantised_matrix(c.node, c.has(3) ? c.input(3).type : DType::kNone);
  SITU_RETURN_IF_ERROR(need_range(c, "K", w.k, 1, kMaxExtent));
  SITU_RETURN_IF_ERROR(need_range(c, "N", w.n, 1, kMaxExtent));
  if (const int64_t bits = c.node.attr_int("bits", 4); bits != 2 && bits != 4 && bits != 8)
    return c.fail("bits is " + std::to_string(bits) + ", should be 2, 4 or 8");
  SITU_RETURN_IF_ERROR(need_block(c, c.node.attr_int("block_size", 0)));
  SITU_RETURN_IF_ERROR(need_range(c, "accuracy_level", c.node.attr_int("accuracy_level", 0), 0, 4));
  if (c.node.attr_int("weight_prepacked", 0) != 0)
    return c.fail("weight_prepacked is " + std::to_string(c.node.attr_int("weight_prepacked", 0)) +
                  "; prepacked weights are not supported");
  const Shape& a = c.input(0).shape;
  if (a.empty()) return c.fail("A is a scalar, should be [.., K]");
  Dim width;
  SITU_RETURN_IF_ERROR(require_equal(c, "last dim of A " + shape_str(a) + " and K", a.back(), Dim(w.k), &width));
  const __int128 n = w.n;
  SITU_RETURN_IF_ERROR(need_elements(c, 1, "B", kByteType, n * w.column_bytes()));
  SITU_RETURN_IF_ERROR(need_elements(c, 2, "scales", kScaleTypes, n * w.blocks()));
  if (c.has(3))
    SITU_RETURN_IF_ERROR(need_elements(c, 3, "zero_points", kScaleTypes | kByteType,
                                       n * (w.zeros == ZeroPoints::kIntegers ? w.column_zero_bytes() : w.blocks())));
  SITU_RETURN_IF_ERROR(need_range(c, "table", c.node.attr_int("table", 0), 0, static_cast<int64_t>(DigitTable::kNf4)));
  if (w.table != DigitTable::kNone && (w.bits != 4 || c.has(3)))
    return c.fail("digits of a table have 4 bits and no zero points, bits is " + std::to_string(w.bits));
  SITU_RETURN_IF_ERROR(need_groups(c, w.k, w.blocks()));
  if (c.has(5)) SITU_RETURN_IF_ERROR(need_elements(c, 5, "bias", kScaleTypes, n));
  Shape y = a;
  y.back() = Dim(w.n);
  return emit(c, 0, c.input(0).type, std::move(y));
}

// com.microsoft.MatMulBnb4: A [.., K], B uint8 [ceil(K * N / 2)], absmax [ceil(K * N / block_size)] -> y [.., N]
// (passes/expand/expand_quantised.cc). `training_mode` changes nothing that is computed.
Status infer_matmul_bnb4(InferContext& c) {
  SITU_RETURN_IF_ERROR(at_most_inputs(c, 3));
  SITU_RETURN_IF_ERROR(c.need(0, "A"));
  const int64_t k = c.node.attr_int("K", 0), n = c.node.attr_int("N", 0), block = c.node.attr_int("block_size", 0);
  SITU_RETURN_IF_ERROR(need_range(c, "K", k, 1, kMaxExtent));
  SITU_RETURN_IF_ERROR(need_range(c, "N", n, 1, kMaxExtent));
  SITU_RETURN_IF_ERROR(need_block(c, block));
  SITU_RETURN_IF_ERROR(need_range(c, "quant_type", c.node.attr_int("quant_type", -1), 0, 1));
  const Shape& a = c.input(0).shape;
  if (a.empty()) return c.fail("A is a scalar, should be [.., K]");
  Dim width;
  SITU_RETURN_IF_ERROR(require_equal(c, "last dim of A " + shape_str(a) + " and K", a.back(), Dim(k), &width));
  const __int128 count = __int128{k} * n;
  SITU_RETURN_IF_ERROR(need_elements(c, 1, "B", kByteType, (count + 1) / 2));
  SITU_RETURN_IF_ERROR(need_elements(c, 2, "absmax", kScaleTypes, (count + block - 1) / block));
  Shape y = a;
  y.back() = Dim(n);
  return emit(c, 0, c.input(0).type, std::move(y));
}

Status prepare_matmul_nbits(const PrepareContext& c, Prepared* out) {
  SITU_RETURN_IF_ERROR(need_type(c, 0, kScaleTypes));
  const QuantisedMatrix w = quantised_matrix(c.node, c.has(3) ? c.in[3]->type : DType::kNone);
  return use_kernel(
      out, &KernelTable::matmul_nbits,
      MatMulNBitsParams{w.k, w.n, w.bits, w.block, static_cast<int32_t>(c.node.attr_int("accuracy_level", 0)),
                        w.zeros == ZeroPoints::kFloats, w.table, w.high_first});
}

// situ.PackedMatMul: y = f(n(x) g^T) * (n(x) w^T + bias) + residual (kernels/params.h): x [.., K], w uint8 [bytes of
// the layout], bias? [N], residual? like y, norm? [K], g? like w, order? int32 [K] -> y [.., N].
Status infer_packed_matmul(InferContext& c) {
  SITU_RETURN_IF_ERROR(c.need(0, "x"));
  const PackedMatMulParams p = packed_params(c.node);
  SITU_RETURN_IF_ERROR(check_packed(c, p));
  SITU_RETURN_IF_ERROR(need_range(c, "N", p.n, 1, kMaxExtent));
  const Shape& x = c.input(0).shape;
  if (x.empty()) return c.fail("x is a scalar, should be [.., K]");
  Dim width;
  if (c.has(6))
    SITU_RETURN_IF_ERROR(need_order(c, 6, p.k, x.back()));
  else
    SITU_RETURN_IF_ERROR(require_equal(c, "last dim of x " + shape_str(x) + " and K", x.back(), Dim(p.k), &width));
  SITU_RETURN_IF_ERROR(need_elements(c, 1, "w", kByteType, packed_layout(p).bytes()));
  if (c.has(2)) SITU_RETURN_IF_ERROR(need_elements(c, 2, "bias", kScaleTypes, p.n));
  Shape y = x;
  y.back() = Dim(p.n);
  if (c.has(3) && c.input(3).shape != y)
    return c.fail("residual " + shape_str(c.input(3).shape) + " should be " + shape_str(y));
  if (c.has(4)) SITU_RETURN_IF_ERROR(need_elements(c, 4, "norm", kScaleTypes, p.k));
  if (c.has(5)) SITU_RETURN_IF_ERROR(need_elements(c, 5, "g", kByteType, packed_layout(p).bytes()));
  return emit(c, 0, written_type(c.node, c.input(0).type), std::move(y));
}

Status prepare_packed_matmul(const PrepareContext& c, Prepared* out) {
  SITU_RETURN_IF_ERROR(need_type(c, 0, kScaleTypes));
  for (size_t i = 2; i < 5; ++i)
    if (c.has(i)) SITU_RETURN_IF_ERROR(need_type(c, i, kScaleTypes));
  return use_kernel(out, &KernelTable::packed_matmul, packed_params(c.node));
}

namespace {

// The products of a situ.PackedProjections; false if the attributes do not agree with each other.
bool projections_of(const Node& node, PackedProjectionsParams* p) {
  p->shared = packed_params(node);
  const auto n = node.attr_ints("columns"), half = node.attr_ints("half_scales_of");
  p->count = static_cast<int32_t>(n.size());
  if (n.empty() || n.size() > kMaxProjections || half.size() != n.size() || node.attr_ints("types").size() != n.size())
    return false;
  for (size_t i = 0; i < n.size(); ++i) {
    p->n[i] = n[i];
    p->half_scales[i] = half[i] != 0;
  }
  return node.out.size() == n.size() && node.in.size() == 2 + 2 * n.size();
}

}  // namespace

// situ.PackedProjections: y_i = n(x) w_i^T + bias_i: x [.., K], norm? [K], then for each product w uint8 [bytes of the
// layout] and bias? [columns_i] -> y_i [.., columns_i] of types_i (0: that of x).
Status infer_packed_projections(InferContext& c) {
  SITU_RETURN_IF_ERROR(c.need(0, "x"));
  PackedProjectionsParams p{};
  if (!projections_of(c.node, &p)) return c.fail("columns, half_scales_of and types do not match the operands");
  SITU_RETURN_IF_ERROR(check_packed(c, p.shared));
  const Shape& x = c.input(0).shape;
  if (x.empty()) return c.fail("x is a scalar, should be [.., K]");
  Dim width;
  SITU_RETURN_IF_ERROR(require_equal(c, "last dim of x " + shape_str(x) + " and K", x.back(), Dim(p.shared.k), &width));
  if (c.has(1)) SITU_RETURN_IF_ERROR(need_elements(c, 1, "norm", kScaleTypes, p.shared.k));
  const auto types = c.node.attr_ints("types");
  for (size_t i = 0; i < static_cast<size_t>(p.count); ++i) {
    SITU_RETURN_IF_ERROR(need_range(c, "columns", p.n[i], 1, kMaxExtent));
    PackedMatMulParams one = p.shared;
    one.n = p.n[i];
    one.half_scales = p.half_scales[i];
    SITU_RETURN_IF_ERROR(need_elements(c, 2 + 2 * i, "w", kByteType, packed_layout(one).bytes()));
    if (c.has(3 + 2 * i)) SITU_RETURN_IF_ERROR(need_elements(c, 3 + 2 * i, "bias", kScaleTypes, p.n[i]));
    Shape y = x;
    y.back() = Dim(p.n[i]);
    SITU_RETURN_IF_ERROR(emit(c, i, types[i] != 0 ? static_cast<DType>(types[i]) : c.input(0).type, std::move(y)));
  }
  return Status::ok();
}

Status prepare_packed_projections(const PrepareContext& c, Prepared* out) {
  SITU_RETURN_IF_ERROR(need_type(c, 0, kScaleTypes));
  PackedProjectionsParams p{};
  if (!projections_of(c.node, &p)) return c.fail("columns, half_scales_of and types do not match the operands");
  for (size_t i = 1; i < c.node.in.size(); i += 2)
    if (c.has(i)) SITU_RETURN_IF_ERROR(need_type(c, i, kScaleTypes));
  return use_kernel(out, &KernelTable::packed_projections, p);
}

namespace {

struct GatherAxes {
  int64_t bits = 0, block = 0;
  int gather = 0, quantize = 0;
  bool packed = false;
};

Status gather_axes(const Node& node, const ValueInfo& data, GatherAxes* axes) {
  const int rank = static_cast<int>(data.shape.size());
  const Result<int> gather = normalize_axis(node.attr_int("gather_axis", 0), rank);
  if (!gather.is_ok()) return gather.status().with_context(node.label() + ": gather_axis");
  const Result<int> quantize = normalize_axis(node.attr_int("quantize_axis", 1), rank);
  if (!quantize.is_ok()) return quantize.status().with_context(node.label() + ": quantize_axis");
  axes->gather = *gather;
  axes->quantize = *quantize;
  axes->packed = data.type == DType::kU8;
  axes->bits = node.attr_int("bits", 4);
  axes->block = node.attr_int("block_size", 128);
  return Status::ok();
}

}  // namespace

// Rows of a table [.., D] quantised in blocks along quantize_axis, gathered along gather_axis by indices:
//   data uint4 / int4, or uint8 holding 8 / bits elements of the last dim, low bits first; scales like data with
//   ceil(d / block_size) at quantize_axis; zero_points? like scales, packed as data is, else 0 (uint8: 2^(bits-1)).
// The output has the type of scales. onnxruntime contrib operator.
Status infer_gather_block_quantized(InferContext& c) {
  SITU_RETURN_IF_ERROR(c.need(0, "data"));
  SITU_RETURN_IF_ERROR(c.need(1, "indices"));
  SITU_RETURN_IF_ERROR(c.need(2, "scales"));
  const ValueInfo& data = c.input(0);
  if (!is_one_of(data.type, kByteType | kNibbleTypes))
    return c.fail(std::string("data has type ") + dtype_name(data.type));
  if (data.shape.empty()) return c.fail("data is a scalar");
  if (!shape_is_const(data.shape))
    return c.fail("data has the shape " + shape_str(data.shape) + ", which is not constant");
  GatherAxes axes;
  SITU_RETURN_IF_ERROR(gather_axes(c.node, data, &axes));
  SITU_RETURN_IF_ERROR(need_block(c, axes.block));
  const size_t last = data.shape.size() - 1;
  if (axes.packed ? axes.bits != 2 && axes.bits != 4 && axes.bits != 8 : axes.bits != 4)
    return c.fail("bits is " + std::to_string(axes.bits) + " for data of type " + dtype_name(data.type));
  if (axes.packed && (axes.gather == static_cast<int>(last) || axes.quantize != static_cast<int>(last)))
    return c.fail("uint8 data is packed along its last axis: gather_axis " + std::to_string(axes.gather) +
                  " should not be it and quantize_axis " + std::to_string(axes.quantize) + " should");
  std::vector<int64_t> dims = shape_values(data.shape);
  if (axes.packed) {
    SITU_RETURN_IF_ERROR(need_range(c, "last dim of data", dims[last], 0, kMaxExtent));
    dims[last] *= 8 / axes.bits;
  }
  __int128 count = 1, zero_count = 1;
  Shape scales;
  for (size_t i = 0; i <= last; ++i) {
    const bool quantised = static_cast<int>(i) == axes.quantize;
    const int64_t extent = quantised ? (dims[i] + axes.block - 1) / axes.block : dims[i];
    scales.push_back(Dim(extent));
    count *= extent;
    zero_count *= axes.packed && i == last ? (extent * axes.bits + 7) / 8 : extent;
  }
  if (c.input(2).shape != scales)
    return c.fail("scales " + shape_str(c.input(2).shape) + " should be " + shape_str(scales) + " for data " +
                  shape_str(data.shape) + " in blocks of " + std::to_string(axes.block));
  SITU_RETURN_IF_ERROR(need_elements(c, 2, "scales", kScaleTypes, count));
  if (c.has(3)) {
    SITU_RETURN_IF_ERROR(need_elements(c, 3, "zero_points", type_bit(data.type), zero_count));
    if (c.input(3).shape.size() != data.shape.size())
      return c.fail("zero_points " + shape_str(c.input(3).shape) + " should have the rank of data " +
                    shape_str(data.shape));
  }
  Shape y;
  for (size_t i = 0; i <= last; ++i) {
    if (static_cast<int>(i) != axes.gather)
      y.push_back(Dim(dims[i]));
    else
      y.insert(y.end(), c.input(1).shape.begin(), c.input(1).shape.end());
  }
  return emit(c, 0, c.input(2).type, std::move(y));
}

Status prepare_gather_block_quantized(const PrepareContext& c, Prepared* out) {
  SITU_RETURN_IF_ERROR(need_type(c, 1, kIndexTypes));
  GatherAxes axes;
  SITU_RETURN_IF_ERROR(gather_axes(c.node, *c.in[0], &axes));
  GatherBlockQuantizedParams params{};
  params.bits = static_cast<int32_t>(axes.bits);
  params.block = static_cast<int32_t>(axes.block);
  params.gather_axis = axes.gather;
  params.quantize_axis = axes.quantize;
  params.packed_bytes = axes.packed;
  params.default_zero = axes.packed ? 1 << (axes.bits - 1) : 0;
  return use_kernel(out, &KernelTable::gather_block_quantized, params);
}

namespace {

constexpr uint64_t kQuantisedTypes = kNibbleTypes | type_bit(DType::kU2) | type_bit(DType::kI2) | type_bit(DType::kU8) |
                                     type_bit(DType::kI8) | type_bit(DType::kU16) | type_bit(DType::kI16) |
                                     type_bit(DType::kI32) | type_bit(DType::kF8E4M3FN) | type_bit(DType::kF8E4M3FNUZ) |
                                     type_bit(DType::kF8E5M2) | type_bit(DType::kF8E5M2FNUZ) | type_bit(DType::kF4E2M1);

constexpr uint64_t kDigitTypes = kByteType | type_bit(DType::kI8) | type_bit(DType::kU16) | type_bit(DType::kI16);

// axis (0 when there is one scale only) and block (0: per tensor or per axis).
Status dequantize_params(const Node& node, const Shape& x, const Shape& scale, DequantizeParams* params) {
  const int rank = static_cast<int>(x.size());
  *params = {};
  params->block = node.attr_int("block_size", 0);
  const bool single = scale.empty() || (scale.size() == 1 && scale[0] == Dim(1) && params->block == 0);
  if (single) return Status::ok();
  if (rank == 0) return Status::error(node.label() + ": x is a scalar but x_scale is " + shape_str(scale));
  // A vector has one axis only, whatever the attribute says by default.
  const int64_t axis = rank == 1 && node.attr("axis") == nullptr ? 0 : node.attr_int("axis", 1);
  const Result<int> normal = normalize_axis(axis, rank);
  if (!normal.is_ok()) return normal.status().with_context(node.label() + ": axis");
  params->axis = *normal;
  return Status::ok();
}

Status check_scales(InferContext& c, size_t i, const char* name, const DequantizeParams& params) {
  const Shape &x = c.input(0).shape, &s = c.input(i).shape;
  const size_t axis = static_cast<size_t>(params.axis);
  Dim same;
  if (s.empty() || (s.size() == 1 && s[0] == Dim(1) && params.block == 0)) return Status::ok();
  if (params.block == 0) {
    if (s.size() != 1) return c.fail(std::string(name) + " " + shape_str(s) + " should be a scalar or a vector");
    return require_equal(
        c, std::string(name) + " " + shape_str(s) + " along axis " + std::to_string(axis) + " of " + shape_str(x), s[0],
        x[axis], &same);
  }
  if (s.size() != x.size())
    return c.fail(std::string(name) + " " + shape_str(s) + " should have the rank of x " + shape_str(x));
  for (size_t d = 0; d < x.size(); ++d) {
    const Dim expected = d == axis ? dim_div(x[d] + Dim(params.block - 1), Dim(params.block)) : x[d];
    SITU_RETURN_IF_ERROR(require_equal(c,
                                       std::string(name) + " " + shape_str(s) + " for x " + shape_str(x) +
                                           " in blocks of " + std::to_string(params.block),
                                       s[d], expected, &same));
  }
  return Status::ok();
}

// Operands x, scale and zero point, which has the type of x if these are the integers.
Status check_quantised(InferContext& c, const std::string& name, bool integers) {
  SITU_RETURN_IF_ERROR(at_most_inputs(c, 3));
  SITU_RETURN_IF_ERROR(c.need(0, "x"));
  SITU_RETURN_IF_ERROR(c.need(1, (name + "_scale").c_str()));
  SITU_RETURN_IF_ERROR(need_range(c, "block_size", c.node.attr_int("block_size", 0), 0, kMaxExtent));
  DequantizeParams params{};
  SITU_RETURN_IF_ERROR(dequantize_params(c.node, c.input(0).shape, c.input(1).shape, &params));
  SITU_RETURN_IF_ERROR(check_scales(c, 1, (name + "_scale").c_str(), params));
  if (!c.has(2)) return Status::ok();
  SITU_RETURN_IF_ERROR(c.need(2, (name + "_zero_point").c_str()));
  if (integers) SITU_RETURN_IF_ERROR(need_same_type(c, 0, 2));
  const bool one_scale = shape_count(c.input(1).shape) == Dim(1), one_zero = shape_count(c.input(2).shape) == Dim(1);
  if (one_scale != one_zero)
    return c.fail(name + "_scale " + shape_str(c.input(1).shape) + " and " + name + "_zero_point " +
                  shape_str(c.input(2).shape) + " differ");
  return check_scales(c, 2, (name + "_zero_point").c_str(), params);
}

}  // namespace

// y = (x - zero_point) * scale: one scale, one per index of `axis` (13 on), or one per block of it (21 on).
// y has the type of the scale, or output_dtype (23 on).
Status infer_dequantize_linear(InferContext& c) {
  SITU_RETURN_IF_ERROR(check_quantised(c, "x", true));
  const int64_t type = c.node.attr_int("output_dtype", 0);
  return emit(c, 0, type != 0 ? static_cast<DType>(type) : c.input(1).type, c.input(0).shape);
}

Status prepare_dequantize_linear(const PrepareContext& c, Prepared* out) {
  SITU_RETURN_IF_ERROR(need_type(c, 0, kQuantisedTypes));
  SITU_RETURN_IF_ERROR(need_type(c, 1, kScaleTypes));
  if (!is_one_of(c.out[0]->type, kScaleTypes))
    return c.fail(std::string("output type ") + dtype_name(c.out[0]->type) + " is not supported");
  DequantizeParams params{};
  SITU_RETURN_IF_ERROR(dequantize_params(c.node, c.in[0]->shape, c.in[1]->shape, &params));
  return use_kernel(out, &KernelTable::dequantize_linear, params);
}

namespace {

// The integers that a type of 8 or 16 bits holds.
bool range_of(DType type, QuantizeParams* params) {
  const bool is_signed = type == DType::kI8 || type == DType::kI16;
  if (!is_one_of(type, kDigitTypes)) return false;
  const float numbers = dtype_bits(type) == 8 ? 256 : 65536;
  params->low = is_signed ? -numbers / 2 : 0;
  params->high = params->low + numbers - 1;
  return true;
}

Status prepare_rounding(const PrepareContext& c, DType digits, KernelFn KernelTable::* kernel, Prepared* out) {
  SITU_RETURN_IF_ERROR(need_type(c, 0, kScaleTypes));
  SITU_RETURN_IF_ERROR(need_type(c, 1, kScaleTypes));
  QuantizeParams params{};
  if (!range_of(digits, &params))
    return c.fail(std::string("quantising to ") + dtype_name(digits) +
                  " is not supported: integers of 8 and 16 bits are");
  SITU_RETURN_IF_ERROR(dequantize_params(c.node, c.in[0]->shape, c.in[1]->shape, &params.scales));
  return use_kernel(out, kernel, params);
}

}  // namespace

// y = round(x / scale) + zero_point, ties to even, the nearest that the type of y can hold: that of the zero point,
// output_dtype (21 on), or uint8. Scales as DequantizeLinear has them. `saturate` is of floats of 8 bits, which are not
// supported; `precision` (23 on): x / scale is computed in float.
Status infer_quantize_linear(InferContext& c) {
  SITU_RETURN_IF_ERROR(check_quantised(c, "y", false));
  const int64_t given = c.node.attr_int("output_dtype", 0);
  const DType type = c.has(2) ? c.input(2).type : given != 0 ? static_cast<DType>(given) : DType::kU8;
  if (given != 0 && static_cast<DType>(given) != type)
    return c.fail(std::string("output_dtype is ") + dtype_name(static_cast<DType>(given)) + ", y_zero_point " +
                  dtype_name(type));
  if (const int64_t precision = c.node.attr_int("precision", 0);
      precision != 0 && static_cast<DType>(precision) != DType::kF32)
    return c.fail(std::string("precision is ") + dtype_name(static_cast<DType>(precision)) +
                  ", only float is supported");
  return emit(c, 0, type, c.input(0).shape);
}

Status prepare_quantize_linear(const PrepareContext& c, Prepared* out) {
  return prepare_rounding(c, c.out[0]->type, &KernelTable::quantize_linear, out);
}

// situ.RoundLinear: DequantizeLinear(QuantizeLinear(x, scale, zero_point), scale, zero_point), where the integers
// between them have the type of `zero_point`, or `digits` -> y like x.
Status infer_round_linear(InferContext& c) {
  SITU_RETURN_IF_ERROR(check_quantised(c, "x", false));
  return emit(c, 0, c.input(0).type, c.input(0).shape);
}

Status prepare_round_linear(const PrepareContext& c, Prepared* out) {
  return prepare_rounding(c, static_cast<DType>(c.node.attr_int("digits", static_cast<int64_t>(DType::kU8))),
                          &KernelTable::round_linear, out);
}

}  // namespace situ
