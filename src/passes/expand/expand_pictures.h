// Operators on pictures [N, C, D..] as plain ones: norms by channel, pooling over all, Resize.
#pragma once

#include "passes/context/builder.h"

namespace situ {

// Writes out `n` if it is BatchNormalization, GroupNormalization, GlobalAveragePool, GlobalMaxPool or Resize, whose
// operands have known shapes; else sets *expanded to false. Errors name the node and what of it is not supported.
Status expand_pictures(Graph& graph, Builder& builder, const Node& n, bool* expanded);

}  // namespace situ
