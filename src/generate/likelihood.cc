#include "generate/likelihood.h"

#include "generate/greedy.h"
#include "generate/logprobs.h"

namespace situ {

void LikelihoodMeter::add(std::span<const float> logits, int64_t id) {
  scratch_.resize(logits.size());
  if (!log_softmax(logits, scratch_) && sum_.not_a_number < 0) sum_.not_a_number = largest_logit(logits).not_a_number;
  sum_.nll -= scratch_[static_cast<size_t>(id)];
  ++sum_.tokens;
}

}  // namespace situ
