// Sequences without an end.
#pragma once

#include <cstdint>

#include "passes/context/pass_context.h"

namespace situ {

// For sequences without an end, of which the last `window` tokens and `first` first ones are attended to: after the
// passes. Attention takes no others, and rotary tables become rows that the host computes. Errors name what needs the
// whole sequence.
Status limit_window(PassContext& context, int64_t window, int64_t first);

}  // namespace situ
