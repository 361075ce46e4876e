// Greedy choice of the next token.
#pragma once

#include <cstdint>
#include <span>

namespace situ {

// Index of the largest logit [vocabulary]; the first of equals, as NumPy's argmax; NaN never wins.
int64_t argmax(std::span<const float> logits);

}  // namespace situ
