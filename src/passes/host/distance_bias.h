// Attention biases by distance (T5's relative positions): element [.., h, i, j] depends on positions through
// key position - query position alone, as proved by passes/host/index_form.h. Each becomes a table for situ.Attention.
#pragma once

#include <map>
#include <optional>
#include <vector>

#include "passes/context/pass_context.h"
#include "passes/host/index_form.h"

namespace situ {

struct DistanceBias {
  std::vector<ValueId> values;  // of the graph; the bias is their sum
  // f32 [heads or 1, N]: column d - least is added at the distance d = key position - query position; at distances
  // before the first column and behind the last, what stands there.
  Tensor table;
  int64_t least = 0;
  bool of_future = true;      // also of keys behind the query
  bool hides_future = false;  // these are all masked: a causal mask, and no columns of the table
  // One column is the same for all keys: Softmax does not see it.
  bool matters() const { return table.dims()[1] > 1; }
};

// What is added to scores, told apart.
struct Addends {
  std::optional<DistanceBias> distance;
  std::vector<ValueId> rest;  // neither by distance nor one number throughout
  const std::vector<ValueId>& by_distance() const;
};

// Distances that are looked at: below the context, or below this where sequences have no end (a window then keeps them
// below itself).
constexpr int64_t kMostDistances = 131072;

class DistanceBiases {
 public:
  // `endless`: of a context with a window. Where it has none and is longer than kMostDistances, nothing is by distance.
  DistanceBiases(const PassContext& context, const Prober& prober);

  // Host values that are added to `scores` [.., heads, S, keys]; sums among them are taken apart.
  Addends split(const std::vector<ValueId>& values, const Shape& scores);
  // All elements of a host value are one number, at every step.
  bool uniform(ValueId v);
  // The table as a constant of `graph`, one for all that have the same numbers.
  ValueId constant(Graph& graph, const DistanceBias& bias);

 private:
  std::optional<DistanceBias> by_distance(ValueId v, const Shape& scores, IndexForms& forms, bool of_future);

  const Graph& graph_;
  const Prober& prober_;
  const bool known_;
  IndexForms all_, past_;  // distances either way; those of keys up to the query
  std::vector<std::pair<DistanceBias, ValueId>> constants_;
};

}  // namespace situ
