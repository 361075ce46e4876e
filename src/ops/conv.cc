// Conv: products of a kernel with what it sees of its operand, along one to three axes.
#include <array>

#include "kernels/params.h"
#include "ops/infer.h"
#include "ops/ops.h"

namespace situ {
namespace {

// For what one output sees, beside what the kernels keep in scratch.
constexpr int64_t kPatchBytes = kScratchBytes * 3 / 4;

// The attributes, with what auto_pad says of the padding. Extents of the axes must be known where it does.
struct Geometry {
  int axes = 0;
  int64_t groups = 1;
  std::array<int64_t, 3> strides{1, 1, 1}, dilations{1, 1, 1}, begin{}, end{};
  std::vector<int64_t> kernel;
};

std::string read_list(const Node& node, const char* name, size_t count, int64_t least, int64_t* to) {
  const std::vector<int64_t> list = node.attr_ints(name);
  if (list.empty()) return "";
  if (list.size() != count)
    return std::string(name) + " has " + std::to_string(list.size()) + " numbers, not " + std::to_string(count);
  for (size_t i = 0; i < count; ++i) {
    if (list[i] < least || list[i] > (int64_t{1} << 30)) return std::string(name) + " holds " + std::to_string(list[i]);
    to[i] = list[i];
  }
  return "";
}

// "": all is well. `x`, `w`: shapes.
std::string geometry_of(const Node& node, const Shape& x, const Shape& w, Geometry* g) {
  if (x.size() < 3 || x.size() > 5)
    return "x " + shape_str(x) + " has no, or more than 3, axes beside batch and channels";
  if (w.size() != x.size()) return "w " + shape_str(w) + " and x " + shape_str(x) + " differ in rank";
  g->axes = static_cast<int>(x.size()) - 2;
  const size_t axes = static_cast<size_t>(g->axes);
  for (size_t i = 0; i < w.size(); ++i)
    if (!w[i].is_const() || w[i].value() <= 0) return "w " + shape_str(w) + " is not of known extents";
  for (size_t a = 0; a < axes; ++a) g->kernel.push_back(w[2 + a].value());
  g->groups = node.attr_int("group", 1);
  if (g->groups < 1 || w[0].value() % g->groups != 0) return "group is " + std::to_string(g->groups);
  if (!x[1].is_const() || x[1].value() % g->groups != 0 || x[1].value() / g->groups != w[1].value())
    return "x has " + x[1].str() + " channels in " + std::to_string(g->groups) + " groups, w takes " + w[1].str();
  const std::vector<int64_t> kernel = node.attr_ints("kernel_shape");
  if (!kernel.empty() && kernel != g->kernel) return "kernel_shape is not that of w " + shape_str(w);
  for (const auto& [name, least, to] :
       {std::tuple{"strides", int64_t{1}, g->strides.data()}, {"dilations", int64_t{1}, g->dilations.data()}})
    if (std::string wrong = read_list(node, name, axes, least, to); !wrong.empty()) return wrong;
  const std::string pad = node.attr_string("auto_pad", "NOTSET");
  if (pad == "NOTSET") {
    int64_t pads[6] = {};
    if (std::string wrong = read_list(node, "pads", 2 * axes, 0, pads); !wrong.empty()) return wrong;
    for (size_t a = 0; a < axes; ++a) {
      g->begin[a] = pads[a];
      g->end[a] = pads[axes + a];
    }
  } else if (pad == "SAME_UPPER" || pad == "SAME_LOWER") {
    for (size_t a = 0; a < axes; ++a) {
      if (!x[2 + a].is_const())
        return "auto_pad is " + pad + " and the extents of x " + shape_str(x) + " are not known";
      const int64_t extent = x[2 + a].value(), out = (extent + g->strides[a] - 1) / g->strides[a],
                    seen = (g->kernel[a] - 1) * g->dilations[a] + 1,
                    all = std::max<int64_t>(0, (out - 1) * g->strides[a] + seen - extent);
      g->begin[a] = pad == "SAME_UPPER" ? all / 2 : all - all / 2;
      g->end[a] = all - g->begin[a];
    }
  } else if (pad != "VALID") {
    return "auto_pad is '" + pad + "'";
  }
  return "";
}

Status output_shape(InferContext& c, Shape* y) {
  const Shape &x = c.input(0).shape, &w = c.input(1).shape;
  Geometry g;
  if (const std::string wrong = geometry_of(c.node, x, w, &g); !wrong.empty()) return c.fail(wrong);
  *y = {x[0], w[0]};
  for (size_t a = 0; a < g.kernel.size(); ++a) {
    const Dim room = x[2 + a] + Dim(g.begin[a] + g.end[a] - g.dilations[a] * (g.kernel[a] - 1) - 1);
    if (room.upper_bound() < 0)
      return c.fail("axis " + std::to_string(2 + a) + " of x " + shape_str(x) + " is shorter than the kernel");
    y->push_back(dim_div(room, Dim(g.strides[a])) + Dim(1));
  }
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
