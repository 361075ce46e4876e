// Nodes that change nothing.
#pragma once

#include "graph/graph.h"

namespace situ {

// Whether two values have one type and one shape.
bool alike(const Graph& graph, ValueId a, ValueId b);

// The operand that output 0 of a node equals, for nodes that change nothing (Identity, reshapes to the same shape,
// times 1 ..); else kNoValue.
ValueId equal_operand(const Graph& graph, const Node& n);

// A Slice with a negative step, or with steps that are not known.
bool walks_back(const Graph& graph, const Node& n);

}  // namespace situ
