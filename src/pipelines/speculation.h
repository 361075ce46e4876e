// Guesses of the next tokens, out of the text itself or by a draft model, as many at once as were good so far. A guess
// counts only when it is the token that is chosen in any case, so that the text stays the same.
#pragma once

#include <memory>

#include "generate/guess_count.h"
#include "pipelines/draft.h"

namespace situ {

class Speculation {
 public:
  // As the options ask for, which may be never. Error: a step does not give that many logits; no draft model was
  // loaded.
  static Result<Speculation> create(Model::Impl& model, const GenerateOptions& options);

  // What may follow the sampler's tokens, at most `most` tokens; valid until the next call.
  Result<std::span<const int64_t>> guess(const Sampler& sampler, int64_t most);
  // How many tokens of that were tried, and how many of them were right.
  void learn(int64_t tried, int64_t right);
  int64_t guessed() const { return guessed_; }
  int64_t accepted() const { return accepted_; }

 private:
  explicit Speculation(int64_t most) : count_(most) {}

  GuessCount count_;
  std::unique_ptr<Draft> draft_;  // null: prompt lookup
  int64_t guessed_ = 0, accepted_ = 0;
};

}  // namespace situ
