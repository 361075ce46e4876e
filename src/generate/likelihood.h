// How likely a model finds given tokens: the sum of their negative log-likelihoods, added up on a thread of its own while the next
// step runs.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <span>
#include <thread>
#include <vector>

namespace situ {

class LikelihoodMeter {
 public:
  // `beside`: on a thread of its own. What add() is given must then stay until the second begin_step() after it.
  explicit LikelihoodMeter(bool beside);
  ~LikelihoodMeter();
  LikelihoodMeter(const LikelihoodMeter&) = delete;
  LikelihoodMeter& operator=(const LikelihoodMeter&) = delete;

  // The next step may overwrite the logits of the step before the last: waits until those have been read.
  void begin_step();
  // Token `id` of [0, vocabulary) came after these logits [vocabulary].
  void add(std::span<const float> logits, int64_t id);
  // Of all tokens so far: waits until they have been read.
  struct Sum {
    double nll = 0;  // natural logarithm; infinite where a token had probability 0
    int64_t tokens = 0;
  };
  Sum sum();

 private:
  struct Job {
    std::span<const float> logits;
    int64_t id;
  };
  void run();
  void read(const Job& job);
  void wait_for(size_t jobs);

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Job> jobs_;     // those not yet read; the first of them is job number read_
  size_t added_ = 0, read_ = 0;
  size_t of_last_step_ = 0;   // added_ at the last begin_step()
  bool ended_ = false;
  Sum sum_;
  std::vector<float> scratch_;
  std::thread thread_;
};

}  // namespace situ
