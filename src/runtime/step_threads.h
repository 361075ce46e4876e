// Whether a short step is sooner done by all threads or by one that takes the parts of all. The threads of a step meet
// hundreds of times; where other processes have the CPUs, every meeting may take a time slice of the scheduler
// (SmolLM2-135M, two threads beside two busy loops on two CPUs: 30 to 250 ms a token, 8 with one thread). The results
// are the same to the bit.
#pragma once

#include <array>
#include <vector>

#include "base/processor_use.h"

namespace situ {

class StepThreads {
 public:
  // Of a short step; longer ones take so long that a time slice is nothing to them.
  static constexpr int kMostTokens = 16;

  explicit StepThreads(int threads) : threads_(threads) {}
  // The number of a program for done().
  int add_program();
  // For the next step. Who has the CPUs is the same for steps of any length.
  bool alone() const { return alone_; }
  // Whether the next step is to be told what the threads had of the processors.
  bool asks_use() const { return !alone_ && waited_ > 0; }
  // That step was one of program `program`, had so many tokens, took so long, and so often a thread went to sleep
  // because another one did not come. `use`: of the threads in it, where it was asked for.
  void done(int program, int tokens, double ms, int sleeps, const ProcessorUse& use = {});

 private:
  bool kept_away(double ms, const ProcessorUse& use) const;
  static constexpr int kManySleeps = 4;  // of a step; with the CPUs to themselves threads hardly ever sleep
  static constexpr double kFirstMs = 250, kMostMs = 4000;

  const int threads_;
  bool alone_ = false, trial_ = false;
  int waited_ = 0;  // steps in a row with many sleeps
  // The best of these, by program and number of tokens; 0: none.
  std::vector<std::array<double, kMostTokens + 1>> together_ms_;
  double left_ms_ = 0;             // of steps before the other way is tried
  double patience_ms_ = kFirstMs;  // how many next time
};

}  // namespace situ
