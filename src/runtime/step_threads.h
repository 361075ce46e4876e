// Whether a short step is sooner done by all threads or by one that takes the parts of all. The threads of a step meet
// hundreds of times; where other processes have the CPUs, every meeting may take a time slice of the scheduler
// (SmolLM2-135M, two threads beside two busy loops on two CPUs: 30 to 250 ms a token, 8 with one thread). The results
// are the same to the bit.
#pragma once

#include <array>
#include <cstdint>
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
  bool alone() const { return way_ == kAlone || way_ == kTrial; }
  // Whether the next step is to be told what the threads had of the processors.
  bool asks_use() const { return way_ == kLook || (way_ == kTogether && waited_ > 0); }
  // That step was one of program `program`, had so many tokens, took so long, and so often a thread went to sleep
  // because another one did not come. `use`: of the threads in it, where it was asked for.
  void done(int program, int tokens, double ms, int sleeps, const ProcessorUse& use = {});
  // How many steps one thread did alone so far.
  int64_t alone_steps() const { return alone_steps_; }

 private:
  // All; one, for the first time; one, since that was sooner; all, to see whether others still have the processors.
  enum Way : uint8_t { kTogether, kTrial, kAlone, kLook };
  // Of a kind of steps, by program and number of tokens; 0: none.
  using Times = std::vector<std::array<double, kMostTokens + 1>>;

  bool kept_away(double ms, const ProcessorUse& use) const;
  void go_on_alone(double loss_ms);
  void together(double& mean_ms, double ms, int sleeps, const ProcessorUse& use);
  void look(double alone_ms, double ms, bool away);

  static constexpr int kManySleeps = 4;  // of a step; with the CPUs to themselves threads hardly ever sleep
  // Threads that are woken on one CPU are parted by the kernel after some 20 ms: less says nothing of other processes.
  static constexpr double kSomeMs = 20;
  static constexpr int kFewPages = 256;  // of a step that computes rather than waits for pages
  static constexpr int kGoodLooks = 3;   // one that others leave alone by chance says little
  // A look is taken when the steps since the last one took so many times of what that one lost: 2%.
  static constexpr double kLooksApart = 50, kMostMs = 4000;

  const int threads_;
  Way way_ = kTogether;
  int waited_ = 0;                // steps in a row with many sleeps
  double waited_ms_ = 0;          // of those that count
  Times together_, alone_;        // the mean of those; the last that one thread did
  double left_ms_ = 0;            // of steps before the other way is tried
  double patience_ms_ = kSomeMs;  // how many when a trial has failed
  int good_looks_ = 0;
  int64_t alone_steps_ = 0;
};

}  // namespace situ
