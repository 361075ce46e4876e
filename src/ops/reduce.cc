// Reductions: ReduceSum ... over axes, ArgMax, ArgMin, Softmax, LogSoftmax; CumSum and TopK along an axis.
#include <algorithm>
#include <string_view>

#include "kernels/params.h"
#include "ops/infer.h"
#include "ops/ops.h"

namespace situ {
namespace {

struct ReduceOp {
  std::string_view name;
  ReduceKind kind;
};
const ReduceOp kReduceOps[] = {
    {"ReduceSum", ReduceKind::kSum},       {"ReduceMean", ReduceKind::kMean},
    {"ReduceMax", ReduceKind::kMax},       {"ReduceMin", ReduceKind::kMin},
    {"ReduceProd", ReduceKind::kProd},     {"ReduceL1", ReduceKind::kL1},
    {"ReduceL2", ReduceKind::kL2},         {"ReduceSumSquare", ReduceKind::kSumSquare},
    {"ReduceLogSum", ReduceKind::kLogSum}, {"ReduceLogSumExp", ReduceKind::kLogSumExp},
};

// Bit i: axis i is reduced. No axes: all of them, or none with noop_with_empty_axes.
template <typename Context>
Status reduced_axes(const Context& c, uint32_t* mask) {
  const int rank = static_cast<int>(c.in[0]->shape.size());
  const bool present = c.in.size() > 1 && c.in[1] != nullptr;
  Axes axes;
  SITU_RETURN_IF_ERROR(axes_of(c.node, operand_i64(c, 1), present, rank, &axes));
  *mask = 0;
  for (int axis : axes.list) *mask |= 1u << axis;
  if (!axes.given && c.node.attr_int("noop_with_empty_axes", 0) == 0) *mask = (1u << rank) - 1;
  return Status::ok();
}

Shape reduced_shape(const Shape& shape, uint32_t mask, bool keep_dims) {
  Shape result;
  for (size_t i = 0; i < shape.size(); ++i) {
    const bool reduced = (mask >> i & 1u) != 0;
    if (!reduced)
      result.push_back(shape[i]);
    else if (keep_dims)
      result.push_back(1);
  }
  return result;
}

}  // namespace

// x -> x with the axes reduced to 1 (keepdims) or gone.
Status infer_reduce(InferContext& c) {
  SITU_RETURN_IF_ERROR(c.need(0, "data"));
  uint32_t mask = 0;
  SITU_RETURN_IF_ERROR(reduced_axes(c, &mask));
  const bool keep_dims = c.node.attr_int("keepdims", 1) != 0;
  return emit(c, 0, c.input(0).type, reduced_shape(c.input(0).shape, mask, keep_dims));
}

Status prepare_reduce(const PrepareContext& c, Prepared* out) {
  const auto* found = std::find_if(std::begin(kReduceOps), std::end(kReduceOps),
                                   [&](const ReduceOp& op) { return c.node.op == op.name; });
  if (found == std::end(kReduceOps)) return c.fail("is not a reduction");
  const bool orders = found->kind == ReduceKind::kMax || found->kind == ReduceKind::kMin;
  SITU_RETURN_IF_ERROR(need_type(c, 0, orders ? kNumberTypes | kBoolType : kNumberTypes));
  ReduceParams p{found->kind, 0, c.node.attr_int("keepdims", 1) != 0};
  SITU_RETURN_IF_ERROR(reduced_axes(c, &p.axes));
  return use_kernel(out, &KernelTable::reduce, p);
}

// x -> int64 indices along `axis`.
Status infer_arg_reduce(InferContext& c) {
  SITU_RETURN_IF_ERROR(c.need(0, "data"));
  int axis = 0;
  SITU_RETURN_IF_ERROR(axis_of(c, 0, &axis));
  if (c.input(0).shape[axis] == Dim(0)) return c.fail("axis " + std::to_string(axis) + " is empty");
  const bool keep_dims = c.node.attr_int("keepdims", 1) != 0;
  return emit(c, 0, DType::kI64, reduced_shape(c.input(0).shape, 1u << axis, keep_dims));
}

Status prepare_arg_reduce(const PrepareContext& c, Prepared* out) {
  SITU_RETURN_IF_ERROR(need_type(c, 0, kNumberTypes));
  int axis = 0;
  SITU_RETURN_IF_ERROR(axis_of(c, 0, &axis));
  return use_kernel(out, &KernelTable::arg_reduce,
                    ArgReduceParams{axis, c.node.op == "ArgMax", c.node.attr_int("select_last_index", 0) != 0,
                                    c.node.attr_int("keepdims", 1) != 0});
}

// Softmax, LogSoftmax. Below opset 13 the axes from `axis` (default 1) on are one; then just `axis` (default -1).
Status infer_softmax(InferContext& c) {
  SITU_RETURN_IF_ERROR(c.need(0, "input"));
  const int rank = static_cast<int>(c.input(0).shape.size());
  const int64_t axis = c.node.attr_int("axis", c.node.opset < 13 ? 1 : -1);
  const bool flattens_nothing = c.node.opset < 13 && axis == rank;
  if (!flattens_nothing) {
    int normal = 0;
    SITU_RETURN_IF_ERROR(axis_of(c, axis, &normal));
  }
  return emit(c, 0, c.input(0).type, c.input(0).shape);
}

Status prepare_softmax(const PrepareContext& c, Prepared* out) {
  SITU_RETURN_IF_ERROR(need_type(c, 0, kRealTypes));
  SoftmaxParams p{0, c.node.opset < 13, c.node.op == "LogSoftmax"};
  const int64_t fallback = p.flattened ? 1 : -1;
  if (p.flattened && c.node.attr_int("axis", fallback) == static_cast<int64_t>(c.in[0]->shape.size())) {
    p.axis = static_cast<int>(c.in[0]->shape.size());
  } else {
    SITU_RETURN_IF_ERROR(axis_of(c, fallback, &p.axis));
  }
  return use_kernel(out, &KernelTable::softmax, p);
}

// x, axis (scalar) -> running sums, same shape.
Status infer_cumsum(InferContext& c) {
  SITU_RETURN_IF_ERROR(c.need(0, "x"));
  SITU_RETURN_IF_ERROR(c.need(1, "axis"));
  if (c.input(0).shape.empty()) return c.fail("x is a scalar");
  if (const auto axis = c.content_i64(1)) {
    if (axis->size() != 1) return c.fail("axis holds " + std::to_string(axis->size()) + " elements, not 1");
    Result<int> normal = normalize_axis((*axis)[0], static_cast<int>(c.input(0).shape.size()));
    if (!normal.is_ok()) return normal.status().with_context(c.node.label());
  }
  return emit(c, 0, c.input(0).type, c.input(0).shape);
}

Status prepare_cumsum(const PrepareContext& c, Prepared* out) {
  SITU_RETURN_IF_ERROR(need_type(c, 0, kNumberTypes));
  SITU_RETURN_IF_ERROR(need_type(c, 1, kIndexTypes));
  return use_kernel(out, &KernelTable::cumsum,
                    CumSumParams{c.node.attr_int("exclusive", 0) != 0, c.node.attr_int("reverse", 0) != 0});
}

// x [.., D, ..], k -> values and int64 indices [.., k, ..]. k is an attribute below opset 10.
Status infer_top_k(InferContext& c) {
  SITU_RETURN_IF_ERROR(c.need(0, "X"));
  int axis = 0;
  SITU_RETURN_IF_ERROR(axis_of(c, -1, &axis));
  std::vector<Dim> k = {Dim(c.node.attr_int("k", 0))};
  if (c.has(1)) SITU_RETURN_IF_ERROR(need_content(c, 1, "K", &k));
  if (k.size() != 1) return c.fail("K holds " + std::to_string(k.size()) + " elements, not 1");
  Shape shape = c.input(0).shape;
  if (!at_most(c, "K", k[0], shape[axis]))
    return c.fail("K " + k[0].str() + " is larger than axis " + std::to_string(axis) + " of " + shape_str(shape));
  shape[axis] = k[0];
  SITU_RETURN_IF_ERROR(emit(c, 0, c.input(0).type, shape));
  return emit(c, 1, DType::kI64, shape);
}

Status prepare_top_k(const PrepareContext& c, Prepared* out) {
  SITU_RETURN_IF_ERROR(need_type(c, 0, kNumberTypes));
  if (c.out.size() < 2 || c.out[0] == nullptr || c.out[1] == nullptr) return c.fail("needs both outputs");
  int axis = 0;
  SITU_RETURN_IF_ERROR(axis_of(c, -1, &axis));
  return use_kernel(out, &KernelTable::top_k,
                    TopKParams{axis, c.node.attr_int("largest", 1) != 0, c.node.attr_int("sorted", 1) != 0});
}

}  // namespace situ
