// Where the blocks of a step's activations lie.
#pragma once

#include "base/status.h"
#include "place/plan.h"

namespace situ {

// Gives every block of the plan its life in steps, its bytes at the bounds and its offset; the logits get a second
// place. Errors: a size that overflows, naming the value.
Status allocate_blocks(const Graph& graph, const Binding& binding, const PlanBounds& bounds, Plan* plan);

}  // namespace situ
