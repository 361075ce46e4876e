// Truths that follow the length of the sequence alone: whether it is longer than what the model was first trained on,
// for instance, by which a graph chooses between rotary factors.
#pragma once

#include <optional>
#include <utility>
#include <vector>

#include "passes/probe.h"

namespace situ {

struct ByLength {
  bool first = false;          // of one token
  std::vector<int64_t> turns;  // lengths from which on it is the opposite, ascending; none within a shorter context
  bool at(int64_t length) const;
  Dim of(const Dim& length) const;
};

// A bool of one element that is such a truth at the end of any step; nothing: it is not, or it changes more than a few
// times.
std::optional<ByLength> by_length(const Graph& graph, Prober& prober, ValueId v, Phase phase, int64_t context);

}  // namespace situ
