// Scatters at places that are known before the step, which write what is there already, or all of what they return.
#pragma once

#include "passes/pass.h"

namespace situ {

// What a scatter returns that moves nothing: data, where `updates` are the elements of data that they replace, both
// taken from one value (the rows of an interleaved rotary embedding, which text has three times); so does what writes
// nothing.
// Scatters that write stretches of the first axis, all of it together, as torch writes x[.., a:b] = y into what is
// empty: Concat of the stretches.
Status scatter_ranges(PassContext& context);

}  // namespace situ
