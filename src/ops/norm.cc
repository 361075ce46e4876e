// Normalisations: LayerNormalization, RMSNormalization and its older name, LpNormalization.
#include "kernels/params.h"
#include "ops/infer.h"
#include "ops/ops.h"

namespace situ {
namespace {

Status norm_axis(const Node& node, const Shape& x, int* axis) {
  const Result<int> result = normalize_axis(node.attr_int("axis", -1), static_cast<int>(x.size()));
  if (!result.is_ok()) return result.status().with_context(node.label() + ": axis");
  *axis = *result;
  return Status::ok();
}

// A factor or addend of the normalised dims: broadcast to x [.., d_axis, ..].
Status check_operand(InferContext& c, size_t i, const char* name, int axis) {
  SITU_RETURN_IF_ERROR(c.need(i, name));
  const Shape &x = c.input(0).shape, &s = c.input(i).shape;
  if (s.size() > x.size())
    return c.fail(std::string(name) + " " + shape_str(s) + " has more dims than " + shape_str(x));
  for (size_t d = 0; d < s.size(); ++d) {
    const size_t in_x = x.size() - s.size() + d;
    Dim same;
    if (s[d] == Dim(1)) continue;
    if (in_x < static_cast<size_t>(axis))
      return c.fail(std::string(name) + " " + shape_str(s) + " reaches beyond axis " + std::to_string(axis) + " of " +
                    shape_str(x));
    SITU_RETURN_IF_ERROR(
        require_equal(c, std::string(name) + " " + shape_str(s) + " for " + shape_str(x), s[d], x[in_x], &same));
  }
  return Status::ok();
}

// Shape of the per-row outputs: x's with the normalised dims made 1.
Shape row_shape(const Shape& x, int axis) {
  Shape shape = x;
  for (size_t i = static_cast<size_t>(axis); i < x.size(); ++i) shape[i] = Dim(1);
  return shape;
}

Status prepare_norm(const PrepareContext& c, KernelFn KernelTable::* kernel, Prepared* out) {
  SITU_RETURN_IF_ERROR(need_type(c, 0, kRealTypes));
  for (size_t i = 1; i < 3; ++i)
    if (c.has(i)) SITU_RETURN_IF_ERROR(need_type(c, i, kRealTypes));
  const bool wide = c.in[0]->type == DType::kF64;
  for (size_t i = 1; i < 3; ++i) {
    if (c.has(i) && !wide && c.in[i]->type == DType::kF64)
      return c.fail("input " + std::to_string(i) + " is float64 but X is " + dtype_name(c.in[0]->type));
  }
  NormParams params{};
  int axis = 0;
  SITU_RETURN_IF_ERROR(norm_axis(c.node, c.in[0]->shape, &axis));
  params.axis = axis;
  params.epsilon = c.node.attr_float("epsilon", 1e-5f);
  return use_kernel(out, kernel, params);
}

}  // namespace

// Y = (X - mean) / sqrt(var + epsilon) * Scale + B over the dims [axis..]; outputs 1 and 2: mean and
// 1 / sqrt(var + epsilon), float (double for double). Statistics are computed in float.
Status infer_layer_norm(InferContext& c) {
  SITU_RETURN_IF_ERROR(c.need(0, "X"));
  const Shape x = c.input(0).shape;
  int axis = 0;
  SITU_RETURN_IF_ERROR(norm_axis(c.node, x, &axis));
  SITU_RETURN_IF_ERROR(check_operand(c, 1, "Scale", axis));
  if (c.has(2)) SITU_RETURN_IF_ERROR(check_operand(c, 2, "B", axis));
  const DType statistics = c.input(0).type == DType::kF64 ? DType::kF64 : DType::kF32;
  SITU_RETURN_IF_ERROR(emit(c, 1, statistics, row_shape(x, axis)));
  SITU_RETURN_IF_ERROR(emit(c, 2, statistics, row_shape(x, axis)));
  return emit(c, 0, c.input(0).type, x);
}

Status prepare_layer_norm(const PrepareContext& c, Prepared* out) {
  return prepare_norm(c, &KernelTable::layer_norm, out);
}

// Y = X / sqrt(mean(X^2) + epsilon) * scale over the dims [axis..], in scale's type. ONNX RMSNormalization 23;
// SimplifiedLayerNormalization (onnxruntime, in either domain) is the same with an optional output 1:
// 1 / sqrt(mean(X^2) + epsilon).
Status infer_rms_norm(InferContext& c) {
  SITU_RETURN_IF_ERROR(at_most_inputs(c, 2));
  SITU_RETURN_IF_ERROR(c.need(0, "X"));
  const Shape x = c.input(0).shape;
  int axis = 0;
  SITU_RETURN_IF_ERROR(norm_axis(c.node, x, &axis));
  SITU_RETURN_IF_ERROR(check_operand(c, 1, "scale", axis));
  const DType statistics = c.input(0).type == DType::kF64 ? DType::kF64 : DType::kF32;
  SITU_RETURN_IF_ERROR(emit(c, 1, statistics, row_shape(x, axis)));
  return emit(c, 0, c.input(1).type, x);
}

Status prepare_rms_norm(const PrepareContext& c, Prepared* out) { return prepare_norm(c, &KernelTable::rms_norm, out); }

// y = x / |x|_p along `axis`, p 1 or 2; 0 where the norm is 0.
Status infer_lp_norm(InferContext& c) {
  SITU_RETURN_IF_ERROR(c.need(0, "input"));
  const Shape x = c.input(0).shape;
  int axis = 0;
  SITU_RETURN_IF_ERROR(norm_axis(c.node, x, &axis));
  const int64_t p = c.node.attr_int("p", 2);
  if (p != 1 && p != 2) return c.fail("p is " + std::to_string(p) + ", should be 1 or 2");
  return emit(c, 0, c.input(0).type, x);
}

Status prepare_lp_norm(const PrepareContext& c, Prepared* out) {
  SITU_RETURN_IF_ERROR(need_type(c, 0, kRealTypes));
  LpNormParams params{};
  int axis = 0;
  SITU_RETURN_IF_ERROR(norm_axis(c.node, c.in[0]->shape, &axis));
  params.axis = axis;
  params.p = static_cast<int32_t>(c.node.attr_int("p", 2));
  return use_kernel(out, &KernelTable::lp_norm, params);
}

// InstanceNormalization(X [N, C, ..], scale [C], B [C]): (X - mean) / sqrt(variance + epsilon) * scale + B, mean and
// variance over what stands behind a channel. Written out by passes/expand/expand_fused.cc.
Status infer_instance_norm(InferContext& c) {
  for (size_t i = 0; i < 3; ++i) SITU_RETURN_IF_ERROR(c.need(i, i == 0 ? "X" : i == 1 ? "scale" : "B"));
  const Shape& x = c.input(0).shape;
  if (x.size() < 3) return c.fail("X " + shape_str(x) + " has fewer than 3 dims");
  for (size_t i = 1; i < 3; ++i) {
    Dim same;
    if (c.input(i).shape.size() != 1) return c.fail("input " + std::to_string(i) + " is to have 1 dim");
    SITU_RETURN_IF_ERROR(
        require_equal(c, "input " + std::to_string(i) + " for " + shape_str(x), c.input(i).shape[0], x[1], &same));
  }
  return emit(c, 0, c.input(0).type, x);
}

}  // namespace situ
