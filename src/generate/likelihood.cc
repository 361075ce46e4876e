#include "generate/likelihood.h"

#include "generate/logprobs.h"

namespace situ {

void LikelihoodMeter::read(std::span<const float> logits, int64_t id) {
  scratch_.resize(logits.size());
  log_softmax(logits, scratch_);
  sum_.nll -= scratch_[static_cast<size_t>(id)];
  ++sum_.tokens;
}

}  // namespace situ
