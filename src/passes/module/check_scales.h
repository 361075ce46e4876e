// Whether scales of weights are numbers: for who does not read the weights.
#pragma once

#include "graph/graph.h"

namespace situ {

// The error names every node with a constant scale that is not finite. Loading looks at short lists of them alone (in
// resolve_ops), because what is packed and saved is not read again: a longer one shows in the logits.
Status check_scales(const Graph& graph);

}  // namespace situ
