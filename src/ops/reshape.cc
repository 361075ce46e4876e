// Other dims over the same elements in the same order: Reshape, Flatten, Squeeze, Unsqueeze, Identity,
// Dropout. All are views where the strides of the source allow it.
#include <algorithm>

#include "ops/infer.h"
#include "ops/ops.h"

namespace situ {
namespace {

// A run of source dims that continue each other: `extent` elements, `stride` apart.
struct Block {
  Dim extent, stride;
};

std::vector<Block> merged_blocks(const SymView& source) {
  std::vector<Block> blocks;
  for (size_t i = 0; i < source.dims.size(); ++i) {
    if (source.dims[i] == Dim(1)) continue;
    if (!blocks.empty() && blocks.back().stride == source.strides[i] * source.dims[i]) {
      blocks.back() = {blocks.back().extent * source.dims[i], source.strides[i]};
    } else {
      blocks.push_back({source.dims[i], source.strides[i]});
    }
  }
  return blocks;
}

}  // namespace

bool reshape_view(const SymView& source, const Shape& dims, SymView* result) {
  result->offset = source.offset;
  result->dims = dims;
  result->strides.assign(dims.size(), Dim(1));
  const auto is_zero = [](const Dim& d) { return d == Dim(0); };
  if (std::any_of(dims.begin(), dims.end(), is_zero)) return true;
  const std::vector<Block> blocks = merged_blocks(source);
  size_t at = 0;
  for (const Block& block : blocks) {
    // The new dims whose product is this block.
    const size_t first = at;
    Dim product = 1;
    while (at < dims.size() && (at == first || product != block.extent)) product = product * dims[at++];
    if (product != block.extent) return false;
    Dim stride = block.stride;
    for (size_t i = at; i-- > first;) {
      result->strides[i] = stride;
      stride = stride * dims[i];
    }
  }
  for (; at < dims.size(); ++at)
    if (dims[at] != Dim(1)) return false;
  return true;
}

namespace {

// Takes dims that stand on both sides out of both: what is left may divide.
void cancel_common(Shape* a, Shape* b) {
  for (size_t i = 0; i < a->size();) {
    const auto it = std::find(b->begin(), b->end(), (*a)[i]);
    if (it == b->end()) {
      ++i;
      continue;
    }
    b->erase(it);
    a->erase(a->begin() + i);
  }
}

// The extent that -1 stands for: elements of `from` over elements of `others`.
Status infer_missing_dim(InferContext& c, Shape from, Shape others, Dim* result) {
  const std::string text = shape_str(from) + " does not divide by " + shape_str(others);
  cancel_common(&from, &others);
  const Dim count = shape_count(from), rest = shape_count(others);
  if (rest == Dim(0)) return c.fail("-1 beside an extent of 0 in " + shape_str(others));
  if (const auto exact = dim_exact_div(count, rest)) {
    *result = *exact;
    return Status::ok();
  }
  if (count.is_const() && rest.is_const()) return c.fail(text);
  const Dim quotient = dim_div(count, rest);
  if (c.assumptions == nullptr) return c.fail(text);
  c.assumptions->push_back(
      {quotient * rest, count, true, c.node.label() + ": " + shape_str(from) + " divides by " + rest.str()});
  *result = quotient;
  return Status::ok();
}

// Counts of both shapes agree: proven, assumed, or an error.
Status require_same_count(InferContext& c, const Shape& from, const Shape& to) {
  Shape a = from, b = to;
  cancel_common(&a, &b);
  Dim count;
  return require_equal(c, "elements of " + shape_str(from) + " as " + shape_str(to), shape_count(a), shape_count(b),
                       &count);
}

template <typename Context>
std::optional<std::vector<int64_t>> axes_operand(const Context& c) {
  return operand_i64(c, 1);
}

}  // namespace

// data, shape [r] -> shape's elements; 0 copies the dim (unless allowzero), one -1 is inferred. Below
// opset 5 the shape is an attribute.
Status infer_reshape(InferContext& c) {
  SITU_RETURN_IF_ERROR(c.need(0, "data"));
  std::vector<Dim> target;
  if (c.has(1)) {
    SITU_RETURN_IF_ERROR(need_content(c, 1, "shape", &target));
  } else {
    for (int64_t d : c.node.attr_ints("shape")) target.push_back(d);
  }
  const Shape& from = c.input(0).shape;
  const bool allow_zero = c.node.attr_int("allowzero", 0) != 0;
  int missing = -1;
  Shape others;
  for (size_t i = 0; i < target.size(); ++i) {
    if (target[i] == Dim(0) && !allow_zero) {
      if (i >= from.size())
        return c.fail("shape " + shape_str(target) + " copies dim " + std::to_string(i) + " of " + shape_str(from));
      target[i] = from[i];
    }
    if (target[i] == Dim(-1)) {
      if (missing >= 0) return c.fail("shape " + shape_str(target) + " has more than one -1");
      missing = static_cast<int>(i);
    } else {
      others.push_back(target[i]);
    }
  }
  if (missing >= 0)
    SITU_RETURN_IF_ERROR(infer_missing_dim(c, from, others, &target[missing]));
  else
    SITU_RETURN_IF_ERROR(require_same_count(c, from, target));
  return emit(c, 0, c.input(0).type, std::move(target));
}

// Serves every operator of this file: the new dims are the inferred output's.
bool view_reshape(ViewContext& c) {
  c.result.assign(1, SymView());
  return reshape_view(c.source, c.out[0]->shape, &c.result[0]);
}

// x [d..] -> [product of the dims before axis, product of the others].
Status infer_flatten(InferContext& c) {
  SITU_RETURN_IF_ERROR(c.need(0, "input"));
  const Shape& shape = c.input(0).shape;
  const int rank = static_cast<int>(shape.size());
  int64_t axis = c.node.attr_int("axis", 1);
  if (axis < -rank || axis > rank) return c.fail("axis " + std::to_string(axis) + " with input " + shape_str(shape));
  if (axis < 0) axis += rank;
  return emit(
      c, 0, c.input(0).type,
      {shape_count(Shape(shape.begin(), shape.begin() + axis)), shape_count(Shape(shape.begin() + axis, shape.end()))});
}

// x -> x without the axes given (attribute below opset 13), else without all dims of 1.
Status infer_squeeze(InferContext& c) {
  SITU_RETURN_IF_ERROR(c.need(0, "data"));
  const Shape& shape = c.input(0).shape;
  Axes axes;
  SITU_RETURN_IF_ERROR(axes_of(c.node, axes_operand(c), c.has(1), static_cast<int>(shape.size()), &axes));
  Shape result;
  for (size_t i = 0; i < shape.size(); ++i) {
    const bool listed = std::find(axes.list.begin(), axes.list.end(), static_cast<int>(i)) != axes.list.end();
    const bool all_ones = !axes.given && !c.has(1);
    if (listed) {
      Dim one;
      SITU_RETURN_IF_ERROR(
          require_equal(c, "axis " + std::to_string(i) + " of " + shape_str(shape), shape[i], Dim(1), &one));
    } else if (!all_ones) {
      result.push_back(shape[i]);
    } else if (!shape[i].is_const()) {
      return c.fail("without axes needs constant dims, has " + shape_str(shape));
    } else if (shape[i] != Dim(1)) {
      result.push_back(shape[i]);
    }
  }
  return emit(c, 0, c.input(0).type, std::move(result));
}

// x -> x with dims of 1 inserted so that they stand at the axes given (attribute below opset 13).
Status infer_unsqueeze(InferContext& c) {
  SITU_RETURN_IF_ERROR(c.need(0, "data"));
  const Shape& shape = c.input(0).shape;
  const auto operand = axes_operand(c);
  const size_t added = c.has(1) ? (operand ? operand->size() : 0) : c.node.attr_ints("axes").size();
  if (shape.size() + added > static_cast<size_t>(kMaxRank))
    return c.fail("output would have rank " + std::to_string(shape.size() + added));
  Axes axes;
  SITU_RETURN_IF_ERROR(axes_of(c.node, operand, c.has(1), static_cast<int>(shape.size() + added), &axes));
  std::sort(axes.list.begin(), axes.list.end());
  Shape result = shape;
  for (int axis : axes.list) result.insert(result.begin() + axis, Dim(1));
  return emit(c, 0, c.input(0).type, std::move(result));
}

Status infer_identity(InferContext& c) {
  SITU_RETURN_IF_ERROR(c.need(0, "input"));
  return emit(c, 0, c.input(0).type, c.input(0).shape);
}

bool view_identity(ViewContext& c) {
  c.result.assign(1, c.source);
  return true;
}

// At inference: y = x, mask = all true. A mask that is used is not a view and is refused there.
Status infer_dropout(InferContext& c) {
  SITU_RETURN_IF_ERROR(c.need(0, "data"));
  if (c.has(2)) {
    const auto training = c.content_i64(2);
    if (!training || training->size() != 1 || (*training)[0] != 0) return c.fail("training_mode is not false");
  }
  SITU_RETURN_IF_ERROR(emit(c, 0, c.input(0).type, c.input(0).shape));
  return emit(c, 1, DType::kBool, c.input(0).shape);
}

bool view_dropout(ViewContext& c) {
  if (c.node.has_output(1)) return false;
  return view_identity(c);
}

}  // namespace situ
