// Passes over what only moves elements, and what stands around it.
#pragma once

#include "passes/context/pass_context.h"

namespace situ {

Status simplify(PassContext&);           // identities, no-op casts, expands and reshapes; dead nodes
Status sink_repeats(PassContext&);       // unary operators above the repetition they read
Status split_products(PassContext&);     // products on repetitions that were merged with other axes, as heads are
Status push_selections(PassContext&);    // Slice/Split/Gather above the projection they select from
Status last_token(PassContext&);         // logits of the last tokens only
Status join_parts(PassContext&);         // parts that were taken apart, or are cut alike
Status spread_repeats(PassContext&);     // elementwise operators on repetitions that were merged with other axes
Status split_axes(PassContext&);         // rows that are joined in another order: written so
Status distribute_concat(PassContext&);  // elementwise operators above the Concat they read

}  // namespace situ
