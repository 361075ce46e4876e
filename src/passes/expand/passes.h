// Passes that write fused operators out in plain ones.
#pragma once

#include "passes/context/pass_context.h"

namespace situ {

Status expand_fused(PassContext&);    // contrib and opset 23+ attention, rotary, skip norms
Status expand_experts(PassContext&);  // contrib mixtures of experts

}  // namespace situ
