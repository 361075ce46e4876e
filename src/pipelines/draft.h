// Guesses by a smaller model with the same tokens (Leviathan et al., Fast Inference from Transformers via Speculative Decoding,
// arXiv 2211.17192). A guess counts only when it is the token that is chosen in any case, so that the text stays the same; the draft
// draws with the same random numbers, which makes it draw the same tokens where it thinks alike.
#pragma once

#include <span>
#include <vector>

#include "generate/guess_count.h"
#include "generate/sampler.h"
#include "pipelines/llm.h"

namespace situ {

class Draft {
 public:
  // At most `most` tokens at once. `vocabulary`: that of the model whose tokens are guessed.
  static Result<Draft> create(Model::Impl& model, int64_t most, int64_t vocabulary);

  // What may follow the sampler's tokens, chosen as it would choose, at most `most` tokens. Fewer or none where the draft's context or state ends.
  Result<std::span<const int64_t>> guess(Sampler sampler, int64_t most);
  void learn(int64_t guessed, int64_t right) { count_.learn(guessed, right); }

 private:
  Draft(Model::Impl& model, Session session, int64_t most, int64_t vocabulary) : model_(&model), session_(std::move(session)), count_(most), vocabulary_(vocabulary) {}
  Result<std::span<const float>> feed(std::span<const int64_t> tokens);

  Model::Impl* model_;
  Session session_;
  GuessCount count_;
  int64_t vocabulary_;
  std::vector<int64_t> fed_;     // to the session
  std::vector<int64_t> guess_;
  std::vector<float> widened_;   // logits of a vocabulary that ends earlier
};

// Whether `draft` can guess for `model`. Error: another tokenizer; a state that cannot be rewound.
Status check_draft(const Model::Impl& model, const Model::Impl& draft);

}  // namespace situ
