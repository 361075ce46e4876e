#include "runtime/step_threads.h"

#include <algorithm>

namespace situ {

bool StepThreads::alone(int64_t kind) {
  if (kind != kind_) *this = StepThreads();
  kind_ = kind;
  return alone_;
}

void StepThreads::done(double ms, int sleeps) {
  if (!alone_) {
    left_ms_ -= ms;
    if (sleeps < kManySleeps) {
      waited_ = 0;
      patience_ms_ = kFirstMs;
      return;
    }
    together_ms_ = waited_ > 0 ? std::min(ms, together_ms_) : ms;
    // The first steps wait for pages too: two in a row say more.
    alone_ = trial_ = ++waited_ > 1 && left_ms_ <= 0;
    return;
  }
  if (trial_) {
    trial_ = false;
    alone_ = ms < together_ms_;
    left_ms_ = patience_ms_;
    patience_ms_ = std::min(2 * patience_ms_, kMostMs);
  } else if ((left_ms_ -= ms) <= 0) {
    alone_ = false;  // for as many steps as it takes to see whether the others are there now
    waited_ = 0;
  }
}

}  // namespace situ
