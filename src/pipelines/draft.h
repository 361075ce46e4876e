// Guesses by a smaller model with the same tokens (Leviathan et al., Fast Inference from Transformers via Speculative
// Decoding, arXiv 2211.17192). It draws with the random numbers of the model that it guesses for, so that it draws the
// same tokens where it thinks alike.
#pragma once

#include <span>
#include <vector>

#include "generate/sampler.h"
#include "pipelines/llm.h"

namespace situ {

class Draft {
 public:
  // `vocabulary`: that of the model whose tokens are guessed.
  static Result<Draft> create(Model::Impl& model, int64_t vocabulary);

  // What may follow the sampler's tokens, chosen as it would choose, at most `most` tokens. Fewer or none where the
  // draft's context or state ends.
  Result<std::span<const int64_t>> guess(Sampler sampler, int64_t most);

 private:
  Draft(Model::Impl& model, Session session, int64_t vocabulary)
      : model_(&model), session_(std::move(session)), vocabulary_(vocabulary) {}
  Result<std::span<const float>> feed(std::span<const int64_t> tokens);

  Model::Impl* model_;
  Session session_;
  int64_t vocabulary_;
  std::vector<int64_t> fed_;  // to the session
  std::vector<int64_t> guess_;
  std::vector<float> widened_;  // logits of a vocabulary that ends earlier
};

// Whether `draft` can guess for `model`. Error: another tokenizer; a state that cannot be rewound.
Status check_draft(const Model::Impl& model, const Model::Impl& draft);

}  // namespace situ
