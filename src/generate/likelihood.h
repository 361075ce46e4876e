// How likely a model finds given tokens: the sum of their negative log-likelihoods.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace situ {

class LikelihoodMeter {
 public:
  // Token `id` of [0, vocabulary) came after these logits [vocabulary].
  void add(std::span<const float> logits, int64_t id);
  // Of all tokens so far.
  struct Sum {
    double nll = 0;  // natural logarithm; infinite where a token had probability 0
    int64_t tokens = 0;
    int64_t not_a_number = -1;  // the first id whose logit was none; -1: all were numbers
    int64_t nothing_left = -1;  // tokens before the first one whose logits were all -infinity; -1: none was
  };
  const Sum& sum() const { return sum_; }

 private:
  Sum sum_;
  std::vector<float> scratch_;
};

}  // namespace situ
