// Short convolutions that are written out tap by tap.
#pragma once

#include "passes/context/pass_context.h"

namespace situ {

// sum over k of Slice(both, a_k .. a_k + S) * w_k (+ b), w_k and b [C] constants, of rows that begin with a state's
//   ->  Conv(both, w [C, 1, K], b), cut to the rows that there were
// both [1, C, rows] or [1, rows, C]. True: some was found, and shapes are to be inferred again.
Result<bool> join_taps(PassContext& context);

}  // namespace situ
