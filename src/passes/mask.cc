#include "passes/mask.h"

#include <algorithm>
#include <cmath>

namespace situ {
namespace {

// Windows up to the context are told from "no window" by one row of this many keys.
constexpr int64_t kMaxFarKeys = 131072;
constexpr int64_t kManyQueries = 64;
constexpr int64_t kMostSquareElements = 1 << 22;
constexpr int64_t kMostElements = 1 << 18;  // of a single query's rows, but for the one with the most keys

bool masked(float v) { return !(v > kMasked); }

struct Sample {
  int64_t tokens, past;
  std::vector<float> bias;
  float at(int64_t h, int64_t i, int64_t j) const { return bias[static_cast<size_t>((h * tokens + i) * (tokens + past) + j)]; }
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

bool agrees(const Sample& s, int64_t heads, const MaskForm& form) {
  const int64_t keys = s.tokens + s.past;
  for (int64_t h = 0; h < heads; ++h)
    for (int64_t i = 0; i < s.tokens; ++i) {
      const int64_t own = s.past + i;
      int64_t anchor = -1;
      for (int64_t j = 0; j < keys; ++j) {
        const bool allowed = (!form.causal || j <= own) && (form.window <= 0 || j > own - form.window);
        const float v = s.at(h, i, j);
        if (allowed == masked(v)) return false;
        if (!allowed) continue;
        // Scores may be shifted by a constant for each row: softmax does not see it.
        if (anchor < 0) anchor = j;
        const float slope = form.slopes.empty() ? 0.0f : form.slopes[static_cast<size_t>(h)];
        const float expected = slope * static_cast<float>(j - anchor);
        const float magnitude = std::fabs(v) + std::fabs(s.at(h, i, anchor));
        if (std::fabs(v - s.at(h, i, anchor) - expected) > 1e-5f * (1 + magnitude)) return false;
      }
    }
  return true;
}

}  // namespace

std::optional<MaskForm> fit_mask(const MaskProbe& probe, int64_t heads, int64_t context_length, Phase phase) {
  if (phase == Phase::kFirst) return std::nullopt;
  auto sample = [&](int64_t tokens, int64_t past) -> std::optional<Sample> {
    Result<std::vector<float>> bias = probe(tokens, past);
    if (!bias.is_ok() || bias->size() != static_cast<size_t>(heads * tokens * (tokens + past))) return std::nullopt;
    return Sample{tokens, past, std::move(*bias)};
  };
  const int64_t far = std::clamp<int64_t>(context_length, 1, kMaxFarKeys);
  std::vector<Sample> samples;
  for (auto [tokens, past] : {std::pair<int64_t, int64_t>{1, 0}, {3, 0}, {2, 5}, {1, 9}, {5, 11}, {1, far - 1}}) {
    if (phase == Phase::kDecode && tokens > 1) continue;
    if (tokens + past > context_length) return std::nullopt;  // too short a context to tell masks apart
    auto s = sample(tokens, past);
    if (!s) return std::nullopt;
    samples.push_back(std::move(*s));
  }
  MaskForm form;
  const auto window = window_of(samples.back());
  if (!window) return std::nullopt;
  form.window = *window;
  form.causal = phase == Phase::kAny && masked(samples[1].at(0, 0, 1));
  if (form.window > 0) {
    // A window that begins between the probes above is seen at its edge too.
    for (int64_t past : {form.window - 1, form.window, form.window + 1}) {
      if (past + 3 > context_length) continue;
      auto s = sample(phase == Phase::kDecode ? 1 : 3, past);
      if (!s) return std::nullopt;
      samples.push_back(std::move(*s));
    }
  }
  const size_t ten_keys = phase == Phase::kDecode ? 1 : 3;  // one query, ten keys
  // Rules for some queries or keys alone: all queries of the first hundreds of tokens (960 with 9 heads, 512 with 32), and
  // single queries along the rest of the context.
  if (phase == Phase::kAny) {
    int64_t elements = 0;
    for (int64_t past = 0; past + kManyQueries <= context_length; past += kManyQueries) {
      elements += heads * kManyQueries * (past + kManyQueries);
      if (past > 0 && elements > kMostSquareElements) break;
      auto s = sample(kManyQueries, past);
      if (!s) return std::nullopt;
      samples.push_back(std::move(*s));
    }
  }
  for (int64_t past = kManyQueries; past + 2 < far && past * heads < kMostElements; past += past / 5) {
    auto s = sample(1, past);
    if (!s) return std::nullopt;
    samples.push_back(std::move(*s));
  }
  const Sample& row = samples[ten_keys];
  bool any = false;
  std::vector<float> slopes;
  for (int64_t h = 0; h < heads; ++h) {
    const int64_t last = row.past, before = std::max<int64_t>(0, last - 1);
    slopes.push_back(masked(row.at(h, 0, before)) ? 0.0f : row.at(h, 0, last) - row.at(h, 0, before));
    any = any || slopes.back() != 0;
  }
  if (any) {
    // Steeper arms give the slope with less rounding: use the whole row where it is allowed.
    for (int64_t h = 0; h < heads; ++h)
      if (!masked(row.at(h, 0, 0))) slopes[static_cast<size_t>(h)] = (row.at(h, 0, row.past) - row.at(h, 0, 0)) / static_cast<float>(row.past);
    form.slopes = slopes;
  }
  for (const Sample& s : samples)
    if (!agrees(s, heads, form)) return std::nullopt;
  return form;
}

}  // namespace situ
