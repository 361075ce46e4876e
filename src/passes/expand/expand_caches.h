// What fused operators do to caches, in plain operators: a static cache that is written at places, attention that sees
// its first rows, and rows of integers.
#pragma once

#include <string>

#include "ops/state_encoding.h"
#include "passes/context/builder.h"

namespace situ {

// ai.onnx.TensorScatter:
//   ScatterND(past, w + (0 .. S - 1), update) on the axis of the rows, which is moved to the front and back
// Error: several sequences.
Status expand_tensor_scatter(Graph& graph, Builder& builder, const Node& n);

// Of ai.onnx.Attention 24: of the keys, as many as nonpad_kv_seqlen says are attended to, and the queries are the last
// of these. `mask`: what hides more of them, of bool or added, or none; afterwards what hides all.
//   j < n and, where is_causal, j <= i + n - S
Status hide_padding(Graph& graph, Builder& builder, const Node& n, ValueId* mask);

// Keys or values as a graph stores them: floats, or integers that are worth scales [KV heads or 1, D or 1]:
// round(x / scale).
struct StoredRows {
  StateEncoding form;
  Tensor scales = {};
  Tensor zeros = {};  // float, as scales are: an integer is worth scale * (integer - zero); absent: 0
};
// Of GroupQueryAttention's keys, or values. Error: attributes, scales or a past that do not fit each other.
Result<StoredRows> stored_rows(const Graph& graph, const Node& n, bool keys, int64_t kv_heads, int64_t head_size);
// x [B, KV heads, S, D] as it is stored.
ValueId encode_rows(Graph& graph, Builder& builder, ValueId x, const StoredRows& rows);
// x [B, heads, S, D] of this type times what the integers of its head are worth: of queries, and of weighted sums of
// values, which the zeros are taken from before.
ValueId scale_rows(Graph& graph, Builder& builder, ValueId x, const StoredRows& rows, int64_t heads, DType type);
ValueId less_zeros(Graph& graph, Builder& builder, ValueId x, const StoredRows& rows, int64_t heads, DType type);

}  // namespace situ
