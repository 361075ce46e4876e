// Transpose: the same elements, axes in another order. Expand: dims of 1 repeated, a view with stride 0.
#include "ops/infer.h"
#include "ops/ops.h"

namespace situ {
namespace {

// Attribute perm, default reversed. Error: not a permutation of the axes.
Status permutation(const Node& node, size_t rank, std::vector<int>* perm) {
  const std::vector<int64_t> given = node.attr_ints("perm");
  perm->clear();
  if (given.empty()) {
    for (size_t i = rank; i-- > 0;) perm->push_back(static_cast<int>(i));
    return Status::ok();
  }
  std::vector<bool> seen(rank, false);
  for (int64_t axis : given) {
    Result<int> normal = normalize_axis(axis, static_cast<int>(rank));
    if (!normal.is_ok()) return normal.status().with_context(node.label() + ": perm");
    if (seen[*normal]) return Status::error(node.label() + ": perm names axis " + std::to_string(axis) + " twice");
    seen[*normal] = true;
    perm->push_back(*normal);
  }
  if (perm->size() != rank)
    return Status::error(node.label() + ": perm has " + std::to_string(perm->size()) + " axes, the input " +
                         std::to_string(rank));
  return Status::ok();
}

}  // namespace

Status infer_transpose(InferContext& c) {
  SITU_RETURN_IF_ERROR(c.need(0, "data"));
  std::vector<int> perm;
  SITU_RETURN_IF_ERROR(permutation(c.node, c.input(0).shape.size(), &perm));
  Shape shape;
  for (int axis : perm) shape.push_back(c.input(0).shape[axis]);
  return emit(c, 0, c.input(0).type, std::move(shape));
}

bool view_transpose(ViewContext& c) {
  std::vector<int> perm;
  if (!permutation(c.node, c.source.dims.size(), &perm).is_ok()) return false;
  SymView v;
  v.offset = c.source.offset;
  for (int axis : perm) {
    v.dims.push_back(c.source.dims[axis]);
    v.strides.push_back(c.source.strides[axis]);
  }
  c.result.assign(1, v);
  return true;
}

// x, shape [r] -> the broadcast of x and shape.
Status infer_expand(InferContext& c) {
  SITU_RETURN_IF_ERROR(c.need(0, "input"));
  std::vector<Dim> target;
  SITU_RETURN_IF_ERROR(need_content(c, 1, "shape", &target));
  Shape shape;
  SITU_RETURN_IF_ERROR(broadcast(c, c.input(0).shape, target, &shape));
  return emit(c, 0, c.input(0).type, std::move(shape));
}

bool view_expand(ViewContext& c) {
  SymView v;
  v.offset = c.source.offset;
  v.dims = c.out[0]->shape;
  const size_t added = v.dims.size() - c.source.dims.size();
  for (size_t i = 0; i < v.dims.size(); ++i) {
    const bool repeated = i < added || (c.source.dims[i - added] == Dim(1) && v.dims[i] != Dim(1));
    v.strides.push_back(repeated ? Dim(0) : c.source.strides[i - added]);
  }
  c.result.assign(1, v);
  return true;
}

}  // namespace situ
