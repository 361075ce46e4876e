// What a graph gives for a text, told by the names and shapes of its outputs.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "runtime/text_encoder.h"

namespace situ {

// What a graph gives for a text.
enum class EncoderOutput {
  kNone,
  kTokens,    // a row for each token: last_hidden_state, token_embeddings
  kSentence,  // one row: sentence_embedding, pooler_output
  kLabels,    // logits of a text or a pair: a cross-encoder
};
struct TextGraph {
  EncoderOutput kind = EncoderOutput::kNone;
  std::string output;       // its name
  std::string sentence;     // of a graph with rows for tokens: the output that is one row, if there is one
  bool has_logits = false;  // of each token: it generates
  int64_t table_rows = 0;   // of the table that token ids index; where that is not seen, of the largest table
};
// Rows of the table that token ids index, which are called so where there are other integers; 0: none is seen.
int64_t rows_of_tokens(const Graph& graph);
TextGraph text_graph(const Graph& graph);

// Tokens for which a table of learned positions has rows, where positions are counted by CumSum from a constant on:
// RoBERTa's begin behind pad_token_id. None: no such table is seen.
std::optional<int64_t> most_positions(const Graph& graph);

}  // namespace situ
