// Log-probabilities of the model's own distribution, before any penalty, ban or warper.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace situ {

class LogProbabilities {
 public:
  struct Entry {
    int64_t id = 0;
    double logprob = 0;  // natural logarithm
  };
  // logprob[id] = logits[id] - log(sum(exp(logits))), logits [vocabulary], which must outlive this until the next
  // read(). Logits that are not numbers count as -infinity; where all are -infinity all log-probabilities are.
  void read(std::span<const float> logits);
  double of(int64_t id) const;
  // The `count` most probable, the first of equals first; fewer where the others have probability 0.
  std::vector<Entry> top(int64_t count);

 private:
  std::span<const float> logits_;
  float max_ = 0;
  double log_sum_ = 0;  // log(sum(exp(logits - max)))
  std::vector<float> scratch_;
};

// Of every id, in float. `to` [vocabulary]. False: there may be logits that are not numbers.
bool log_softmax(std::span<const float> logits, std::span<float> to);
// `to` [vocabulary] = e^((logits - largest) / temperature), of logits that are numbers; returns the sum.
float exp_terms(std::span<const float> logits, float largest, float temperature, std::span<float> to);

}  // namespace situ
