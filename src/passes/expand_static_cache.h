// Caches of a fixed size in ai.onnx 24: where rows are written, and which of them attention sees.
#pragma once

#include "passes/builder.h"

namespace situ {

// Writes out `n`, a TensorScatter. Error: of several sequences.
Status expand_tensor_scatter(Graph& graph, Builder& builder, const Node& n);

// The mask of `n`, an Attention with nonpad_kv_seqlen, over `keys`: `mask` before (or kNoValue), and what that hides.
Status hide_padding(Graph& graph, Builder& builder, const Node& n, const Dim& keys, bool causal, ValueId* mask);

}  // namespace situ
