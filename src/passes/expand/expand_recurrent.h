// Layers whose state has one size, as plain operators: short convolutions, linear attention, gates and norms beside it.
#pragma once

#include "passes/context/builder.h"
#include "passes/context/pass_context.h"

namespace situ {

// Who reads each value, before any node is written out (Graph::users).
using Users = std::vector<std::vector<std::pair<int, int>>>;

// Writes out `n` if it is CausalConvWithState, LinearAttention, LinearAttentionGate, GatedDeltaNet, GatedRMSNorm or
// GatedAdd; else sets *expanded to false. All is computed in float. A state that nothing else reads is kept as it is
// computed: in float, as channels before rows, without the states before the last one. Errors name the node and what of
// it is not supported.
Status expand_recurrent(PassContext& context, Builder& builder, const Users& users, const Node& n, bool* expanded);

}  // namespace situ
