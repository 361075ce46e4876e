#include "passes/host/telling_lengths.h"

#include <algorithm>
#include <set>

#include "passes/context/binding.h"
#include "passes/host/turning_points.h"

namespace situ {

std::vector<int64_t> telling_lengths(const Graph& graph, const Binding& binding, Evaluator& evaluator, Phase phase,
                                     int64_t context) {
  constexpr size_t kMostRules = 512;
  const Prober prober(graph, binding, evaluator);
  std::set<ValueId> rules;
  for (const Node& n : graph.nodes) {
    const auto data = [&](ValueId v) { return v != kNoValue && !prober.known(v); };
    if (std::none_of(n.out.begin(), n.out.end(), data)) continue;
    for (const ValueId v : n.in)
      if (prober.changes(v) && rules.size() < kMostRules) rules.insert(v);
  }
  std::set<int64_t> lengths;
  for (const ValueId v : rules)
    for (const auto& [tokens, past] : telling_steps(graph, prober, {v}, phase, context, Judged::kCompared).steps)
      lengths.insert(tokens + past);
  return {lengths.begin(), lengths.end()};
}

}  // namespace situ
