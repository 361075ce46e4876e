// Shapes of operators on integers with scales and zero points (y = (q - zero_point) * scale), as onnxruntime's
// quantisers and its optimiser write them. Passes expand them (passes/expand/expand_quantised.cc): they have no
// kernels.
#include <algorithm>

#include "ops/infer.h"
#include "ops/ops.h"

namespace situ {
namespace {

Status need_all(InferContext& c, std::initializer_list<size_t> operands) {
  for (const size_t i : operands) SITU_RETURN_IF_ERROR(c.need(i, "operand"));
  return Status::ok();
}

// a [.., M, K] times b [.., K, N].
Status product_shape(InferContext& c, size_t i, size_t j, Shape* y) {
  const Shape &a = c.input(i).shape, &b = c.input(j).shape;
  if (a.size() < 2 || b.size() < 2)
    return c.fail("A " + shape_str(a) + " and B " + shape_str(b) + " should have at least two dims");
  Dim k;
  SITU_RETURN_IF_ERROR(
      require_equal(c, "inner dims of A " + shape_str(a) + " and B " + shape_str(b), a.back(), b[b.size() - 2], &k));
  SITU_RETURN_IF_ERROR(broadcast(c, Shape(a.begin(), a.end() - 2), Shape(b.begin(), b.end() - 2), y));
  y->push_back(a[a.size() - 2]);
  y->push_back(b.back());
  return Status::ok();
}

}  // namespace

// A f32 [.., M, K], B uint8 or int8 [K, N], b_scale [] or [N], b_zero_point?, bias? [N] -> y f32.
Status infer_dynamic_quantize_matmul(InferContext& c) {
  SITU_RETURN_IF_ERROR(at_most_inputs(c, 5));
  SITU_RETURN_IF_ERROR(need_all(c, {0, 1, 2}));
  Shape y;
  SITU_RETURN_IF_ERROR(product_shape(c, 0, 1, &y));
  return emit(c, 0, c.input(0).type, std::move(y));
}

// A, B of bytes, a_scale, b_scale, a_zero_point?, b_zero_point?, bias? -> y f32.
Status infer_matmul_integer_to_float(InferContext& c) {
  SITU_RETURN_IF_ERROR(at_most_inputs(c, 7));
  SITU_RETURN_IF_ERROR(need_all(c, {0, 1, 2, 3}));
  Shape y;
  SITU_RETURN_IF_ERROR(product_shape(c, 0, 1, &y));
  return emit(c, 0, c.input(2).type, std::move(y));
}

// a, a_scale, a_zero_point, b, b_scale, b_zero_point, y_scale, y_zero_point -> y of the last one's type.
Status infer_qlinear_matmul(InferContext& c) {
  SITU_RETURN_IF_ERROR(at_most_inputs(c, 8));
  SITU_RETURN_IF_ERROR(need_all(c, {0, 1, 2, 3, 4, 5, 6, 7}));
  Shape y;
  SITU_RETURN_IF_ERROR(product_shape(c, 0, 3, &y));
  return emit(c, 0, c.input(7).type, std::move(y));
}

// A [M, K], a_scale, a_zero_point, B [K, N], b_scale, b_zero_point, C? int32, y_scale?, y_zero_point? -> y [M, N] of
// the last one's type, or f32. transA, transB: as Gemm.
Status infer_qgemm(InferContext& c) {
  SITU_RETURN_IF_ERROR(at_most_inputs(c, 9));
  SITU_RETURN_IF_ERROR(need_all(c, {0, 1, 2, 3, 4, 5}));
  Shape a = c.input(0).shape, b = c.input(3).shape;
  if (a.size() != 2 || b.size() != 2)
    return c.fail("A " + shape_str(a) + " and B " + shape_str(b) + " should have two dims");
  if (c.has(7) != c.has(8)) return c.fail("y_scale and y_zero_point are given together");
  if (c.node.attr_int("transA", 0) != 0) std::swap(a[0], a[1]);
  if (c.node.attr_int("transB", 0) != 0) std::swap(b[0], b[1]);
  Dim k;
  SITU_RETURN_IF_ERROR(require_equal(c, "inner dims of A " + shape_str(a) + " and B " + shape_str(b), a[1], b[0], &k));
  return emit(c, 0, c.has(8) ? c.input(8).type : DType::kF32, {a[0], b[1]});
}

// A, A_scale, A_zero_point?, B, B_scale, B_zero_point?, C_scale, C_zero_point? -> C.
Status infer_qlinear_binary(InferContext& c) {
  SITU_RETURN_IF_ERROR(at_most_inputs(c, 8));
  SITU_RETURN_IF_ERROR(need_all(c, {0, 1, 3, 4, 6}));
  Shape y;
  SITU_RETURN_IF_ERROR(broadcast(c, c.input(0).shape, c.input(3).shape, &y));
  return emit(c, 0, c.input(0).type, std::move(y));
}

// X, X_scale, X_zero_point?, Y_scale, Y_zero_point? -> Y.
Status infer_qlinear_unary(InferContext& c) {
  SITU_RETURN_IF_ERROR(at_most_inputs(c, 5));
  SITU_RETURN_IF_ERROR(need_all(c, {0, 1, 3}));
  return emit(c, 0, c.input(0).type, c.input(0).shape);
}

// Y_scale, Y_zero_point, and X, X_scale, X_zero_point of each part -> Y.
Status infer_qlinear_concat(InferContext& c) {
  if (c.in.size() < 5 || (c.in.size() - 2) % 3 != 0)
    return c.fail("has " + std::to_string(c.in.size()) + " inputs, should have 2 and 3 for each part");
  for (size_t i = 0; i < c.in.size(); ++i) SITU_RETURN_IF_ERROR(c.need(i, "operand"));
  Shape y = c.input(2).shape;
  const Result<int> axis = normalize_axis(c.node.attr_int("axis", 0), static_cast<int>(y.size()));
  if (!axis.is_ok()) return axis.status().with_context(c.node.label() + ": axis");
  for (size_t i = 5; i < c.in.size(); i += 3) {
    const Shape& x = c.input(i).shape;
    if (x.size() != y.size()) return c.fail("parts " + shape_str(y) + " and " + shape_str(x) + " differ in rank");
    y[static_cast<size_t>(*axis)] = y[static_cast<size_t>(*axis)] + x[static_cast<size_t>(*axis)];
  }
  return emit(c, 0, c.input(1).type, std::move(y));
}

// condition, X, x_scale, x_zero_point, Y, y_scale, y_zero_point, z_scale, z_zero_point -> Z.
Status infer_qlinear_where(InferContext& c) {
  SITU_RETURN_IF_ERROR(at_most_inputs(c, 9));
  SITU_RETURN_IF_ERROR(need_all(c, {0, 1, 2, 3, 4, 5, 6, 7, 8}));
  Shape both, y;
  SITU_RETURN_IF_ERROR(broadcast(c, c.input(1).shape, c.input(4).shape, &both));
  SITU_RETURN_IF_ERROR(broadcast(c, both, c.input(0).shape, &y));
  return emit(c, 0, c.input(8).type, std::move(y));
}

}  // namespace situ
