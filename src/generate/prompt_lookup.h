// Guesses how a text goes on by what followed its last words when they came before (A. Saxena, Prompt Lookup Decoding, 2023).
#pragma once

#include <cstdint>
#include <span>

#include "generate/guess_count.h"

namespace situ {

class PromptLookup {
 public:
  // At most `most` tokens at once; 0: never any.
  explicit PromptLookup(int64_t most) : count_(most) {}

  // What followed the latest earlier occurrence of the last tokens of `text`: of three, else of two. Empty: they are new.
  std::span<const int64_t> guess(std::span<const int64_t> text) const;
  // How many tokens of a guess were right.
  void learn(int64_t guessed, int64_t right) { count_.learn(guessed, right); }

 private:
  GuessCount count_;
};

}  // namespace situ
