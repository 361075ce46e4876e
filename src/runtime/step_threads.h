// Whether a short step is sooner done by all threads or by one that takes the parts of all. The threads of a step meet
// hundreds of times; where other processes have the CPUs, every meeting may take a time slice of the scheduler
// (SmolLM2-135M, two threads beside two busy loops on two CPUs: 30 to 250 ms a token, 8 with one thread). The results
// are the same to the bit.
#pragma once

#include <array>
#include <vector>

namespace situ {

class StepThreads {
 public:
  static constexpr int kMostTokens =
      16;  // of a short step; longer ones take so long that a time slice is nothing to them

  // The number of a program for done().
  int add_program();
  // For the next step. Who has the CPUs is the same for steps of any length.
  bool alone() const { return alone_; }
  // That step was one of program `program`, had so many tokens, took so long, and so often a thread went to sleep
  // because another one did not come.
  void done(int program, int tokens, double ms, int sleeps);

 private:
  static constexpr int kManySleeps = 4;  // of a step; with the CPUs to themselves threads hardly ever sleep
  static constexpr double kFirstMs = 250, kMostMs = 4000;

  bool alone_ = false, trial_ = false;
  int waited_ = 0;  // steps in a row with many sleeps
  // The best of these, by program and number of tokens; 0: none.
  std::vector<std::array<double, kMostTokens + 1>> together_ms_;
  double left_ms_ = 0;             // of steps before the other way is tried
  double patience_ms_ = kFirstMs;  // how many next time
};

}  // namespace situ
