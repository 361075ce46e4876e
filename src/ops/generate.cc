// Tensors made from shapes and scalars: Shape, Size, ConstantOfShape, Range, EyeLike, OneHot, NonZero; and Trilu.
#include <algorithm>
#include <cmath>

#include "kernels/params.h"
#include "ops/infer.h"
#include "ops/ops.h"

namespace situ {
namespace {

// Bounds of Shape's `start` and `end` within [0, rank].
int64_t clamp_axis(int64_t axis, int64_t rank) {
  if (axis < 0) axis = axis < -rank ? 0 : axis + rank;
  return std::min(axis, rank);
}

// The element of ConstantOfShape: attribute "value", a tensor of one element, else float 0.
DType fill_type(const Node& node) {
  const Attribute* value = node.attr("value");
  return value != nullptr && value->tensor.present() ? value->tensor.type() : DType::kF32;
}

// Elements of Range from `start` to `limit`, `delta` apart; all three as numbers.
Status range_length(const InferContext& c, double start, double limit, double delta, int64_t* length) {
  if (delta == 0 || std::isnan(delta)) return c.fail("delta is " + std::to_string(delta));
  const double count = std::ceil((limit - start) / delta);
  if (!(count < 9e15)) return c.fail("would have " + std::to_string(count) + " elements");
  *length = count > 0 ? static_cast<int64_t>(count) : 0;
  return Status::ok();
}

}  // namespace

// data [d0, d1 ..] -> int64 [number of dims from attribute start to end]; the content is the dims.
Status infer_shape(InferContext& c) {
  SITU_RETURN_IF_ERROR(c.need(0, "data"));
  const Shape& shape = c.input(0).shape;
  const int64_t rank = static_cast<int64_t>(shape.size());
  const int64_t start = clamp_axis(c.node.attr_int("start", 0), rank);
  const int64_t end = std::max(start, clamp_axis(c.node.attr_int("end", rank), rank));
  SITU_RETURN_IF_ERROR(emit(c, 0, DType::kI64, {Dim(end - start)}));
  if (!c.out.empty()) c.out[0].content = std::vector<Dim>(shape.begin() + start, shape.begin() + end);
  return Status::ok();
}

Status prepare_shape(const PrepareContext& c, Prepared* out) {
  if (!c.has(0)) return c.fail("input 0 (data) is missing");
  const int64_t rank = static_cast<int64_t>(c.in[0]->shape.size());
  ShapeParams p{0, static_cast<int32_t>(rank), c.node.op == "Size"};
  if (!p.product) {
    p.start = static_cast<int32_t>(clamp_axis(c.node.attr_int("start", 0), rank));
    p.end = static_cast<int32_t>(std::max<int64_t>(p.start, clamp_axis(c.node.attr_int("end", rank), rank)));
  }
  return use_kernel(out, &KernelTable::shape, p);
}

// data -> int64 scalar, the number of elements.
Status infer_size(InferContext& c) {
  SITU_RETURN_IF_ERROR(c.need(0, "data"));
  SITU_RETURN_IF_ERROR(emit(c, 0, DType::kI64, {}));
  if (!c.out.empty()) c.out[0].content = std::vector<Dim>{shape_count(c.input(0).shape)};
  return Status::ok();
}

// shape [r] -> a tensor of that shape, every element the attribute "value".
Status infer_constant_of_shape(InferContext& c) {
  std::vector<Dim> shape;
  SITU_RETURN_IF_ERROR(need_content(c, 0, "input", &shape));
  const Attribute* value = c.node.attr("value");
  if (value != nullptr && (!value->tensor.present() || value->tensor.count() != 1))
    return c.fail("attribute value is not a tensor of one element");
  return emit(c, 0, fill_type(c.node), shape);
}

Status prepare_constant_of_shape(const PrepareContext& c, Prepared* out) {
  FillParams p{};
  p.type = fill_type(c.node);
  if (dtype_bits(p.type) == 0) return c.fail(std::string("value of type ") + dtype_name(p.type) + " is not supported");
  if (const Attribute* value = c.node.attr("value")) {
    for (int64_t i = 0; i < value->tensor.bytes(); ++i)
      p.value[i] = std::to_integer<unsigned char>(value->tensor.view().data[i]);
  }
  // Packed elements: one whole byte of them.
  for (int bits = dtype_bits(p.type); bits < 8; bits *= 2) {
    const unsigned low = p.value[0] & ((1u << bits) - 1);
    p.value[0] = static_cast<unsigned char>(low | low << bits);
  }
  return use_kernel(out, &KernelTable::fill, p);
}

// start, limit, delta (scalars) -> [max(ceil((limit - start) / delta), 0)]. Of halves it is computed in float.
Status infer_range(InferContext& c) {
  if (const int64_t type = c.node.attr_int("stash_type", 1); type != 1)
    return c.fail("stash_type " + std::to_string(type) + " is not supported, should be 1 (float)");
  const char* const names[] = {"start", "limit", "delta"};
  for (size_t i = 0; i < 3; ++i) {
    SITU_RETURN_IF_ERROR(c.need(i, names[i]));
    SITU_RETURN_IF_ERROR(need_same_type(c, 0, i));
    if (shape_count(c.input(i).shape) != Dim(1))
      return c.fail(std::string(names[i]) + " " + shape_str(c.input(i).shape) + " is not a scalar");
  }
  const DType type = c.input(0).type;
  int64_t length = 0;
  bool counted = true;  // whole numbers that are known, of any type
  for (size_t i = 0; i < 3; ++i) counted = counted && c.content(i).has_value();
  if (dtype_is_float(type) && !counted) {
    double v[3];
    for (size_t i = 0; i < 3; ++i) {
      if (i >= c.constants.size() || c.constants[i] == nullptr)
        return c.fail(std::string("input ") + std::to_string(i) + " (" + names[i] +
                      ") is not known before the step runs");
      v[i] = c.constants[i]->to_f64()[0];
    }
    SITU_RETURN_IF_ERROR(range_length(c, v[0], v[1], v[2], &length));
    return emit(c, 0, type, {Dim(length)});
  }
  std::vector<Dim> v[3];
  for (size_t i = 0; i < 3; ++i) {
    SITU_RETURN_IF_ERROR(need_content(c, i, names[i], &v[i]));
    if (v[i].size() != 1) return c.fail(std::string(names[i]) + " is not a scalar");
  }
  const Dim delta = v[2][0];
  if (!delta.is_const() || delta.value() == 0)
    return c.fail("delta " + delta.str() + " should be a constant other than 0");
  const bool up = delta.value() > 0;
  if (delta.value() == INT64_MIN) return c.fail("delta " + delta.str() + " is out of range");
  const Dim distance = up ? v[1][0] - v[0][0] : v[0][0] - v[1][0], step = up ? delta : Dim(-delta.value());
  const Dim room = dim_max(distance, 0);
  if (room.is_const() && room.value() > 0) return emit(c, 0, type, {Dim((room.value() - 1) / step.value() + 1)});
  return emit(c, 0, type, {step == Dim(1) ? room : dim_div(room + step - Dim(1), step)});
}

Status prepare_range(const PrepareContext& c, Prepared* out) {
  for (size_t i = 0; i < 3; ++i) SITU_RETURN_IF_ERROR(need_type(c, i, kNumberTypes));
  out->kernel = &KernelTable::range;
  return Status::ok();
}

// x [.., N, M], k? (scalar) -> same.
Status infer_trilu(InferContext& c) {
  SITU_RETURN_IF_ERROR(c.need(0, "input"));
  if (c.input(0).shape.size() < 2) return c.fail("input " + shape_str(c.input(0).shape) + " needs rank 2 or more");
  if (c.has(1)) {
    SITU_RETURN_IF_ERROR(c.need(1, "k"));
    if (shape_count(c.input(1).shape) != Dim(1)) return c.fail("k " + shape_str(c.input(1).shape) + " is not a scalar");
  }
  return emit(c, 0, c.input(0).type, c.input(0).shape);
}

Status prepare_trilu(const PrepareContext& c, Prepared* out) {
  SITU_RETURN_IF_ERROR(need_whole_bytes(c, 0));
  if (c.has(1)) SITU_RETURN_IF_ERROR(need_type(c, 1, kIndexTypes));
  return use_kernel(out, &KernelTable::trilu, TriluParams{c.node.attr_int("upper", 1) != 0});
}

// x [N, M] -> [N, M] in attribute dtype (else x's type).
Status infer_eye_like(InferContext& c) {
  SITU_RETURN_IF_ERROR(c.need(0, "input"));
  if (c.input(0).shape.size() != 2) return c.fail("input " + shape_str(c.input(0).shape) + " needs rank 2");
  const int64_t type = c.node.attr_int("dtype", static_cast<int64_t>(c.input(0).type));
  if (type <= 0 || type > static_cast<int64_t>(DType::kI2))
    return c.fail("attribute dtype: " + std::to_string(type) + " is no type");
  return emit(c, 0, static_cast<DType>(type), c.input(0).shape);
}

Status prepare_eye_like(const PrepareContext& c, Prepared* out) {
  const DType type = c.out[0]->type;
  if ((type_bit(type) & (kNumberTypes | kBoolType)) == 0)
    return c.fail(std::string(dtype_name(type)) + " is not supported");
  return use_kernel(out, &KernelTable::eye_like, EyeLikeParams{c.node.attr_int("k", 0)});
}

// indices [i..], depth, values [2] -> [i.., depth] with the new axis at attribute axis.
Status infer_one_hot(InferContext& c) {
  SITU_RETURN_IF_ERROR(c.need(0, "indices"));
  SITU_RETURN_IF_ERROR(c.need(2, "values"));
  std::vector<Dim> depth;
  if (c.has(1) && c.constants.size() > 1 && c.constants[1] != nullptr && c.constants[1]->count() == 1 &&
      dtype_is_float(c.input(1).type)) {
    const double value = c.constants[1]->to_f64()[0];
    if (!(value >= 0 && value < 9e15)) return c.fail("depth " + std::to_string(value) + " is out of range");
    depth = {Dim(static_cast<int64_t>(value))};
  } else {
    SITU_RETURN_IF_ERROR(need_content(c, 1, "depth", &depth));
  }
  if (depth.size() != 1) return c.fail("depth holds " + std::to_string(depth.size()) + " elements, not 1");
  if (c.input(2).shape != Shape{Dim(2)}) return c.fail("values " + shape_str(c.input(2).shape) + " should be [2]");
  Shape shape = c.input(0).shape;
  Result<int> axis = normalize_axis(c.node.attr_int("axis", -1), static_cast<int>(shape.size()) + 1);
  if (!axis.is_ok()) return axis.status().with_context(c.node.label());
  shape.insert(shape.begin() + *axis, depth[0]);
  return emit(c, 0, c.input(2).type, std::move(shape));
}

Status prepare_one_hot(const PrepareContext& c, Prepared* out) {
  SITU_RETURN_IF_ERROR(need_type(c, 0, kNumberTypes));
  SITU_RETURN_IF_ERROR(need_whole_bytes(c, 2));
  const int rank = static_cast<int>(c.in[0]->shape.size()) + 1;
  Result<int> axis = normalize_axis(c.node.attr_int("axis", -1), rank);
  if (!axis.is_ok()) return axis.status().with_context(c.node.label());
  return use_kernel(out, &KernelTable::one_hot, AxisParams{*axis});
}

// x [d..] -> int64 [rank (1 for a scalar), n]: the indices of the n elements other than 0, in row-major order. How
// many there are is known before the step only where x itself is; else there are N, and who compiles the graph has to
// find out what for (passes/experts/recognise_experts.cc).
Status infer_nonzero(InferContext& c) {
  SITU_RETURN_IF_ERROR(c.need(0, "X"));
  const Dim rank(std::max<int64_t>(1, static_cast<int64_t>(c.input(0).shape.size())));
  if (c.constants.empty() || c.constants[0] == nullptr) return emit(c, 0, DType::kI64, {rank, Dim::symbol(kSymN)});
  int64_t count = 0;
  for (double element : c.constants[0]->to_f64()) count += element != 0;
  return emit(c, 0, DType::kI64, {rank, Dim(count)});
}

Status prepare_nonzero(const PrepareContext& c, Prepared* out) {
  SITU_RETURN_IF_ERROR(need_type(c, 0, kNumberTypes | kBoolType));
  out->kernel = &KernelTable::nonzero;
  return Status::ok();
}

}  // namespace situ
