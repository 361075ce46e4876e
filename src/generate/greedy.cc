#include "generate/greedy.h"

namespace situ {

int64_t argmax(std::span<const float> logits) {
  size_t best = 0;
  for (size_t i = 1; i < logits.size(); ++i)
    if (logits[i] > logits[best] || logits[best] != logits[best]) best = i;
  return static_cast<int64_t>(best);
}

}  // namespace situ
