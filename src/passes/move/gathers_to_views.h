// Gathers by indices that are known before the step, where a view chooses alike.
#pragma once

#include "graph/graph.h"

namespace situ {

// Gather of evenly spaced places of one axis ([-2] of queries, keys and values), and GatherND of a grid of them (x[:,
// [-1]], or all places in order, as torch writes repeat_interleave), become Slice and Reshape; so does a Gather by a
// Range that lies within the axis.
Status gathers_to_views(Graph& graph);

}  // namespace situ
