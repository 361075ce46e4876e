// Embeddings of what a call asks for: no JSON, no protocol.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "serve/ask.h"
#include "serve/refusal.h"

namespace situ::serve {

struct EmbedAsk {
  std::vector<TextPrompt> inputs;  // texts alone, or token ids alone
  EmbedOptions options;
};

struct Embedded {
  std::vector<std::vector<float>> rows;  // one for each input
  std::vector<size_t> cut;               // numbers of inputs that were longer than the model takes
  int64_t tokens = 0;                    // of all inputs
};

// Inputs are computed a few at a time, so that other requests of the model go on between them. `stopped`: asked between
// them; true: the answer is not wanted any more. Null: it never is. `tokens`: of all inputs, as far as they were
// computed.
OrRefusal<Embedded> embed(Model& model, const EmbedAsk& ask, int64_t* tokens, const std::function<bool()>& stopped);

}  // namespace situ::serve
