#include "runtime/step_threads.h"

#include <algorithm>

namespace situ {

int StepThreads::add_program() {
  together_ms_.push_back({});
  return static_cast<int>(together_ms_.size()) - 1;
}

// Whether other processes, or a quota, had the processors. Where threads sleep because one of them is slow that one
// runs, as all do up to the place where they wait for it: nobody is put aside, and on a machine with cores of two
// speeds all together run for three quarters of the time.
bool StepThreads::kept_away(double ms, const ProcessorUse& use) const {
  constexpr int64_t kSwitches = 2;
  return use.switches >= kSwitches || use.ms < 2.0 / 3 * threads_ * ms;
}

void StepThreads::done(int program, int tokens, double ms, int sleeps, const ProcessorUse& use) {
  double& together_ms =
      together_ms_[static_cast<size_t>(program)][static_cast<size_t>(std::clamp(tokens, 0, kMostTokens))];
  left_ms_ -= ms;
  if (!alone_) {
    if (sleeps < kManySleeps) {
      waited_ = 0;
      patience_ms_ = kFirstMs;
      return;
    }
    if (waited_ == 0)
      for (auto& best : together_ms_) best.fill(0.0);
    together_ms = together_ms > 0 ? std::min(ms, together_ms) : ms;
    // The first steps wait for pages too: two in a row say more.
    if (++waited_ < 2 || left_ms_ > 0 || !kept_away(ms, use)) return;
    alone_ = trial_ = true;
    left_ms_ = patience_ms_;
  } else if (trial_ && together_ms > 0) {  // others than those that all threads did say nothing
    trial_ = false;
    alone_ = ms < together_ms;
    left_ms_ = patience_ms_;
    patience_ms_ = std::min(2 * patience_ms_, kMostMs);
  } else if (left_ms_ <= 0) {
    alone_ = trial_ = false;  // for as many steps as it takes to see whether the others are there now
    waited_ = 0;
  }
}

}  // namespace situ
