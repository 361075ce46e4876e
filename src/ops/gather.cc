// Gather, GatherElements, GatherND; ScatterElements (and its old name Scatter), ScatterND.
#include "kernels/params.h"
#include "ops/infer.h"
#include "ops/ops.h"

namespace situ {
namespace {

Status need_index_type(const InferContext& c, size_t i) {
  const DType t = c.input(i).type;
  if ((type_bit(t) & kIndexTypes) != 0) return Status::ok();
  return c.fail("indices are " + std::string(dtype_name(t)) + ", not int32 or int64");
}

Status scatter_kind(const Node& node, ScatterKind* kind) {
  const std::string reduction = node.attr_string("reduction", "none");
  const std::pair<const char*, ScatterKind> kinds[] = {{"none", ScatterKind::kNone},
                                                       {"add", ScatterKind::kAdd},
                                                       {"mul", ScatterKind::kMul},
                                                       {"max", ScatterKind::kMax},
                                                       {"min", ScatterKind::kMin}};
  for (const auto& [name, value] : kinds) {
    if (reduction != name) continue;
    *kind = value;
    return Status::ok();
  }
  return Status::error(node.label() + ": reduction '" + reduction + "' is not known");
}

// The tuple length of GatherND and ScatterND: the last extent of the indices, a constant.
Status tuple_length(InferContext& c, int64_t at_most_length, int64_t* length) {
  const Shape& indices = c.input(1).shape;
  if (indices.empty() || !indices.back().is_const() || indices.back().value() < 1 ||
      indices.back().value() > at_most_length)
    return c.fail("indices " + shape_str(indices) + ": the last extent should be between 1 and " +
                  std::to_string(at_most_length));
  *length = indices.back().value();
  return Status::ok();
}

}  // namespace

// data [p.., D, q..], indices [i..] -> [p.., i.., q..].
Status infer_gather(InferContext& c) {
  SITU_RETURN_IF_ERROR(c.need(0, "data"));
  SITU_RETURN_IF_ERROR(c.need(1, "indices"));
  SITU_RETURN_IF_ERROR(need_index_type(c, 1));
  int axis = 0;
  SITU_RETURN_IF_ERROR(axis_of(c, 0, &axis));
  const Shape& data = c.input(0).shape;
  Shape shape(data.begin(), data.begin() + axis);
  shape.insert(shape.end(), c.input(1).shape.begin(), c.input(1).shape.end());
  shape.insert(shape.end(), data.begin() + axis + 1, data.end());
  return emit(c, 0, c.input(0).type, std::move(shape));
}

Status prepare_gather(const PrepareContext& c, Prepared* out) {
  SITU_RETURN_IF_ERROR(need_whole_bytes(c, 0));
  SITU_RETURN_IF_ERROR(need_type(c, 1, kIndexTypes));
  int axis = 0;
  SITU_RETURN_IF_ERROR(axis_of(c, 0, &axis));
  return use_kernel(out, &KernelTable::gather, AxisParams{axis});
}

// One known index is a slice of extent 1 (or none, for a scalar index): a view of data.
bool view_gather(ViewContext& c) {
  const auto index = c.content(1);
  int axis = 0;
  if (!index || index->size() != 1 || c.in[1]->shape.size() > 1 || !axis_of(c, 0, &axis).is_ok()) return false;
  const Dim extent = c.source.dims[axis];
  Dim i = (*index)[0];
  if (i.upper_bound() < 0) i = i + extent;
  if (i.lower_bound() < 0 || (extent - Dim(1) - i).lower_bound() < 0) return false;
  SymView v = c.source;
  v.offset = v.offset + i * v.strides[axis];
  if (c.in[1]->shape.empty()) {
    v.dims.erase(v.dims.begin() + axis);
    v.strides.erase(v.strides.begin() + axis);
  } else {
    v.dims[axis] = 1;
  }
  c.result.assign(1, v);
  return true;
}

// data [any], indices [same rank] -> [indices' shape].
Status infer_gather_elements(InferContext& c) {
  SITU_RETURN_IF_ERROR(c.need(0, "data"));
  SITU_RETURN_IF_ERROR(c.need(1, "indices"));
  SITU_RETURN_IF_ERROR(need_index_type(c, 1));
  int axis = 0;
  SITU_RETURN_IF_ERROR(axis_of(c, 0, &axis));
  const Shape &data = c.input(0).shape, &indices = c.input(1).shape;
  if (data.size() != indices.size())
    return c.fail("indices " + shape_str(indices) + " and data " + shape_str(data) + " differ in rank");
  for (size_t i = 0; i < data.size(); ++i)
    if (static_cast<int>(i) != axis && !at_most(c, "indices", indices[i], data[i]))
      return c.fail("indices " + shape_str(indices) + " reach beyond data " + shape_str(data));
  return emit(c, 0, c.input(0).type, indices);
}

Status prepare_gather_elements(const PrepareContext& c, Prepared* out) {
  SITU_RETURN_IF_ERROR(need_whole_bytes(c, 0));
  SITU_RETURN_IF_ERROR(need_type(c, 1, kIndexTypes));
  int axis = 0;
  SITU_RETURN_IF_ERROR(axis_of(c, 0, &axis));
  return use_kernel(out, &KernelTable::gather_elements, AxisParams{axis});
}

// data [b.., d.., q..], indices [b.., i.., r] -> [b.., i.., q..], r = number of d.
Status infer_gather_nd(InferContext& c) {
  SITU_RETURN_IF_ERROR(c.need(0, "data"));
  SITU_RETURN_IF_ERROR(c.need(1, "indices"));
  SITU_RETURN_IF_ERROR(need_index_type(c, 1));
  const Shape &data = c.input(0).shape, &indices = c.input(1).shape;
  const int64_t batch = c.node.attr_int("batch_dims", 0);
  if (batch < 0 || batch >= static_cast<int64_t>(std::min(data.size(), indices.size())))
    return c.fail("batch_dims " + std::to_string(batch) + " with data " + shape_str(data) + " and indices " +
                  shape_str(indices));
  int64_t length = 0;
  SITU_RETURN_IF_ERROR(tuple_length(c, static_cast<int64_t>(data.size()) - batch, &length));
  Shape shape(indices.begin(), indices.end() - 1);
  for (int64_t i = 0; i < batch; ++i)
    SITU_RETURN_IF_ERROR(require_equal(c, "batch of data and indices", data[i], indices[i], &shape[i]));
  shape.insert(shape.end(), data.begin() + batch + length, data.end());
  return emit(c, 0, c.input(0).type, std::move(shape));
}

Status prepare_gather_nd(const PrepareContext& c, Prepared* out) {
  SITU_RETURN_IF_ERROR(need_whole_bytes(c, 0));
  SITU_RETURN_IF_ERROR(need_type(c, 1, kIndexTypes));
  return use_kernel(out, &KernelTable::gather_nd,
                    GatherNdParams{static_cast<int32_t>(c.node.attr_int("batch_dims", 0))});
}

// data [any], indices, updates [same rank] -> data's shape.
Status infer_scatter_elements(InferContext& c) {
  SITU_RETURN_IF_ERROR(c.need(0, "data"));
  SITU_RETURN_IF_ERROR(c.need(1, "indices"));
  SITU_RETURN_IF_ERROR(c.need(2, "updates"));
  SITU_RETURN_IF_ERROR(need_index_type(c, 1));
  SITU_RETURN_IF_ERROR(need_same_type(c, 0, 2));
  int axis = 0;
  SITU_RETURN_IF_ERROR(axis_of(c, 0, &axis));
  const Shape &data = c.input(0).shape, &indices = c.input(1).shape, &updates = c.input(2).shape;
  if (data.size() != indices.size() || data.size() != updates.size())
    return c.fail("data " + shape_str(data) + ", indices " + shape_str(indices) + " and updates " + shape_str(updates) +
                  " differ in rank");
  for (size_t i = 0; i < data.size(); ++i) {
    Dim extent;
    SITU_RETURN_IF_ERROR(require_equal(c, "indices and updates", indices[i], updates[i], &extent));
    if (static_cast<int>(i) != axis && !at_most(c, "indices", indices[i], data[i]))
      return c.fail("indices " + shape_str(indices) + " reach beyond data " + shape_str(data));
  }
  return emit(c, 0, c.input(0).type, data);
}

Status prepare_scatter_elements(const PrepareContext& c, Prepared* out) {
  SITU_RETURN_IF_ERROR(need_type(c, 1, kIndexTypes));
  ScatterParams p{};
  SITU_RETURN_IF_ERROR(axis_of(c, 0, &p.axis));
  SITU_RETURN_IF_ERROR(scatter_kind(c.node, &p.kind));
  SITU_RETURN_IF_ERROR(p.kind == ScatterKind::kNone ? need_whole_bytes(c, 0)
                                                    : need_type(c, 0, kNumberTypes | kBoolType));
  return use_kernel(out, &KernelTable::scatter_elements, p);
}

// data [d.., q..], indices [i.., r], updates [i.., q..] -> data's shape, r = number of d.
Status infer_scatter_nd(InferContext& c) {
  SITU_RETURN_IF_ERROR(c.need(0, "data"));
  SITU_RETURN_IF_ERROR(c.need(1, "indices"));
  SITU_RETURN_IF_ERROR(c.need(2, "updates"));
  SITU_RETURN_IF_ERROR(need_index_type(c, 1));
  SITU_RETURN_IF_ERROR(need_same_type(c, 0, 2));
  const Shape &data = c.input(0).shape, &indices = c.input(1).shape, &updates = c.input(2).shape;
  int64_t length = 0;
  SITU_RETURN_IF_ERROR(tuple_length(c, static_cast<int64_t>(data.size()), &length));
  Shape expected(indices.begin(), indices.end() - 1);
  expected.insert(expected.end(), data.begin() + length, data.end());
  if (expected.size() != updates.size())
    return c.fail("updates " + shape_str(updates) + " should be " + shape_str(expected));
  for (size_t i = 0; i < expected.size(); ++i) {
    Dim extent;
    SITU_RETURN_IF_ERROR(require_equal(c, "updates " + shape_str(updates) + " against " + shape_str(expected),
                                       updates[i], expected[i], &extent));
  }
  return emit(c, 0, c.input(0).type, data);
}

Status prepare_scatter_nd(const PrepareContext& c, Prepared* out) {
  SITU_RETURN_IF_ERROR(need_type(c, 1, kIndexTypes));
  ScatterParams p{};
  SITU_RETURN_IF_ERROR(scatter_kind(c.node, &p.kind));
  SITU_RETURN_IF_ERROR(p.kind == ScatterKind::kNone ? need_whole_bytes(c, 0)
                                                    : need_type(c, 0, kNumberTypes | kBoolType));
  return use_kernel(out, &KernelTable::scatter_nd, p);
}

// past_cache [B, .., N, ..], update [B, .., S, ..] with S on `axis`, write_indices? [B] -> present like the past: rows
// write_indices .. + S of it are the update's (circular: modulo N). passes/expand/expand_fused.cc writes it out.
Status infer_tensor_scatter(InferContext& c) {
  SITU_RETURN_IF_ERROR(c.need(0, "past_cache"));
  SITU_RETURN_IF_ERROR(c.need(1, "update"));
  SITU_RETURN_IF_ERROR(need_same_type(c, 0, 1));
  const Shape &past = c.input(0).shape, &update = c.input(1).shape;
  const Result<int> axis = normalize_axis(c.node.attr_int("axis", -2), static_cast<int>(past.size()));
  if (!axis.is_ok()) return axis.status().with_context(c.node.label());
  if (*axis == 0) return c.fail("axis 0 is the batch, rows are scattered along another one");
  if (past.size() != update.size())
    return c.fail("past_cache " + shape_str(past) + " and update " + shape_str(update) + " should have the same rank");
  for (size_t i = 0; i < past.size(); ++i) {
    Dim extent;
    if (static_cast<int>(i) == *axis) continue;
    SITU_RETURN_IF_ERROR(require_equal(c, "update " + shape_str(update) + " of past_cache " + shape_str(past),
                                       update[i], past[i], &extent));
  }
  const std::string mode = c.node.attr_string("mode", "linear");
  if (mode != "linear" && mode != "circular") return c.fail("mode '" + mode + "' is not linear or circular");
  if (c.has(2)) {
    SITU_RETURN_IF_ERROR(c.need(2, "write_indices"));
    if (c.input(2).shape.size() != 1)
      return c.fail("write_indices " + shape_str(c.input(2).shape) + " should be [batch]");
  }
  return emit(c, 0, c.input(0).type, past);
}

}  // namespace situ
