#include "ops/infer.h"

#include <algorithm>

namespace situ {

Status emit(InferContext& c, size_t i, DType type, Shape shape) {
  if (i >= c.out.size()) return Status::ok();
  if (shape.size() > static_cast<size_t>(kMaxRank))
    return c.fail("output " + std::to_string(i) + " would have rank " + std::to_string(shape.size()) + ", at most " +
                  std::to_string(kMaxRank) + " is supported");
  int64_t bytes = 16;  // of the widest element; an extent of 0 does not excuse strides that overflow
  for (const Dim& d : shape) {
    if (!d.is_const()) continue;
    if (d.value() < 0)
      return c.fail("output " + std::to_string(i) + " would have the negative shape " + shape_str(shape));
    if (__builtin_mul_overflow(bytes, std::max<int64_t>(1, d.value()), &bytes))
      return c.fail("output " + std::to_string(i) + " would have the shape " + shape_str(shape) +
                    ", which is too large");
  }
  c.set(i, type, std::move(shape));
  return Status::ok();
}

bool at_most(InferContext& c, const std::string& what, const Dim& a, const Dim& b) {
  const Dim room = b - a;
  if (room.lower_bound() >= 0) return true;
  if (room.upper_bound() < 0 || c.assumptions == nullptr) return false;
  c.assumptions->push_back({a, b, false, c.node.label() + ": " + what + " " + a.str() + " within " + b.str()});
  return true;
}

Status at_most_inputs(const InferContext& c, size_t n) {
  for (size_t i = n; i < c.in.size(); ++i)
    if (c.has(i)) return c.fail("has an input " + std::to_string(i) + ", takes at most " + std::to_string(n));
  return Status::ok();
}

Status require_equal(InferContext& c, const std::string& what, const Dim& a, const Dim& b, Dim* result) {
  const Dim difference = a - b;
  const bool equal = a == b;
  const bool never = difference.lower_bound() > 0 || difference.upper_bound() < 0;
  if (!equal && never) return c.fail(what + ": " + a.str() + " and " + b.str() + " differ");
  if (!equal && c.assumptions == nullptr)
    return c.fail(what + ": cannot tell whether " + a.str() + " and " + b.str() + " are equal");
  if (!equal)
    c.assumptions->push_back({a, b, true, c.node.label() + ": " + what + " " + a.str() + " equal to " + b.str()});
  *result = b.is_const() ? b : Dim(a);  // may be one of the two
  return Status::ok();
}

Status broadcast(InferContext& c, const Shape& a, const Shape& b, Shape* result) {
  const size_t rank = std::max(a.size(), b.size());
  Shape shape(rank, Dim(1));
  for (size_t i = 0; i < rank; ++i) {
    const Dim x = i + a.size() < rank ? Dim(1) : a[i + a.size() - rank];
    const Dim y = i + b.size() < rank ? Dim(1) : b[i + b.size() - rank];
    if (x == Dim(1)) {
      shape[i] = y;
    } else if (y == Dim(1) || x == y) {
      shape[i] = x;
    } else {
      const std::string what = "broadcast of " + shape_str(a) + " and " + shape_str(b);
      SITU_RETURN_IF_ERROR(require_equal(c, what, x, y, &shape[i]));
    }
  }
  *result = std::move(shape);
  return Status::ok();
}

std::optional<std::vector<Dim>> known_content(const ValueInfo* info, const Tensor* constant) {
  if (info == nullptr) return std::nullopt;
  constexpr uint64_t kReadable = kIntegerTypes | kBoolType;
  if (constant != nullptr && constant->present() && constant->count() <= kMaxContent &&
      (type_bit(constant->type()) & kReadable) != 0) {
    std::vector<Dim> result;
    for (int64_t v : constant->to_i64()) result.push_back(v);
    return result;
  }
  if (info->content) return info->content;
  if (info->ranked && shape_count(info->shape) == Dim(0)) return std::vector<Dim>{};
  return std::nullopt;
}

std::optional<std::vector<int64_t>> known_i64(const ValueInfo* info, const Tensor* constant) {
  const std::optional<std::vector<Dim>> content = known_content(info, constant);
  if (!content) return std::nullopt;
  std::vector<int64_t> result;
  for (const Dim& d : *content) {
    if (!d.is_const()) return std::nullopt;
    result.push_back(d.value());
  }
  return result;
}

Status need_content(InferContext& c, size_t i, const char* operand, std::vector<Dim>* result) {
  SITU_RETURN_IF_ERROR(c.need(i, operand));
  std::optional<std::vector<Dim>> content = c.content(i);
  if (!content)
    return c.fail("input " + std::to_string(i) + " (" + operand + ") " + shape_str(c.input(i).shape) +
                  " is not known before the step runs");
  *result = std::move(*content);
  return Status::ok();
}

Status need_content_i64(InferContext& c, size_t i, const char* operand, std::vector<int64_t>* result) {
  std::vector<Dim> content;
  SITU_RETURN_IF_ERROR(need_content(c, i, operand, &content));
  for (const Dim& d : content)
    if (!d.is_const())
      return c.fail("input " + std::to_string(i) + " (" + operand + ") should be constant, holds " + d.str());
  *result = shape_values(content);
  return Status::ok();
}

Status need_same_type(InferContext& c, size_t i, size_t j) {
  const DType a = c.input(i).type, b = c.input(j).type;
  if (a == b) return Status::ok();
  return c.fail("inputs " + std::to_string(i) + " and " + std::to_string(j) + " have types " + dtype_name(a) + " and " +
                dtype_name(b));
}

Status need_same_kind(InferContext& c, size_t i, size_t j) {
  const bool floats = dtype_is_float(c.input(i).type) && dtype_is_float(c.input(j).type);
  return floats && c.node.mixed_floats ? Status::ok() : need_same_type(c, i, j);
}

Status axes_of(const Node& node, const std::optional<std::vector<int64_t>>& operand, bool operand_present, int rank,
               Axes* result) {
  if (operand_present && !operand) return Status::error(node.label() + ": axes are not known before the step runs");
  const std::vector<int64_t> given = operand_present ? *operand : node.attr_ints("axes");
  result->given = !given.empty();
  result->list.clear();
  for (int64_t axis : given) {
    Result<int> normal = normalize_axis(axis, rank);
    if (!normal.is_ok()) return normal.status().with_context(node.label());
    if (std::find(result->list.begin(), result->list.end(), *normal) != result->list.end())
      return Status::error(node.label() + ": axis " + std::to_string(axis) + " is given twice");
    result->list.push_back(*normal);
  }
  return Status::ok();
}

Status need_type(const PrepareContext& c, size_t i, uint64_t types) {
  if (!c.has(i)) return c.fail("input " + std::to_string(i) + " is missing");
  if ((type_bit(c.in[i]->type) & types) != 0) return Status::ok();
  return c.fail("input " + std::to_string(i) + " of type " + dtype_name(c.in[i]->type) + " is not supported");
}

Status need_whole_bytes(const PrepareContext& c, size_t i) {
  if (!c.has(i)) return c.fail("input " + std::to_string(i) + " is missing");
  if (dtype_bytes(c.in[i]->type) > 0) return Status::ok();
  return c.fail("input " + std::to_string(i) + " of type " + dtype_name(c.in[i]->type) + " is not supported");
}

}  // namespace situ
