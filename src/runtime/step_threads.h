// Whether a short step is sooner done by all threads or by one that takes the parts of all. The threads of a step meet hundreds of
// times; where other processes have the CPUs, every meeting may take a time slice of the scheduler (SmolLM2-135M, two threads
// beside two busy loops on two CPUs: 30 to 250 ms a token, 8 with one thread). The results are the same to the bit.
#pragma once

#include <cstdint>

namespace situ {

class StepThreads {
 public:
  // For the next step; what was learned holds for steps of one kind, such as their number of tokens.
  bool alone(int64_t kind);
  // It took so long, and so often a thread went to sleep because another one did not come.
  void done(double ms, int sleeps);

 private:
  static constexpr int kManySleeps = 4;  // of a step; with the CPUs to themselves threads hardly ever sleep
  static constexpr double kFirstMs = 250, kMostMs = 4000;

  int64_t kind_ = -1;
  bool alone_ = false, trial_ = false;
  int waited_ = 0;            // steps in a row with many sleeps
  double together_ms_ = 0;    // the better of the last ones
  double left_ms_ = 0;        // of steps before the other way is tried
  double patience_ms_ = kFirstMs;  // how many next time
};

}  // namespace situ
