// Matrix products: MatMul, Gemm, com.microsoft.FusedMatMul and situ.Project. Transposes of operands become
// strides, so one kernel serves them all.
#include "kernels/params.h"
#include "ops/infer.h"
#include "ops/ops.h"

namespace situ {
namespace {

constexpr uint64_t kMatMulTypes =
    kRealTypes | type_bit(DType::kI32) | type_bit(DType::kI64) | type_bit(DType::kU32) | type_bit(DType::kU64);

// [.., M, K] x [.., K, N] with NumPy's rules for vectors; the flags swap the last two dims of a matrix.
Status infer_product(InferContext& c, bool transpose_a, bool transpose_b) {
  SITU_RETURN_IF_ERROR(c.need(0, "A"));
  SITU_RETURN_IF_ERROR(c.need(1, "B"));
  SITU_RETURN_IF_ERROR(need_same_kind(c, 0, 1));
  Shape a = c.input(0).shape, b = c.input(1).shape;
  if (a.empty() || b.empty())
    return c.fail("A and B should have at least one dim: " + shape_str(a) + ", " + shape_str(b));
  const bool rows = a.size() > 1, columns = b.size() > 1;
  if (!rows) a.insert(a.begin(), Dim(1));
  if (!columns) b.push_back(Dim(1));
  if (rows && transpose_a) std::swap(a[a.size() - 1], a[a.size() - 2]);
  if (columns && transpose_b) std::swap(b[b.size() - 1], b[b.size() - 2]);
  Dim k;
  SITU_RETURN_IF_ERROR(
      require_equal(c, "inner dims of A " + shape_str(c.input(0).shape) + " and B " + shape_str(c.input(1).shape),
                    a.back(), b[b.size() - 2], &k));
  Shape result;
  SITU_RETURN_IF_ERROR(broadcast(c, Shape(a.begin(), a.end() - 2), Shape(b.begin(), b.end() - 2), &result));
  if (rows) result.push_back(a[a.size() - 2]);
  if (columns) result.push_back(b.back());
  return emit(c, 0, c.input(0).type, std::move(result));
}

// `small` may be broadcast to `full` without making it larger.
Status need_broadcast_to(InferContext& c, const std::string& what, const Shape& small, const Shape& full) {
  if (small.size() > full.size())
    return c.fail(what + " " + shape_str(small) + " has more dims than " + shape_str(full));
  for (size_t i = 0; i < small.size(); ++i) {
    const Dim &d = small[small.size() - 1 - i], &f = full[full.size() - 1 - i];
    Dim same;
    if (d == Dim(1)) continue;
    SITU_RETURN_IF_ERROR(require_equal(c, what + " " + shape_str(small) + " for " + shape_str(full), d, f, &same));
  }
  return Status::ok();
}

Status prepare_product(const PrepareContext& c, const MatMulParams& params, Prepared* out) {
  SITU_RETURN_IF_ERROR(need_type(c, 0, kMatMulTypes));
  return use_kernel(out, &KernelTable::matmul, params);
}

}  // namespace

// y [.., M, N] = A [.., M, K] * B [.., K, N], batch dims broadcast.
Status infer_matmul(InferContext& c) {
  SITU_RETURN_IF_ERROR(at_most_inputs(c, 2));
  return infer_product(c, false, false);
}

Status prepare_matmul(const PrepareContext& c, Prepared* out) { return prepare_product(c, MatMulParams{}, out); }

// y [M, N] = alpha * A' * B' + beta * C, A' and B' transposed when transA, transB; C broadcast to y, optional.
Status infer_gemm(InferContext& c) {
  SITU_RETURN_IF_ERROR(c.need(0, "A"));
  SITU_RETURN_IF_ERROR(c.need(1, "B"));
  const Shape &a = c.input(0).shape, &b = c.input(1).shape;
  if (a.size() != 2 || b.size() != 2)
    return c.fail("A and B should have rank 2: " + shape_str(a) + ", " + shape_str(b));
  SITU_RETURN_IF_ERROR(infer_product(c, c.node.attr_int("transA", 0) != 0, c.node.attr_int("transB", 0) != 0));
  if (!c.has(2)) return Status::ok();
  SITU_RETURN_IF_ERROR(c.need(2, "C"));
  SITU_RETURN_IF_ERROR(need_same_kind(c, 0, 2));
  const Shape y = c.out[0].shape;
  return need_broadcast_to(c, "C", c.input(2).shape, y);
}

Status prepare_gemm(const PrepareContext& c, Prepared* out) {
  MatMulParams params;
  params.alpha = c.node.attr_float("alpha", 1);
  params.beta = c.node.attr_float("beta", 1);
  params.transpose_a = c.node.attr_int("transA", 0) != 0;
  params.transpose_b = c.node.attr_int("transB", 0) != 0;
  return prepare_product(c, params, out);
}

namespace {

// Zero points of operand `of`: one, a vector along its rows (axis -2) or columns (-1), or that with dims of 1 and batch
// dims, as its rank.
Status need_zeros(InferContext& c, size_t i, size_t of, const char* name, size_t axis_from_end) {
  if (!c.has(i)) return Status::ok();
  SITU_RETURN_IF_ERROR(c.need(i, name));
  SITU_RETURN_IF_ERROR(need_same_type(c, of, i));
  const Shape &zeros = c.input(i).shape, &x = c.input(of).shape;
  if (shape_count(zeros) == Dim(1)) return Status::ok();
  const std::string what = std::string(name) + " " + shape_str(zeros) + " for " + shape_str(x);
  Dim same;
  if (zeros.size() == 1) return require_equal(c, what, zeros[0], x[x.size() - axis_from_end], &same);
  if (zeros.size() != x.size()) return c.fail(what + ": the ranks differ");
  for (size_t d = 0; d < x.size(); ++d) {
    const bool one = d + 2 >= x.size() && d != x.size() - axis_from_end;
    if (!one && zeros[d] == Dim(1)) continue;
    SITU_RETURN_IF_ERROR(require_equal(c, what, zeros[d], one ? Dim(1) : x[d], &same));
  }
  return Status::ok();
}

}  // namespace

// y int32 [.., M, N] = (A [.., M, K] - a_zero_point) * (B [.., K, N] - b_zero_point): uint8 or int8, zero points of
// their types, 0 where absent: one, a row's ([M] or [.., M, 1]) and a column's ([N] or [.., 1, N]).
Status infer_matmul_integer(InferContext& c) {
  SITU_RETURN_IF_ERROR(at_most_inputs(c, 4));
  SITU_RETURN_IF_ERROR(c.need(0, "A"));
  SITU_RETURN_IF_ERROR(c.need(1, "B"));
  const Shape a = c.input(0).shape, b = c.input(1).shape;
  if (a.size() < 2 || b.size() < 2)
    return c.fail("A " + shape_str(a) + " and B " + shape_str(b) + " should have at least two dims");
  Dim k;
  SITU_RETURN_IF_ERROR(
      require_equal(c, "inner dims of A " + shape_str(a) + " and B " + shape_str(b), a.back(), b[b.size() - 2], &k));
  SITU_RETURN_IF_ERROR(need_zeros(c, 2, 0, "a_zero_point", 2));
  SITU_RETURN_IF_ERROR(need_zeros(c, 3, 1, "b_zero_point", 1));
  Shape y;
  SITU_RETURN_IF_ERROR(broadcast(c, Shape(a.begin(), a.end() - 2), Shape(b.begin(), b.end() - 2), &y));
  y.push_back(a[a.size() - 2]);
  y.push_back(b.back());
  return emit(c, 0, DType::kI32, std::move(y));
}

Status prepare_matmul_integer(const PrepareContext& c, Prepared* out) {
  SITU_RETURN_IF_ERROR(need_type(c, 0, kByteTypes));
  SITU_RETURN_IF_ERROR(need_type(c, 1, kByteTypes));
  *out = {&KernelTable::matmul_integer, nullptr};
  return Status::ok();
}

// com.microsoft.FusedMatMul: y = alpha * A' * B'.
Status infer_fused_matmul(InferContext& c) {
  SITU_RETURN_IF_ERROR(at_most_inputs(c, 2));
  for (const char* key : {"transBatchA", "transBatchB"})
    if (c.node.attr_int(key, 0) != 0) return c.fail(std::string(key) + " 1 is not supported");
  return infer_product(c, c.node.attr_int("transA", 0) != 0, c.node.attr_int("transB", 0) != 0);
}

Status prepare_fused_matmul(const PrepareContext& c, Prepared* out) {
  MatMulParams params;
  params.alpha = c.node.attr_float("alpha", 1);
  params.transpose_a = c.node.attr_int("transA", 0) != 0;
  params.transpose_b = c.node.attr_int("transB", 0) != 0;
  return prepare_product(c, params, out);
}

// situ.Project: x [.., K], w [K, N1, .., Nr] (any strides), bias? -> y [.., N1, .., Nr] = x * w + bias: a linear
// layer whose result is split into heads, so that each can be written where it is read.
Status infer_project(InferContext& c) {
  SITU_RETURN_IF_ERROR(c.need(0, "x"));
  SITU_RETURN_IF_ERROR(c.need(1, "w"));
  SITU_RETURN_IF_ERROR(need_same_kind(c, 0, 1));
  const Shape &x = c.input(0).shape, &w = c.input(1).shape;
  if (x.empty() || w.size() < 2) return c.fail("x " + shape_str(x) + " or w " + shape_str(w) + " has too few dims");
  Dim k;
  SITU_RETURN_IF_ERROR(
      require_equal(c, "inner dims of x " + shape_str(x) + " and w " + shape_str(w), x.back(), w[0], &k));
  Shape y(x.begin(), x.end() - 1);
  y.insert(y.end(), w.begin() + 1, w.end());
  SITU_RETURN_IF_ERROR(emit(c, 0, c.input(0).type, y));
  if (!c.has(2)) return Status::ok();
  SITU_RETURN_IF_ERROR(c.need(2, "bias"));
  SITU_RETURN_IF_ERROR(need_same_kind(c, 0, 2));
  return need_broadcast_to(c, "bias", c.input(2).shape, y);
}

Status prepare_project(const PrepareContext& c, Prepared* out) {
  MatMulParams params;
  params.project = true;
  return prepare_product(c, params, out);
}

namespace {

// Longer rows do not fit a thread's scratch (kernels/dense_matmul.cc).
constexpr int64_t kMaxDenseDepth = 65536;

}  // namespace

// situ.DenseMatMul: y [.., N] = x [.., K] w + bias: w 1-D floats in panels (kernels/dense_matmul.cc), bias? [N].
Status infer_dense_matmul(InferContext& c) {
  SITU_RETURN_IF_ERROR(c.need(0, "x"));
  SITU_RETURN_IF_ERROR(c.need(1, "w"));
  const DenseMatMulParams p{c.node.attr_int("K", 0), c.node.attr_int("N", 0)};
  const Shape& x = c.input(0).shape;
  if (x.size() < 2) return c.fail("x " + shape_str(x) + " should be [.., rows, K]");
  if (p.k < 1 || p.k > kMaxDenseDepth || p.n < 1)
    return c.fail("K is " + std::to_string(p.k) + " and N " + std::to_string(p.n));
  Dim k;
  SITU_RETURN_IF_ERROR(require_equal(c, "last dim of x " + shape_str(x) + " and K", x.back(), Dim(p.k), &k));
  const Shape packed{Dim(p.packed_count())};
  if (c.input(1).shape != packed) return c.fail("w " + shape_str(c.input(1).shape) + " should be " + shape_str(packed));
  if (c.has(2) && c.input(2).shape != Shape{Dim(p.n)})
    return c.fail("bias " + shape_str(c.input(2).shape) + " should be [" + std::to_string(p.n) + "]");
  Shape y = x;
  y.back() = Dim(p.n);
  return emit(c, 0, c.input(0).type, std::move(y));
}

Status prepare_dense_matmul(const PrepareContext& c, Prepared* out) {
  constexpr uint64_t kTypes = type_bit(DType::kF32) | type_bit(DType::kF16) | type_bit(DType::kBF16);
  for (size_t i = 0; i < 3; ++i)
    if (c.has(i)) SITU_RETURN_IF_ERROR(need_type(c, i, kTypes));
  return use_kernel(out, &KernelTable::dense_matmul,
                    DenseMatMulParams{c.node.attr_int("K", 0), c.node.attr_int("N", 0)});
}

}  // namespace situ
