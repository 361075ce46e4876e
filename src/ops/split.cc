// Split: consecutive parts of one axis, views. Concat: the inverse, its operands are slices of the output.
#include "kernels/params.h"
#include "ops/infer.h"
#include "ops/ops.h"

namespace situ {
namespace {

// Equal parts; with num_outputs (opset 18) the last one may be smaller.
Status equal_parts(InferContext& c, const Dim& extent, int64_t parts, std::vector<Dim>* sizes) {
  if (parts <= 0) return c.fail("splits into " + std::to_string(parts) + " parts");
  if (const auto part = dim_exact_div(extent, Dim(parts))) {
    sizes->assign(parts, *part);
    return Status::ok();
  }
  const bool uneven = c.node.attr("num_outputs") != nullptr && extent.is_const();
  const int64_t size = uneven ? (extent.value() + parts - 1) / parts : 0;
  if (!uneven || size * (parts - 1) > extent.value())
    return c.fail("cannot split " + extent.str() + " into " + std::to_string(parts) + " parts");
  sizes->assign(parts, Dim(size));
  sizes->back() = extent - Dim(size * (parts - 1));
  return Status::ok();
}

}  // namespace

// x [.., D, ..] -> [.., size i, ..]. Sizes: operand 1 (opset 13), attribute split, else equal parts.
Status infer_split(InferContext& c) {
  SITU_RETURN_IF_ERROR(c.need(0, "input"));
  int axis = 0;
  SITU_RETURN_IF_ERROR(axis_of(c, 0, &axis));
  Shape shape = c.input(0).shape;
  const Dim extent = shape[axis];
  std::vector<Dim> sizes;
  const int64_t outputs = static_cast<int64_t>(c.out.size());
  if (c.has(1)) {
    SITU_RETURN_IF_ERROR(need_content(c, 1, "split", &sizes));
  } else if (c.node.attr("split") != nullptr) {
    for (int64_t size : c.node.attr_ints("split")) sizes.push_back(size);
  } else {
    const int64_t parts = c.node.attr_int("num_outputs", outputs);
    if (parts != outputs)
      return c.fail("num_outputs is " + std::to_string(parts) + ", the node has " + std::to_string(outputs));
    SITU_RETURN_IF_ERROR(equal_parts(c, extent, parts, &sizes));
  }
  if (static_cast<int64_t>(sizes.size()) != outputs)
    return c.fail(std::to_string(sizes.size()) + " sizes for " + std::to_string(outputs) + " outputs");
  Dim sum = 0;
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (sizes[i].lower_bound() < 0)
      return c.fail("size " + sizes[i].str() + " of output " + std::to_string(i) + " is negative");
    sum = sum + sizes[i];
    shape[axis] = sizes[i];
    SITU_RETURN_IF_ERROR(emit(c, i, c.input(0).type, shape));
  }
  Dim total;
  return require_equal(c, "sizes and axis " + std::to_string(axis), sum, extent, &total);
}

bool view_split(ViewContext& c) {
  int axis = 0;
  if (!axis_of(c, 0, &axis).is_ok()) return false;
  Dim at = 0;
  c.result.clear();
  for (const ValueInfo* out : c.out) {
    if (out == nullptr || !out->ranked) return false;
    SymView v = c.source;
    v.offset = v.offset + at * v.strides[axis];
    v.dims = out->shape;
    at = at + out->shape[axis];
    c.result.push_back(v);
  }
  return true;
}

// x0 [.., D0, ..], x1 [.., D1, ..] .. -> [.., D0 + D1 + .., ..].
Status infer_concat(InferContext& c) {
  if (c.in.empty()) return c.fail("needs at least one input");
  for (size_t i = 0; i < c.in.size(); ++i) {
    SITU_RETURN_IF_ERROR(c.need(i, "inputs"));
    SITU_RETURN_IF_ERROR(need_same_type(c, 0, i));
  }
  Shape shape = c.input(0).shape;
  if (c.node.attr("axis") == nullptr) return c.fail("has no attribute axis");
  int axis = 0;
  SITU_RETURN_IF_ERROR(axis_of(c, 0, &axis));
  for (size_t i = 1; i < c.in.size(); ++i) {
    const Shape& other = c.input(i).shape;
    if (other.size() != shape.size())
      return c.fail("input " + std::to_string(i) + " " + shape_str(other) + " and input 0 " + shape_str(shape) +
                    " differ in rank");
    for (size_t d = 0; d < shape.size(); ++d) {
      if (static_cast<int>(d) == axis)
        shape[d] = shape[d] + other[d];
      else
        SITU_RETURN_IF_ERROR(require_equal(c, "dim " + std::to_string(d) + " of inputs 0 and " + std::to_string(i),
                                           shape[d], other[d], &shape[d]));
    }
  }
  return emit(c, 0, c.input(0).type, std::move(shape));
}

}  // namespace situ
