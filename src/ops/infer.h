// Pieces that shape functions and prepare functions share.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ops/op.h"

namespace situ {

// -- shape functions

// Sets output i. Error: more than kMaxRank dims, a negative one, or more bytes than an int64 counts. Outputs that the
// node lacks are skipped.
Status emit(InferContext& c, size_t i, DType type, Shape shape);
// `a` where both are equal (or may be assumed to be); error names `what` and both.
Status require_equal(InferContext& c, const std::string& what, const Dim& a, const Dim& b, Dim* result);
// a <= b, proven or assumed. False: neither.
bool at_most(InferContext& c, const std::string& what, const Dim& a, const Dim& b);
// NumPy-style broadcast; assumes dims equal where symbols do not tell.
Status broadcast(InferContext& c, const Shape& a, const Shape& b, Shape* result);
// Elements of small integer operand i. Error: absent, or not known before the step.
Status need_content(InferContext& c, size_t i, const char* operand, std::vector<Dim>* result);
Status need_content_i64(InferContext& c, size_t i, const char* operand, std::vector<int64_t>* result);
Status need_same_type(InferContext& c, size_t i, size_t j);
// The same, but floats of any width do where the node allows for it (Node::mixed_floats).
Status need_same_kind(InferContext& c, size_t i, size_t j);

// Error: an operand beyond the first n, which the kernel would take for something else.
Status at_most_inputs(const InferContext& c, size_t n);

// -- what all three contexts know of operands

// Elements of an integer operand: its constant's, or the symbolic content.
std::optional<std::vector<Dim>> known_content(const ValueInfo* info, const Tensor* constant);
std::optional<std::vector<int64_t>> known_i64(const ValueInfo* info, const Tensor* constant);
template <typename Context>
std::optional<std::vector<int64_t>> operand_i64(const Context& c, size_t i) {
  if (i >= c.in.size() || c.in[i] == nullptr) return std::nullopt;
  return known_i64(c.in[i], i < c.constants.size() ? c.constants[i] : nullptr);
}
template <typename Context>
std::optional<std::vector<Dim>> operand_content(const Context& c, size_t i) {
  if (i >= c.in.size() || c.in[i] == nullptr) return std::nullopt;
  return known_content(c.in[i], i < c.constants.size() ? c.constants[i] : nullptr);
}

// Attribute "axis" of a node whose input 0 is ranked.
template <typename Context>
Status axis_of(const Context& c, int64_t fallback, int* axis) {
  Result<int> normal = normalize_axis(c.node.attr_int("axis", fallback), static_cast<int>(c.in[0]->shape.size()));
  if (!normal.is_ok()) return normal.status().with_context(c.node.label());
  *axis = *normal;
  return Status::ok();
}

// Axes from operand `operand` (newer opsets) or attribute "axes" (older ones), made non-negative and
// checked against `rank`, each at most once. Nothing: there are none, or the operand is empty.
struct Axes {
  bool given = false;
  std::vector<int> list;
};
Status axes_of(const Node& node, const std::optional<std::vector<int64_t>>& operand, bool operand_present, int rank,
               Axes* result);

// The type of output 0 of an internal operator that may round as it writes: attribute "to", else `type`.
inline DType written_type(const Node& node, DType type) {
  return static_cast<DType>(node.attr_int("to", static_cast<int64_t>(type)));
}

// -- prepare functions

// Sets of element types, one bit per DType.
constexpr uint64_t type_bit(DType t) { return uint64_t{1} << static_cast<int>(t); }
constexpr uint64_t kRealTypes =
    type_bit(DType::kF32) | type_bit(DType::kF64) | type_bit(DType::kF16) | type_bit(DType::kBF16);
constexpr uint64_t kSignedTypes =
    type_bit(DType::kI8) | type_bit(DType::kI16) | type_bit(DType::kI32) | type_bit(DType::kI64);
constexpr uint64_t kUnsignedTypes =
    type_bit(DType::kU8) | type_bit(DType::kU16) | type_bit(DType::kU32) | type_bit(DType::kU64);
constexpr uint64_t kIntegerTypes = kSignedTypes | kUnsignedTypes;
constexpr uint64_t kNumberTypes = kRealTypes | kIntegerTypes;
constexpr uint64_t kBoolType = type_bit(DType::kBool);
constexpr uint64_t kByteType = type_bit(DType::kU8), kByteTypes = kByteType | type_bit(DType::kI8);
constexpr uint64_t kIndexTypes = type_bit(DType::kI32) | type_bit(DType::kI64);

// Error: operand i has a type outside of `types`.
Status need_type(const PrepareContext& c, size_t i, uint64_t types);
// Error: operand i's elements are not whole bytes (string, int4 ...).
Status need_whole_bytes(const PrepareContext& c, size_t i);

template <typename Params>
Status use_kernel(Prepared* out, KernelFn KernelTable::* kernel, const Params& params) {
  out->kernel = kernel;
  out->params = std::make_shared<const Params>(params);
  return Status::ok();
}

}  // namespace situ
