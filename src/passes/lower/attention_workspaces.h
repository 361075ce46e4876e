// Workspaces of attention, in which threads share the keys of single tokens.
#pragma once

#include <cstdint>

#include "graph/graph.h"

namespace situ {

// After the passes, where the number of threads is known: attention gets a second output, a workspace in which they
// share the keys of single tokens, of which one attends to up to `keys`; a step has up to `tokens` of them.
void add_attention_workspaces(Graph& graph, int threads, int64_t keys, int64_t tokens);
// That output; kNoValue: the node has none.
ValueId attention_workspace(const Node& node);

}  // namespace situ
