// What scores of attention gain by the distance of query and key, in plain operators.
#pragma once

#include "passes/context/builder.h"

namespace situ {

// com.microsoft.RelativePositionBias(table [buckets, heads], query_length Q, key_length K) -> [1, heads, Q, K], as in
// T5:
//   y[0][h][q][k] = table[bucket(k - q)][h], where the table lies by columns: the numbers of a head side by side
// Distances of less than half of the buckets have one each, larger ones share the others by their logarithm, up to
// max_distance. is_bidirectional: half of the buckets are for keys behind the query; else these are as the query's own.
Status expand_relative_bias(Graph& graph, Builder& builder, const Node& n);

}  // namespace situ
