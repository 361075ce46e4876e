// Measures the stages of a generation one behind the other.
#pragma once

#include <string>
#include <vector>

#include "base/clock.h"
#include "base/ledger.h"
#include "situ/generation.h"

namespace situ {

class StageClock {
 public:
  // `ledger` must outlive the clock.
  explicit StageClock(const Ledger& ledger) : ledger_(ledger) { go_on(); }

  // The stage since the last end, or since the beginning, without pauses; the next one begins. Null: it is not wanted.
  void end(const std::string& name, std::vector<Stage>* stages) {
    pause();
    if (stages) stages->push_back({name, ms_, copied_, copied_ + computed_});
    ms_ = 0;
    copied_ = computed_ = 0;
    go_on();
  }
  // What is between them is of no stage.
  void pause() {
    copied_ += ledger_.copied - before_.copied;
    computed_ += ledger_.computed - before_.computed;
    ms_ += ms_since(start_);
  }
  void go_on() {
    before_ = ledger_;
    start_ = Clock::now();
  }

 private:
  const Ledger& ledger_;
  Ledger before_;
  Clock::time_point start_;
  double ms_ = 0;
  int64_t copied_ = 0, computed_ = 0;
};

}  // namespace situ
