// How many tokens to guess at once: more while all guesses are right, fewer else.
#pragma once

#include <algorithm>
#include <cstdint>

namespace situ {

class GuessCount {
 public:
  // At most `most`; 0: never any.
  explicit GuessCount(int64_t most) : most_(most), now_(most) {}
  int64_t now() const { return now_; }
  void learn(int64_t guessed, int64_t right) {
    if (guessed > 0) now_ = right == guessed ? std::min(most_, now_ + 2) : std::max<int64_t>(1, now_ - 1);
  }

 private:
  int64_t most_, now_;
};

}  // namespace situ
