// Conv: products of a kernel with what it sees of its operand, along one to three axes.
#include "kernels/params.h"
#include "ops/infer.h"
#include "ops/ops.h"
#include "ops/window.h"

namespace situ {
namespace {

// For what one output sees, beside what the kernels keep in scratch.
constexpr int64_t kPatchBytes = kScratchBytes * 3 / 4;

struct Geometry : Window {
  int64_t groups = 1;
};

// "": all is well. `x`, `w`: shapes.
std::string geometry_of(const Node& node, const Shape& x, const Shape& w, Geometry* g) {
  if (x.size() < 3 || x.size() > 5)
    return "x " + shape_str(x) + " has no, or more than 3, axes beside batch and channels";
  if (w.size() != x.size()) return "w " + shape_str(w) + " and x " + shape_str(x) + " differ in rank";
  for (size_t i = 0; i < w.size(); ++i)
    if (!w[i].is_const() || w[i].value() <= 0) return "w " + shape_str(w) + " is not of known extents";
  g->groups = node.attr_int("group", 1);
  if (g->groups < 1 || w[0].value() % g->groups != 0) return "group is " + std::to_string(g->groups);
  if (!x[1].is_const() || x[1].value() % g->groups != 0 || x[1].value() / g->groups != w[1].value())
    return "x has " + x[1].str() + " channels in " + std::to_string(g->groups) + " groups, w takes " + w[1].str();
  const std::vector<int64_t> kernel = node.attr_ints("kernel_shape");
  std::vector<int64_t> taps;
  for (size_t a = 2; a < w.size(); ++a) taps.push_back(w[a].value());
  if (!kernel.empty() && kernel != taps) return "kernel_shape is not that of w " + shape_str(w);
  return window_of(node, x, std::move(taps), g);
}

Status output_shape(InferContext& c, Shape* y) {
  const Shape &x = c.input(0).shape, &w = c.input(1).shape;
  Geometry g;
  if (const std::string wrong = geometry_of(c.node, x, w, &g); !wrong.empty()) return c.fail(wrong);
  *y = {x[0], w[0]};
  for (size_t a = 0; a < g.kernel.size(); ++a) y->push_back(g.outputs(a, x[2 + a], false));
  return Status::ok();
}

// Error: what one output sees does not fit a thread's scratch, four bytes for each number.
Status conv_params(const PrepareContext& c, ConvParams* p) {
  Geometry g;
  const Shape& w = c.in[1]->shape;
  if (const std::string wrong = geometry_of(c.node, c.in[0]->shape, w, &g); !wrong.empty()) return c.fail(wrong);
  int64_t depth = w[1].value();
  for (const int64_t k : g.kernel)
    if (__builtin_mul_overflow(depth, k, &depth) || depth * 4 > kPatchBytes)
      return c.fail("a kernel of w " + shape_str(w) + " does not fit " + std::to_string(kPatchBytes) + " bytes");
  *p = {g.axes, g.groups, {}, {}, {}};
  for (int a = 0; a < 3; ++a) {
    p->strides[a] = g.strides[static_cast<size_t>(a)];
    p->dilations[a] = g.dilations[static_cast<size_t>(a)];
    p->pads[a] = g.begin[static_cast<size_t>(a)];
  }
  return Status::ok();
}

}  // namespace

// x [N, G C, D..], w [M, C, K..], b [M] -> [N, M, (D + pads - dilation (K - 1) - 1) / stride + 1 ..]
Status infer_conv(InferContext& c) {
  SITU_RETURN_IF_ERROR(c.need(0, "X"));
  SITU_RETURN_IF_ERROR(c.need(1, "W"));
  SITU_RETURN_IF_ERROR(need_same_type(c, 0, 1));
  const Shape& w = c.input(1).shape;
  Shape y;
  SITU_RETURN_IF_ERROR(output_shape(c, &y));
  if (c.has(2)) {
    SITU_RETURN_IF_ERROR(need_same_type(c, 0, 2));
    if (c.input(2).shape.size() != 1 || c.input(2).shape[0] != w[0])
      return c.fail("B " + shape_str(c.input(2).shape) + " is no bias of w " + shape_str(w));
  }
  return emit(c, 0, c.input(0).type, std::move(y));
}

Status prepare_conv(const PrepareContext& c, Prepared* out) {
  SITU_RETURN_IF_ERROR(need_type(c, 0, type_bit(DType::kF32)));
  ConvParams p;
  SITU_RETURN_IF_ERROR(conv_params(c, &p));
  return use_kernel(out, &KernelTable::conv, p);
}

// The same of integers: x, w uint8 or int8, x_zero_point one, w_zero_point one or [M] -> int32.
Status infer_conv_integer(InferContext& c) {
  SITU_RETURN_IF_ERROR(at_most_inputs(c, 4));
  SITU_RETURN_IF_ERROR(c.need(0, "x"));
  SITU_RETURN_IF_ERROR(c.need(1, "w"));
  Shape y;
  SITU_RETURN_IF_ERROR(output_shape(c, &y));
  for (size_t i = 2; i < 4; ++i) {
    if (!c.has(i)) continue;
    SITU_RETURN_IF_ERROR(c.need(i, i == 2 ? "x_zero_point" : "w_zero_point"));
    SITU_RETURN_IF_ERROR(need_same_type(c, i - 2, i));
    const Shape& zeros = c.input(i).shape;
    if (shape_count(zeros) != Dim(1) && (i == 2 || zeros != Shape{c.input(1).shape[0]}))
      return c.fail("zero point " + shape_str(zeros) + " should be one" + (i == 3 ? ", or one for each row of w" : ""));
  }
  return emit(c, 0, DType::kI32, std::move(y));
}

Status prepare_conv_integer(const PrepareContext& c, Prepared* out) {
  constexpr uint64_t kBytes = type_bit(DType::kU8) | type_bit(DType::kI8);
  SITU_RETURN_IF_ERROR(need_type(c, 0, kBytes));
  SITU_RETURN_IF_ERROR(need_type(c, 1, kBytes));
  ConvParams p;
  SITU_RETURN_IF_ERROR(conv_params(c, &p));
  return use_kernel(out, &KernelTable::conv_integer, p);
}

// rows [1, C, T], x [1, C, S], the last rows of them, w [K, C], b? [C] -> [1, C, S]
Status infer_situ_causal_conv(InferContext& c) {
  for (const auto& [i, name, rank] : {std::tuple{size_t{0}, "rows", size_t{3}}, {1, "x", 3}, {2, "w", 2}}) {
    SITU_RETURN_IF_ERROR(c.need(i, name));
    if (c.input(i).shape.size() != rank)
      return c.fail(std::string(name) + " " + shape_str(c.input(i).shape) + " should have rank " +
                    std::to_string(rank));
  }
  const Shape &rows = c.input(0).shape, &x = c.input(1).shape, &w = c.input(2).shape;
  const bool bias = !c.has(3) || c.input(3).shape == Shape{x[1]};
  if (rows[0] != Dim(1) || x[0] != Dim(1) || rows[1] != x[1] || w[1] != x[1] || !bias)
    return c.fail("rows " + shape_str(rows) + ", x " + shape_str(x) + ", w " + shape_str(w) +
                  " and the bias are not of one sequence and the same channels");
  return emit(c, 0, c.input(1).type, x);
}

Status prepare_situ_causal_conv(const PrepareContext& c, Prepared* out) {
  for (size_t i = 0; i < 4; ++i)
    if (c.has(i)) SITU_RETURN_IF_ERROR(need_type(c, i, type_bit(DType::kF32)));
  *out = {&KernelTable::causal_conv, nullptr};
  return Status::ok();
}

}  // namespace situ
