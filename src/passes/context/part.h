// Parts of a value: what Split, and Slice along one axis, choose.
#pragma once

#include <optional>

#include "graph/graph.h"

namespace situ {

// Where output `o` of a Split or a Slice of one axis with step 1 begins on that axis, which is counted from the front.
struct AxisPart {
  size_t axis;
  Dim begin;
};
// Nothing: the node is neither, or where it begins is not known.
std::optional<AxisPart> part_of(const Graph& graph, const Node& n, size_t o);

}  // namespace situ
