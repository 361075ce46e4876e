// Scatters at places that are known before the step, which write what is there already, or all of what they return.
#pragma once

#include "passes/context/pass_context.h"

namespace situ {

// A scatter that writes nothing, or the same numbers as stand there, both taken from one value or computed alike (the
// rows of an interleaved rotary embedding, which text has three times): data.
// Scatters that write stretches of an axis, all of it together, as torch writes x[.., a:b] = y or x[.., i] = y: Concat
// of the stretches. A Gather of one place reads what was written there, or what stood there before.
Status scatter_ranges(PassContext& context);

}  // namespace situ
