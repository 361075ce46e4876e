#include "passes/host/mask.h"

#include <algorithm>
#include <cmath>

#include "passes/context/binding.h"
#include "passes/host/turning_points.h"

namespace situ {
namespace {

// Windows up to the context are told from "no window" by one row of this many keys.
constexpr int64_t kMaxFarKeys = 131072;
constexpr int64_t kManyQueries = 64;
constexpr int64_t kFewTokens = 15;  // 120 steps: all that a context of so many tokens has
constexpr int64_t kMostSquareElements = 1 << 22;
constexpr int64_t kMostTableElements = 1 << 26;  // where every query is looked at
constexpr int64_t kMostBeside = 1 << 20;         // of a step beside a number that positions are compared with
constexpr int64_t kMostElements = 1 << 18;       // of a single query's rows, but for the one with the most keys

constexpr float kRounding = 1e-6f;  // of sums of floats, as a part of them

bool masked(float v) { return !(v > kMasked); }

struct Sample {
  int64_t tokens, past;
  std::vector<float> bias;
  float at(int64_t h, int64_t i, int64_t j) const {
    return bias[static_cast<size_t>((h * tokens + i) * (tokens + past) + j)];
  }
};

// Last allowed keys of a single query at the end: their count, or -1 when all are allowed.
// Nothing when the allowed keys are not one run that ends at the query.
std::optional<int64_t> window_of(const Sample& s) {
  const int64_t keys = s.tokens + s.past;
  int64_t first = 0;
  while (first < keys && masked(s.at(0, 0, first))) ++first;
  if (first == keys) return std::nullopt;
  for (int64_t j = first; j < keys; ++j)
    if (masked(s.at(0, 0, j))) return std::nullopt;
  return first == 0 ? -1 : keys - first;
}

// What a key nearer to the query adds to its score, for each head; empty where that is nothing.
std::vector<float> slopes_of(const Sample& one_query, int64_t heads) {
  std::vector<float> slopes;
  const int64_t last = one_query.past;
  for (int64_t h = 0; h < heads; ++h) {
    // Steeper arms give the slope with less rounding: the whole row where it is allowed.
    const int64_t first = masked(one_query.at(h, 0, 0)) ? last - 1 : 0;
    slopes.push_back(masked(one_query.at(h, 0, first))
                         ? 0.0f
                         : (one_query.at(h, 0, last) - one_query.at(h, 0, first)) / static_cast<float>(last - first));
  }
  if (std::all_of(slopes.begin(), slopes.end(), [](float s) { return s == 0; })) slopes.clear();
  return slopes;
}

bool agrees(const Sample& s, int64_t heads, const MaskForm& form) {
  const int64_t keys = s.tokens + s.past;
  for (int64_t h = 0; h < heads; ++h)
    for (int64_t i = 0; i < s.tokens; ++i) {
      const float* row = s.bias.data() + (h * s.tokens + i) * keys;
      const int64_t own = s.past + i, first = form.window > 0 ? std::max<int64_t>(0, own - form.window + 1) : 0,
                    last = form.causal ? own + 1 : keys;
      for (int64_t j = 0; j < first; ++j)
        if (!masked(row[j])) return false;
      for (int64_t j = last; j < keys; ++j)
        if (!masked(row[j])) return false;
      // Scores may be shifted by a constant for each row: softmax does not see it.
      const float anchor = first < last ? row[first] : 0,
                  slope = form.slopes.empty() ? 0.0f : form.slopes[static_cast<size_t>(h)];
      for (int64_t j = first; j < last; ++j) {
        const float v = row[j], expected = slope * static_cast<float>(j - first);
        if (masked(v) || !(std::fabs(v - anchor - expected) <=
                           1e-5f * (1 + std::fabs(expected)) + kRounding * (std::fabs(v) + std::fabs(anchor))))
          return false;
      }
    }
  return true;
}

}  // namespace

std::optional<MaskForm> fit_mask(const Graph& graph, Prober& prober, const std::vector<ValueId>& rules,
                                 const MaskProbe& probe, int64_t heads, int64_t context_length, Phase phase) {
  if (phase == Phase::kFirst) return std::nullopt;
  auto sample = [&](int64_t tokens, int64_t past) -> std::optional<Sample> {
    Result<std::vector<float>> bias = probe(tokens, past);
    if (!bias.is_ok() || bias->size() != static_cast<size_t>(heads * tokens * (tokens + past))) return std::nullopt;
    return Sample{tokens, past, std::move(*bias)};
  };
  // What the form would be, told from few tokens and from one row of as many keys as there may be. A short context is
  // looked at in every step that it has.
  const bool decode = phase == Phase::kDecode, all_steps = context_length <= kFewTokens;
  const int64_t far = std::clamp<int64_t>(context_length, 1, kMaxFarKeys);
  if (far < 2) return std::nullopt;
  std::vector<std::pair<int64_t, int64_t>> steps{{1, std::min<int64_t>(9, far - 1)}, {1, far - 1}};
  steps.emplace_back(decode ? 1 : std::min<int64_t>(3, far), 0);
  if (!all_steps) steps.insert(steps.end(), {{1, 0}, {2, 5}, {5, 11}});
  for (int64_t tokens = 1; all_steps && tokens <= far; ++tokens)
    for (int64_t past = 0; tokens + past <= far; ++past) steps.emplace_back(tokens, past);
  std::vector<Sample> samples;
  for (auto [tokens, past] : steps) {
    if (decode && tokens > 1) continue;
    auto s = sample(tokens, past);
    if (!s) return std::nullopt;
    samples.push_back(std::move(*s));
  }
  const Sample &ten_keys = samples[0], &all_keys = samples[1], &first_tokens = samples[2];
  MaskForm form;
  const auto window = window_of(all_keys);
  if (!window) return std::nullopt;
  form.window = *window;
  form.causal = !decode && masked(first_tokens.at(0, 0, 1));
  form.slopes = slopes_of(ten_keys, heads);
  for (const Sample& s : samples)
    if (!agrees(s, heads, form)) return std::nullopt;
  if (all_steps) return form;
  samples.clear();
  const TellingSteps telling =
      telling_steps(graph, prober, rules, phase, context_length, Judged::kByValue, kMostBeside / heads);
  const TurningPoints& points = telling.points;
  // A table that changes anywhere is looked at as a whole below.
  if (!telling.told && !(points.plain && points.anywhere)) return std::nullopt;

  auto holds = [&](int64_t tokens, int64_t past) {
    if (tokens + past > context_length || (decode && tokens > 1)) return true;  // no such step
    const auto s = sample(tokens, past);
    return s && agrees(*s, heads, form);
  };
  // A window that begins between the probes is seen at its edge too.
  for (int64_t past = form.window - 1; form.window > 0 && past <= form.window + 1; ++past)
    if (!holds(decode ? 1 : 3, past)) return std::nullopt;
  // Rules for some queries or keys alone: all queries of the first hundreds of tokens (960 with 9 heads, 512 with 32),
  // of all where a table holds the mask; single queries along the rest of the context; both sides of what positions are
  // compared with.
  if (!decode || points.anywhere) {
    const int64_t most = points.anywhere ? kMostTableElements : kMostSquareElements,
                  queries = decode ? 1 : kManyQueries;
    int64_t elements = 0;
    for (int64_t past = 0; past < context_length; past += queries) {
      const int64_t tokens = std::min(queries, context_length - past);
      elements += heads * tokens * (past + tokens);
      if (elements > most && points.anywhere) return std::nullopt;
      if (elements > most && past > 0) break;
      if (!holds(tokens, past)) return std::nullopt;
    }
  }
  for (int64_t past = kManyQueries; past + 2 < far && past * heads < kMostElements; past += past / 5)
    if (!holds(1, past)) return std::nullopt;
  for (const auto& [tokens, past] : telling.steps)
    if (!holds(tokens, past)) return std::nullopt;
  // Long steps are not looked at as a whole.
  for (ValueId v : points.conditions)
    if (!decode && !entries_by_position(graph, prober, v, context_length)) return std::nullopt;
  return form;
}

}  // namespace situ
