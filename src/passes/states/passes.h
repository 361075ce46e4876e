// Passes that find the states, the logits, and how the rows of states follow from steps.
#pragma once

#include "passes/context/pass_context.h"

namespace situ {

Status read_stacks(PassContext&);      // parts of values that are stacked: those values
Status unstack_states(PassContext&);   // states stacked in one tensor: each of its own
Status lift_caches(PassContext&);      // caches of a fixed size, written at positions: rows are appended
Status round_states(PassContext&);     // states that are rounded as a whole: rows that are rounded once
Status find_states(PassContext&);      // past / present pairs from what the outputs are made of
Status find_logits(PassContext&);      // the output as wide as the table that token ids index
Status integer_states(PassContext&);   // states of quantised rows, as attention reads them
Status narrow_states(PassContext&);    // states that are cast on their way in and out: the cast moves inside
Status derive_states(PassContext&);    // rows that every step takes through products: what these give is cached
Status unrepeat_states(PassContext&);  // heads that are repeated before they are cached: cached once
Status append_windows(PassContext&);   // states that are the last rows, of convolutions: rows are appended

}  // namespace situ
