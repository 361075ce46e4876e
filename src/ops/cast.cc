// Cast, CastLike: the same elements in another type. Clip: elements held within bounds.
#include <limits>

#include "kernels/params.h"
#include "ops/infer.h"
#include "ops/ops.h"

namespace situ {
namespace {

// Packed and 8-bit floats too: all types with a fixed size but complex.
constexpr uint64_t kCastTypes = kNumberTypes | kBoolType | type_bit(DType::kF8E4M3FN) | type_bit(DType::kF8E4M3FNUZ) |
                                type_bit(DType::kF8E5M2) | type_bit(DType::kF8E5M2FNUZ) | type_bit(DType::kF8E8M0) |
                                type_bit(DType::kF4E2M1) | type_bit(DType::kU4) | type_bit(DType::kI4) |
                                type_bit(DType::kU2) | type_bit(DType::kI2);

}  // namespace

// x [any] -> [same] in the type of attribute "to".
Status infer_cast(InferContext& c) {
  SITU_RETURN_IF_ERROR(c.need(0, "input"));
  const int64_t to = c.node.attr_int("to", 0);
  if (to <= 0 || to > static_cast<int64_t>(DType::kI2))
    return c.fail("attribute to: " + std::to_string(to) + " is no type");
  return emit(c, 0, static_cast<DType>(to), c.input(0).shape);
}

// x [any], target -> [x's shape] in target's type.
Status infer_cast_like(InferContext& c) {
  SITU_RETURN_IF_ERROR(c.need(0, "input"));
  if (!c.has(1)) return c.fail("input 1 (target_type) is missing");
  return emit(c, 0, c.input(1).type, c.input(0).shape);
}

Status prepare_cast(const PrepareContext& c, Prepared* out) {
  SITU_RETURN_IF_ERROR(need_type(c, 0, kCastTypes));
  const DType to = c.out[0]->type;
  if ((type_bit(to) & kCastTypes) == 0) return c.fail(std::string("to ") + dtype_name(to) + " is not supported");
  const std::string rounding = c.node.attr_string("round_mode", "up");
  if (to == DType::kF8E8M0 && rounding != "up") return c.fail("round_mode '" + rounding + "' is not supported");
  return use_kernel(out, &KernelTable::cast, CastParams{c.node.attr_int("saturate", 1) != 0});
}

// Clip: bounds are attributes below opset 11, then optional scalar operands 1 (min) and 2 (max).
Status infer_clip(InferContext& c) {
  SITU_RETURN_IF_ERROR(c.need(0, "input"));
  for (size_t i = 1; i < 3; ++i) {
    if (!c.has(i)) continue;
    SITU_RETURN_IF_ERROR(c.need(i, i == 1 ? "min" : "max"));
    SITU_RETURN_IF_ERROR(need_same_type(c, 0, i));
    if (shape_count(c.input(i).shape) != Dim(1))
      return c.fail("bound " + shape_str(c.input(i).shape) + " is not a scalar");
  }
  return emit(c, 0, c.input(0).type, c.input(0).shape);
}

Status prepare_clip(const PrepareContext& c, Prepared* out) {
  SITU_RETURN_IF_ERROR(need_type(c, 0, kNumberTypes));
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  ClipParams p{-kInfinity, kInfinity};
  if (c.node.attr("min") != nullptr) p.min = c.node.attr_float("min", 0);
  if (c.node.attr("max") != nullptr) p.max = c.node.attr_float("max", 0);
  return use_kernel(out, &KernelTable::clip, p);
}

}  // namespace situ
