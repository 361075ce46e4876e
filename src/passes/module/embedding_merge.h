// A graph of embeddings that also puts rows of encoders in the places of their tokens (onnxruntime-genai's
// embedding.onnx), as one that looks up the embeddings of text alone: the rows are written there without it.
#pragma once

#include <span>
#include <string>

#include "eval/interpreter.h"
#include "graph/graph.h"

namespace situ {

// ids -> lookup -> base, (base, ids, features) -> merge -> embeddings  =>  ids -> lookup -> base. A graph without an
// input of features is left as it is. What the merge does is found by running it on ids among which are `tokens`, the
// ids that rows stand for. Errors: no token is known; what the graph makes is not its rows in the places of one token
// each, in order, among what it makes of ids alone.
Status take_out_merge(Graph& lookup, std::span<const int64_t> tokens, Evaluator& evaluator);

}  // namespace situ
