// Activations that are rounded to bytes as they come, and their products: DynamicQuantizeLinear, and what
// passes/lower/fuse_integer.cc makes of it and MatMulInteger: situ.RoundRows and situ.IntegerMatMul.
#include "kernels/integer_layout.h"
#include "ops/infer.h"
#include "ops/ops.h"

namespace situ {

// x of floats -> y uint8 like x, y_scale float [], y_zero_point uint8 []: the range of all of x, 0 included, in 255
// steps (kernels/dynamic_range.h).
Status infer_dynamic_quantize(InferContext& c) {
  SITU_RETURN_IF_ERROR(at_most_inputs(c, 1));
  SITU_RETURN_IF_ERROR(c.need(0, "x"));
  SITU_RETURN_IF_ERROR(emit(c, 0, DType::kU8, c.input(0).shape));
  SITU_RETURN_IF_ERROR(emit(c, 1, DType::kF32, {}));
  return emit(c, 2, DType::kU8, {});
}

Status prepare_dynamic_quantize(const PrepareContext& c, Prepared* out) {
  SITU_RETURN_IF_ERROR(need_type(c, 0, type_bit(DType::kF32)));
  *out = {&KernelTable::dynamic_quantize_linear, nullptr};
  return Status::ok();
}

namespace {

// A row of floats must fit a thread's scratch (kernels/round_rows.cc), and sums of bytes int32.
constexpr int64_t kMaxIntegerDepth = 65536;
constexpr uint64_t kWritten = type_bit(DType::kF32) | type_bit(DType::kF16) | type_bit(DType::kBF16);

Status need_one_or(InferContext& c, size_t i, const char* name, int64_t n) {
  if (!c.has(i)) return Status::ok();
  SITU_RETURN_IF_ERROR(c.need(i, name));
  const Dim count = shape_count(c.input(i).shape);
  if (count == Dim(1) || c.input(i).shape == Shape{Dim(n)}) return Status::ok();
  return c.fail(std::string(name) + " " + shape_str(c.input(i).shape) + " should be one, or [" + std::to_string(n) +
                "]");
}

}  // namespace

// situ.RoundRows: x [.., rows, K] of floats -> y uint8 [.., rows, row_bytes] (kernels/integer_layout.h). All of x has
// one range: that of DynamicQuantizeLinear. Where a step has several sequences the kernel is called for each.
Status infer_round_rows(InferContext& c) {
  SITU_RETURN_IF_ERROR(c.need(0, "x"));
  Shape y = c.input(0).shape;
  if (y.size() < 2 || !y.back().is_const() || y.back().value() < 1 || y.back().value() > kMaxIntegerDepth)
    return c.fail("x " + shape_str(y) + " should be [.., rows, K], K at most " + std::to_string(kMaxIntegerDepth));
  y.back() = Dim(IntegerLayout{y.back().value(), 0}.row_bytes());
  return emit(c, 0, DType::kU8, std::move(y));
}

Status prepare_round_rows(const PrepareContext& c, Prepared* out) {
  SITU_RETURN_IF_ERROR(need_type(c, 0, type_bit(DType::kF32)));
  *out = {&KernelTable::round_rows, nullptr};
  return Status::ok();
}

// situ.IntegerMatMul (kernels/integer_layout.h): rows of situ.RoundRows [.., row_bytes], w int8 or uint8 [K, N] or,
// behind pack_integer, uint8 [bytes of the layout], w_scale [N] or one, residual? like y, w_zero? [N] or one, bias? [N]
// -> y [.., N] of floats.
Status infer_integer_matmul(InferContext& c) {
  SITU_RETURN_IF_ERROR(at_most_inputs(c, 6));
  SITU_RETURN_IF_ERROR(c.need(0, "rows"));
  SITU_RETURN_IF_ERROR(c.need(1, "w"));
  SITU_RETURN_IF_ERROR(c.need(2, "w_scale"));
  const IntegerLayout layout{c.node.attr_int("K", 0), c.node.attr_int("N", 0)};
  constexpr int64_t kMostColumns = int64_t{1} << 31;
  if (layout.k < 1 || layout.k > kMaxIntegerDepth || layout.n < 1 || layout.n > kMostColumns)
    return c.fail("K is " + std::to_string(layout.k) + " and N " + std::to_string(layout.n));
  Shape y = c.input(0).shape;
  if (y.size() < 2 || y.back() != Dim(layout.row_bytes()))
    return c.fail("rows " + shape_str(y) + " should be [.., " + std::to_string(layout.row_bytes()) + "]");
  const Shape packed{Dim(layout.bytes())}, plain{Dim(layout.k), Dim(layout.n)};
  if (c.input(1).shape != packed && c.input(1).shape != plain)
    return c.fail("w " + shape_str(c.input(1).shape) + " should be " + shape_str(plain) + " or " + shape_str(packed));
  SITU_RETURN_IF_ERROR(need_one_or(c, 2, "w_scale", layout.n));
  SITU_RETURN_IF_ERROR(need_one_or(c, 4, "w_zero", layout.n));
  if (c.has(5) && c.input(5).shape != Shape{Dim(layout.n)})
    return c.fail("bias " + shape_str(c.input(5).shape) + " should be [" + std::to_string(layout.n) + "]");
  y.back() = Dim(layout.n);
  if (c.has(3) && c.input(3).shape != y)
    return c.fail("residual " + shape_str(c.input(3).shape) + " should be " + shape_str(y));
  return emit(c, 0, written_type(c.node, DType::kF32), std::move(y));
}

Status prepare_integer_matmul(const PrepareContext& c, Prepared* out) {
  for (const size_t i : {2, 3, 5})
    if (c.has(i)) SITU_RETURN_IF_ERROR(need_type(c, i, kWritten));
  SITU_RETURN_IF_ERROR(need_type(c, 0, type_bit(DType::kU8)));
  SITU_RETURN_IF_ERROR(need_type(c, 1, type_bit(DType::kU8)));
  if (c.has(4)) SITU_RETURN_IF_ERROR(need_type(c, 4, kByteTypes));
  const IntegerMatMulParams p{{c.node.attr_int("K", 0), c.node.attr_int("N", 0)},
                              c.node.attr_int("signed_weights", 0) != 0,
                              c.node.attr_int("gelu", 0) != 0};
  if (c.in[1]->shape.size() != 1) return c.fail("the weights are not packed");
  return use_kernel(out, &KernelTable::integer_matmul, p);
}

}  // namespace situ
