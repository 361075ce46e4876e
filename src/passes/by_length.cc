#include "passes/by_length.h"

#include <algorithm>
#include <set>

#include "passes/turning_points.h"

namespace situ {
namespace {

constexpr size_t kMostTurns = 4;
constexpr size_t kMostPoints = 128;

// Steps that end a sequence of so many tokens.
std::vector<std::pair<int64_t, int64_t>> steps_to(int64_t length, Phase phase) {
  constexpr int64_t kMostTokens = 1 << 17;
  if (phase == Phase::kFirst) return {{length, 0}};
  std::vector<std::pair<int64_t, int64_t>> steps{{1, length - 1}};
  if (phase == Phase::kDecode) return steps;
  if (length > 2) steps.emplace_back(3, length - 3);
  if (length <= kMostTokens) steps.emplace_back(length, 0);
  return steps;
}

// Lengths that tell a value at all others: at both sides of all turning points, and the shortest and longest, where the
// rule is the same in between. What the host computes of lengths is looked at everywhere. Empty: none do.
std::set<int64_t> telling_lengths(const Graph& graph, const Prober& prober, ValueId v, int64_t context) {
  constexpr int64_t kEverywhere = 1 << 17;
  std::set<int64_t> lengths;
  const TurningPoints points = turning_points(graph, prober, {v});
  if (points.plain && !points.anywhere && points.at.size() <= kMostPoints) {
    lengths = {1, 2, 3, context};
    for (const int64_t n : points.at)
      for (int64_t length = n - 2; length <= n + 2; ++length) lengths.insert(std::clamp<int64_t>(length, 1, context));
  } else if (graph.values[v].info.content && context <= kEverywhere) {
    for (int64_t length = 1; length <= context; ++length) lengths.insert(length);
  }
  return lengths;
}

}  // namespace

bool ByLength::at(int64_t length) const {
  return first != (std::upper_bound(turns.begin(), turns.end(), length) - turns.begin()) % 2;
}

Dim ByLength::of(const Dim& length) const {
  Dim truth = first ? 1 : 0;
  for (size_t i = 0; i < turns.size(); ++i)
    truth = dim_select(dim_less(length, turns[i]), truth, Dim(first != (i % 2 == 0) ? 1 : 0));
  return truth;
}

std::optional<ByLength> by_length(const Graph& graph, Prober& prober, ValueId v, Phase phase, int64_t context) {
  const ValueInfo& info = graph.values[v].info;
  if (info.type != DType::kBool || !info.ranked || shape_count(info.shape) != Dim(1) || !prober.changes(v))
    return std::nullopt;
  ByLength found;
  int64_t last = 0;
  bool before = false;
  for (const int64_t length : telling_lengths(graph, prober, v, context)) {
    std::optional<bool> here;
    for (const auto& [tokens, past] : steps_to(length, phase)) {
      const Result<Tensor> t = prober.host_value(v, tokens, past);
      if (!t.is_ok() || t->count() != 1) return std::nullopt;
      const bool holds = t->to_i64()[0] != 0;
      if (here && *here != holds) return std::nullopt;
      here = holds;
    }
    if (last == 0) {
      found.first = *here;
    } else if (*here != before) {
      if (length != last + 1) return std::nullopt;
      found.turns.push_back(length);
      if (found.turns.size() > kMostTurns) return std::nullopt;
    }
    last = length;
    before = *here;
  }
  return found;
}

}  // namespace situ
