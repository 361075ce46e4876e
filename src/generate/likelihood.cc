#include "generate/likelihood.h"

#include <limits>

#include "generate/greedy.h"
#include "generate/logprobs.h"

namespace situ {

void LikelihoodMeter::add(std::span<const float> logits, int64_t id) {
  scratch_.resize(logits.size());
  if (!log_softmax(logits, scratch_)) {
    const LargestLogit largest = largest_logit(logits);
    if (sum_.not_a_number < 0) sum_.not_a_number = largest.not_a_number;
    const bool none = logits[static_cast<size_t>(largest.id)] == -std::numeric_limits<float>::infinity();
    if (none && largest.not_a_number < 0 && sum_.nothing_left < 0) sum_.nothing_left = sum_.tokens;
  }
  sum_.nll -= scratch_[static_cast<size_t>(id)];
  ++sum_.tokens;
}

}  // namespace situ
