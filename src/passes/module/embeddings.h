// A decoder that takes embeddings, and the graph that looks them up, as one graph of token ids.
#pragma once

#include <string>

#include "base/status.h"
#include "graph/graph.h"

namespace situ {

// The decoder's input that takes embeddings: of floats, [batch, tokens, width], and no state. kNoValue: none.
ValueId embeddings_input(const Graph& decoder);

// Why a decoder has no input of token ids.
std::string no_token_ids(const Graph& decoder);

// inputs_embeds -> decoder, ids -> lookup  =>  ids -> lookup -> inputs_embeds -> decoder. The value keeps its name. So
// it goes for other outputs of the lookup whose names are inputs of the decoder.
// Errors: a lookup that takes something beside token ids, or makes none or several values of the input's type and
// width.
Status join_embeddings(Graph& decoder, const std::string& decoder_name, const Graph& lookup,
                       const std::string& lookup_name);

}  // namespace situ
