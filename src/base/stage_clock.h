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
  explicit StageClock(const Ledger& ledger) : ledger_(ledger), before_(ledger), start_(Clock::now()) {}

  // The stage since the last end, or since the beginning; the next one begins. Null: it is not wanted.
  void end(const std::string& name, std::vector<Stage>* stages) {
    const int64_t copied = ledger_.copied - before_.copied, computed = ledger_.computed - before_.computed;
    if (stages) stages->push_back({name, ms_since(start_), copied, copied + computed});
    before_ = ledger_;
    start_ = Clock::now();
  }

 private:
  const Ledger& ledger_;
  Ledger before_;
  Clock::time_point start_;
};

}  // namespace situ
