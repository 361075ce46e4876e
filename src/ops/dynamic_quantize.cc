// Activations that are rounded to bytes as they come: DynamicQuantizeLinear.
#include "ops/infer.h"
#include "ops/ops.h"

namespace situ {

// x of floats -> y uint8 like x, y_scale float [], y_zero_point uint8 []: the range of all of x, 0 included, in 255 steps
// (kernels/dynamic_range.h).
Status infer_dynamic_quantize(InferContext& c) {
  SITU_RETURN_IF_ERROR(at_most_inputs(c, 1));
  SITU_RETURN_IF_ERROR(c.need(0, "x"));
  SITU_RETURN_IF_ERROR(emit(c, 0, DType::kU8, c.input(0).shape));
  SITU_RETURN_IF_ERROR(emit(c, 1, DType::kF32, {}));
  return emit(c, 2, DType::kU8, {});
}

Status prepare_dynamic_quantize(const PrepareContext& c, Prepared* out) {
  SITU_RETURN_IF_ERROR(need_type(c, 0, type_bit(DType::kF32)));
  *out = {&KernelTable::dynamic_quantize_linear, nullptr};
  return Status::ok();
}

}  // namespace situ
