// Pooling, Resize, and norms by channel. All but the windows of AveragePool and MaxPool are written out by
// passes/expand/expand_pictures.cc.
#include "kernels/params.h"
#include "ops/infer.h"
#include "ops/ops.h"
#include "ops/window.h"

namespace situ {
namespace {

std::string pool_window(const Node& node, const Shape& x, Window* w) {
  if (x.size() < 3 || x.size() > 5)
    return "x " + shape_str(x) + " has no, or more than 3, axes beside batch and channels";
  const std::vector<int64_t> kernel = node.attr_ints("kernel_shape");
  if (kernel.size() + 2 != x.size()) return "kernel_shape has " + std::to_string(kernel.size()) + " numbers";
  int64_t taps = 1;
  constexpr int64_t kMostTaps = int64_t{1} << 20;
  for (const int64_t k : kernel)
    if (k < 1 || k > kMostTaps || (taps *= k) > kMostTaps) return "kernel_shape holds " + std::to_string(k);
  return window_of(node, x, kernel, w);
}

Status need_channels(InferContext& c, size_t i, const char* name, const Dim& channels) {
  SITU_RETURN_IF_ERROR(c.need(i, name));
  if (c.input(i).shape == Shape{channels}) return Status::ok();
  return c.fail(std::string(name) + " " + shape_str(c.input(i).shape) + " should be [" + channels.str() + "]");
}

}  // namespace

// x [N, C, D..] -> [N, C, O..]
Status infer_pool(InferContext& c) {
  SITU_RETURN_IF_ERROR(at_most_inputs(c, 1));
  SITU_RETURN_IF_ERROR(c.need(0, "X"));
  if (c.out.size() > 1) return c.fail("output Indices is not supported");
  if (c.node.attr_int("storage_order", 0) != 0) return c.fail("storage_order is not supported");
  const Shape& x = c.input(0).shape;
  Window w;
  if (const std::string wrong = pool_window(c.node, x, &w); !wrong.empty()) return c.fail(wrong);
  Shape y{x[0], x[1]};
  const bool up = c.node.attr_int("ceil_mode", 0) != 0;
  for (size_t a = 0; a < w.kernel.size(); ++a) {
    if (up && !x[2 + a].is_const()) return c.fail("ceil_mode, and the extents of X " + shape_str(x) + " are not known");
    y.push_back(w.outputs(a, x[2 + a], up));
  }
  return emit(c, 0, c.input(0).type, std::move(y));
}

Status prepare_pool(const PrepareContext& c, Prepared* out) {
  SITU_RETURN_IF_ERROR(need_type(c, 0, type_bit(DType::kF32)));
  Window w;
  if (const std::string wrong = pool_window(c.node, c.in[0]->shape, &w); !wrong.empty()) return c.fail(wrong);
  PoolParams p{
      w.axes, {1, 1, 1}, {}, {}, {}, {}, c.node.op == "AveragePool", c.node.attr_int("count_include_pad", 0) != 0};
  for (size_t a = 0; a < 3; ++a) {
    if (a < w.kernel.size()) p.kernel[a] = w.kernel[a];
    p.strides[a] = w.strides[a];
    p.dilations[a] = w.dilations[a];
    p.begin[a] = w.begin[a];
    p.end[a] = w.end[a];
  }
  return use_kernel(out, &KernelTable::pool, p);
}

// x [N, C, D..] -> [N, C, 1..]
Status infer_global_pool(InferContext& c) {
  SITU_RETURN_IF_ERROR(c.need(0, "X"));
  Shape y = c.input(0).shape;
  if (y.size() < 3) return c.fail("X " + shape_str(y) + " has fewer than 3 dims");
  for (size_t a = 2; a < y.size(); ++a) y[a] = Dim(1);
  return emit(c, 0, c.input(0).type, std::move(y));
}

// x [N, C, D..], scale, B, mean and variance [C]: (x - mean) / sqrt(variance + epsilon) * scale + B
Status infer_batch_norm(InferContext& c) {
  SITU_RETURN_IF_ERROR(c.need(0, "X"));
  const Shape& x = c.input(0).shape;
  if (x.size() < 2) return c.fail("X " + shape_str(x) + " has fewer than 2 dims");
  if (c.node.attr_int("training_mode", 0) != 0 || c.out.size() > 1) return c.fail("training_mode is not supported");
  for (const auto& [i, name] :
       {std::pair<size_t, const char*>{1, "scale"}, {2, "B"}, {3, "input_mean"}, {4, "input_var"}})
    SITU_RETURN_IF_ERROR(need_channels(c, i, name, x[1]));
  return emit(c, 0, c.input(0).type, x);
}

// x [N, C, D..], scale and bias [C], or [num_groups] before opset 21: mean and variance are of C / num_groups channels.
Status infer_group_norm(InferContext& c) {
  SITU_RETURN_IF_ERROR(c.need(0, "X"));
  const Shape& x = c.input(0).shape;
  const int64_t groups = c.node.attr_int("num_groups", 0);
  if (x.size() < 3 || !x[1].is_const() || groups < 1 || x[1].value() % groups != 0)
    return c.fail("X " + shape_str(x) + " is not divided into " + std::to_string(groups) + " groups of channels");
  const Dim rows = c.node.opset < 21 ? Dim(groups) : x[1];
  SITU_RETURN_IF_ERROR(need_channels(c, 1, "scale", rows));
  SITU_RETURN_IF_ERROR(need_channels(c, 2, "bias", rows));
  return emit(c, 0, c.input(0).type, x);
}

// x, roi?, scales [rank]? or sizes [rank]?, of the axes that attribute "axes" names, else of all -> floor(extent *
// scale) or sizes. Extents that change must be known.
Status infer_resize(InferContext& c) {
  SITU_RETURN_IF_ERROR(c.need(0, "X"));
  const Shape& x = c.input(0).shape;
  std::vector<int64_t> axes = c.node.attr_ints("axes");
  if (axes.empty())
    for (size_t a = 0; a < x.size(); ++a) axes.push_back(static_cast<int64_t>(a));
  if (c.node.attr_string("keep_aspect_ratio_policy", "stretch") != "stretch")
    return c.fail("keep_aspect_ratio_policy is not supported");
  Shape y = x;
  const bool by_size = c.has(3);
  std::vector<Dim> sizes;
  std::vector<double> scales;
  if (by_size) {
    SITU_RETURN_IF_ERROR(need_content(c, 3, "sizes", &sizes));
  } else {
    const Tensor* constant = c.has(2) && c.constants.size() > 2 ? c.constants[2] : nullptr;
    if (constant == nullptr || !constant->present()) return c.fail("scales are not known before the step");
    scales = constant->to_f64();
  }
  if ((by_size ? sizes.size() : scales.size()) != axes.size())
    return c.fail((by_size ? std::to_string(sizes.size()) + " sizes" : std::to_string(scales.size()) + " scales") +
                  " for " + std::to_string(axes.size()) + " axes");
  for (size_t i = 0; i < axes.size(); ++i) {
    const int64_t a = axes[i] < 0 ? axes[i] + static_cast<int64_t>(x.size()) : axes[i];
    if (a < 0 || a >= static_cast<int64_t>(x.size())) return c.fail("axes holds " + std::to_string(axes[i]));
    Dim& extent = y[static_cast<size_t>(a)];
    if (by_size ? sizes[i] == extent : scales[i] == 1) continue;
    const double made = by_size || !extent.is_const() ? 0 : static_cast<double>(extent.value()) * scales[i];
    if (!extent.is_const() || (by_size && !sizes[i].is_const()) || (!by_size && !(made >= 1 && made < 1e9)))
      return c.fail("axis " + std::to_string(a) + " of X " + shape_str(x) + " changes, and its extents are not known");
    extent = by_size ? sizes[i] : Dim(static_cast<int64_t>(made));
    if (extent.value() < 1) return c.fail("sizes hold " + extent.str());
  }
  return emit(c, 0, c.input(0).type, std::move(y));
}

}  // namespace situ
