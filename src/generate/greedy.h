// Greedy choice of the next token.
#pragma once

#include <cstdint>
#include <span>

namespace situ {

// What one look at logits [vocabulary], not empty, finds.
struct LargestLogit {
  int64_t id = 0;             // of the largest; the first of equals; NaN never wins
  int64_t not_a_number = -1;  // the first id whose logit is NaN; -1: all are numbers
};
LargestLogit largest_logit(std::span<const float> logits);

// Index of the largest logit [vocabulary]; the first of equals, as NumPy's argmax; NaN never wins.
inline int64_t argmax(std::span<const float> logits) { return largest_logit(logits).id; }

}  // namespace situ
