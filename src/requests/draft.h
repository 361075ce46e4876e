// Guesses by a smaller model with the same tokens (Leviathan et al., Fast Inference from Transformers via Speculative
// Decoding, arXiv 2211.17192). It draws with the random numbers of the model that it guesses for, so that it draws the
// same tokens where it thinks alike.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "generate/sampler.h"
#include "requests/decoding.h"

namespace situ {

// A decoding of its own, within that of an answer: it is fed by steps of the small model.
class Draft {
 public:
  // `vocabulary`: that of the model whose tokens are guessed.
  Draft(Served& served, int64_t vocabulary) : served_(&served), strand_(served), vocabulary_(vocabulary) {}

  // Begins to guess what may follow the sampler's tokens, chosen as it would choose, at most `most` tokens. Fewer or
  // none where the draft's context ends.
  void begin(const Sampler& sampler, int64_t most);
  // Whether a step is wanted first; then the guess is there.
  bool at_work() const { return sampler_.has_value(); }
  Want want(size_t branch);
  void take(Rows rows);
  void stop() { sampler_.reset(); }
  std::span<const int64_t> guess() const { return guess_; }
  const Strand* strand() const { return &strand_; }
  void release() {
    stop();
    strand_ = Strand(*served_);
    fed_.clear();
  }

 private:
  Served* served_;
  Strand strand_;
  int64_t vocabulary_;
  std::optional<Sampler> sampler_;  // while it is at work
  size_t wanted_ = 0;
  std::vector<int64_t> fed_, guess_;  // fed_: what the strand has, and what it is fed next
  std::vector<float> widened_;        // logits of a vocabulary that ends earlier
};

// Whether `draft` can guess for `model`. Error: another tokenizer; a state that cannot be rewound.
Status check_draft(const Served& model, const Served& draft);

}  // namespace situ
