// Lengths of a sequence at which a graph reads other tables, for all of its tokens: a long rope's factors
// (passes/host/find_switches.cc).
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "passes/context/binding.h"

namespace situ {

class Switches {
 public:
  Switches() = default;
  // Of the graphs of one model.
  Switches(const Binding& a, const Binding& b) : at_(a.switches) {
    at_.insert(at_.end(), b.switches.begin(), b.switches.end());
    std::sort(at_.begin(), at_.end());
    at_.erase(std::unique(at_.begin(), at_.end()), at_.end());
  }
  bool any() const { return !at_.empty(); }
  // Ascending: from so many tokens on the tables are other ones.
  const std::vector<int64_t>& lengths() const { return at_; }
  // Sequences of one stage have the same tables.
  int64_t stage(int64_t length) const { return std::upper_bound(at_.begin(), at_.end(), length) - at_.begin(); }
  // How many more tokens a sequence of `length` and one token may have at most in its stage.
  int64_t alike(int64_t length) const {
    const auto next = std::upper_bound(at_.begin(), at_.end(), length + 1);
    return next == at_.end() ? INT64_MAX : *next - length - 2;
  }

 private:
  std::vector<int64_t> at_;
};

// Where later calls have a graph of their own: steps of one token do not tell what follows the length from what follows
// the position, but the first call does. A length at which it does not change is none.
inline Status same_switches(const Binding& first, const Binding& later) {
  for (const int64_t turn : later.switches)
    if (std::find(first.switches.begin(), first.switches.end(), turn) == first.switches.end())
      return Status::error(Code::kUnsupportedModel, "a later call computes tokens with other numbers from " +
                                                        std::to_string(turn) +
                                                        " tokens on, and the first call does not");
  return Status::ok();
}

}  // namespace situ
