// How likely a model finds given tokens: the sum of their negative log-likelihoods, added up on a thread of its own
// while the next step runs.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/side_thread.h"

namespace situ {

class LikelihoodMeter {
 public:
  // `beside`: on a thread of its own. What add() is given must then stay until the second begin_step() after it.
  explicit LikelihoodMeter(bool beside) : thread_(beside) {}

  // The next step may overwrite the logits of the step before the last: waits until those have been read.
  void begin_step() {
    thread_.wait(of_last_step_);
    of_last_step_ = thread_.posted();
  }
  // Token `id` of [0, vocabulary) came after these logits [vocabulary].
  void add(std::span<const float> logits, int64_t id) {
    thread_.post([this, logits, id] { read(logits, id); });
  }
  // Waits until all that was added has been read.
  void settle() { thread_.wait(thread_.posted()); }
  // Of all tokens so far: waits until they have been read.
  struct Sum {
    double nll = 0;  // natural logarithm; infinite where a token had probability 0
    int64_t tokens = 0;
    int64_t not_a_number = -1;  // the first id whose logit was none; -1: all were numbers
  };
  Sum sum() {
    settle();
    return sum_;
  }

 private:
  void read(std::span<const float> logits, int64_t id);

  size_t of_last_step_ = 0;  // jobs before the last begin_step()
  Sum sum_;
  std::vector<float> scratch_;
  SideThread thread_;  // last: it is at the members above
};

}  // namespace situ
