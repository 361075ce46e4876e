#include "runtime/step_threads.h"

#include <algorithm>

namespace situ {

int StepThreads::add_program() {
  together_.push_back({});
  alone_.push_back({});
  return static_cast<int>(together_.size()) - 1;
}

// Whether other processes, or a quota, had the processors. Where threads sleep because one of them is slow that one
// runs, as all do up to the place where they wait for it: nobody is put aside, and on a machine with cores of two
// speeds all together run for three quarters of the time.
bool StepThreads::kept_away(double ms, const ProcessorUse& use) const {
  constexpr int64_t kSwitches = 2;
  return use.switches >= kSwitches || use.ms < 2.0 / 3 * threads_ * ms;
}

void StepThreads::done(int program, int tokens, double ms, int sleeps, const ProcessorUse& use) {
  const auto p = static_cast<size_t>(program), t = static_cast<size_t>(std::clamp(tokens, 0, kMostTokens));
  left_ms_ -= ms;
  alone_steps_ += alone();
  switch (way_) {
    case kTogether:
      return together(together_[p][t], ms, sleeps, use);
    case kTrial:
      if (together_[p][t] <= 0) {  // others than those that all threads did say nothing
        if (left_ms_ <= 0) way_ = kTogether;
        return;
      }
      if (ms < together_[p][t]) {
        for (auto& last : alone_) last.fill(0.0);
        alone_[p][t] = ms;
        return go_on_alone(0);
      }
      way_ = kTogether;
      left_ms_ = std::clamp(kLooksApart * (ms - together_[p][t]), patience_ms_, kMostMs);
      patience_ms_ = std::min(2 * left_ms_, kMostMs);
      return;
    case kAlone:
      alone_[p][t] = ms;  // the last one: steps become longer with what they attend to
      if (left_ms_ <= 0) way_ = kLook;
      return;
    case kLook:
      return look(alone_[p][t], ms, sleeps >= kManySleeps && kept_away(ms, use));
  }
}

void StepThreads::go_on_alone(double loss_ms) {
  way_ = kAlone;
  good_looks_ = 0;
  left_ms_ = std::clamp(kLooksApart * loss_ms, kSomeMs, kMostMs);
}

// One thread is tried once warm steps, enough of them, were kept from the processors.
void StepThreads::together(double& mean_ms, double ms, int sleeps, const ProcessorUse& use) {
  if (sleeps < kManySleeps) {
    waited_ = 0;
    patience_ms_ = kSomeMs;
    return;
  }
  if (waited_++ == 0) {
    waited_ms_ = 0;
    for (auto& mean : together_) mean.fill(0.0);
    return;  // this one may be a start, or a waking
  }
  if (use.faults > kFewPages || !kept_away(ms, use)) return;
  mean_ms = mean_ms > 0 ? mean_ms + (ms - mean_ms) / 4 : ms;
  waited_ms_ += ms;
  if (waited_ms_ < kSomeMs || left_ms_ > 0) return;
  way_ = kTrial;
  left_ms_ = kSomeMs;
}

void StepThreads::look(double alone_ms, double ms, bool away) {
  if (alone_ms <= 0 && !away) alone_ms = ms;  // no like step: threads that all came are believed
  if (ms > alone_ms) return go_on_alone(ms - std::max(alone_ms, 0.0));
  if (++good_looks_ < kGoodLooks) return;
  way_ = kTogether;
  waited_ = 0;
  left_ms_ = 0;
  patience_ms_ = kSomeMs;
}

}  // namespace situ
