// Closed forms of attention masks: which keys a query may see, and what is added to its scores.
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "base/status.h"
#include "passes/context/binding.h"
#include "passes/host/probe.h"

namespace situ {

// Exporters write "masked" as -inf, the lowest float, or -1e4 (half precision tools clip to it): not above this.
constexpr float kMasked = -9000.0f;

// Products of queries and keys are within this: with a scale that makes more of them than what hides a key, they would
// be seen beside it.
constexpr float kLargestScore = 64;

struct MaskForm {
  bool causal = false;
  int64_t window = -1;        // > 0: only the last `window` keys, the query's own included
  std::vector<float> slopes;  // ALiBi, one per head; empty: none
};

// Additive scores [heads or 1, tokens, tokens + past] at S = tokens, P = past.
using MaskProbe = std::function<Result<std::vector<float>>(int64_t tokens, int64_t past)>;

// The closed form that agrees with `probe`, a mask made of the host values `rules`, on a set of steps: few tokens, all
// queries of the first hundreds, one with as many keys as `context_length`, and both sides of what positions are
// compared with. Nothing when there is none, or when those steps do not tell all others. `heads`: rows of heads that
// the probe returns. A first step has no past, so no row can tell a window from none: its masks stay computed.
std::optional<MaskForm> fit_mask(const Graph& graph, Prober& prober, const std::vector<ValueId>& rules,
                                 const MaskProbe& probe, int64_t heads, int64_t context_length, Phase phase);

}  // namespace situ
