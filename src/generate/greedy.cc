#include "generate/greedy.h"

namespace situ {

int64_t argmax(std::span<const float> logits) {
  size_t best = 0;
  float largest = logits[0];
  for (size_t i = 1; i < logits.size(); ++i)
    if (logits[i] > largest || largest != largest) {
      best = i;
      largest = logits[i];
    }
  return static_cast<int64_t>(best);
}

}  // namespace situ
