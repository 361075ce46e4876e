#include "speech/alignment.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

namespace situ {
namespace {

constexpr int64_t kMedian = 7;

// The median of a frame and three on each side; reflected at the ends, where there are as many.
void smooth(std::vector<float>& row) {
  const auto n = static_cast<int64_t>(row.size()), half = kMedian / 2;
  if (n <= half) return;
  std::vector<float> out(row.size()), around(kMedian);
  for (int64_t i = 0; i < n; ++i) {
    for (int64_t j = 0; j < kMedian; ++j) {
      int64_t at = std::abs(i + j - half);
      if (at >= n) at = 2 * (n - 1) - at;
      around[static_cast<size_t>(j)] = row[static_cast<size_t>(at)];
    }
    std::nth_element(around.begin(), around.begin() + half, around.end());
    out[static_cast<size_t>(i)] = around[static_cast<size_t>(half)];
  }
  row = std::move(out);
}

}  // namespace

std::vector<int64_t> align_tokens(std::span<const float> weights, int64_t heads, int64_t rows, int64_t stride,
                                  int64_t frames, int64_t first, int64_t tokens) {
  const int64_t n = tokens + 1;
  std::vector<double> gain(static_cast<size_t>(n * frames));  // [row, frame], the more the better
  std::vector<float> mean(static_cast<size_t>(frames)), deviation(mean.size()), row(mean.size());
  std::vector<double> share(static_cast<size_t>(rows));  // what is made of a row's weights
  for (int64_t h = 0; h < heads; ++h) {
    const float* w = weights.data() + h * rows * stride;
    // What a row gives to frames beyond those that count is nothing of its distribution.
    for (int64_t r = 0; r < rows; ++r) {
      const double sum = std::accumulate(w + r * stride, w + r * stride + frames, 0.0);
      share[static_cast<size_t>(r)] = sum > 0 ? 1 / sum : 0;
    }
    const auto at = [&](int64_t r, int64_t f) { return w[r * stride + f] * share[static_cast<size_t>(r)]; };
    for (int64_t f = 0; f < frames; ++f) {
      double sum = 0, squares = 0;
      for (int64_t r = 0; r < rows; ++r) sum += at(r, f);
      const double m = sum / static_cast<double>(rows);
      for (int64_t r = 0; r < rows; ++r) squares += (at(r, f) - m) * (at(r, f) - m);
      mean[static_cast<size_t>(f)] = static_cast<float>(m);
      deviation[static_cast<size_t>(f)] = static_cast<float>(std::sqrt(squares / static_cast<double>(rows)));
    }
    for (int64_t r = 0; r < n; ++r) {
      for (size_t f = 0; f < row.size(); ++f) {
        const float d = deviation[f];
        row[f] = d > 0 ? (static_cast<float>(at(first + r, static_cast<int64_t>(f))) - mean[f]) / d : 0;
      }
      smooth(row);
      for (size_t f = 0; f < row.size(); ++f)
        gain[static_cast<size_t>(r * frames) + f] += static_cast<double>(row[f]) / static_cast<double>(heads);
    }
  }
  // The cheapest monotone path from (0, 0) to the last row and frame; cost = -gain.
  const auto wide = static_cast<size_t>(frames + 1);
  std::vector<double> cost(static_cast<size_t>(n + 1) * wide, std::numeric_limits<double>::infinity());
  std::vector<char> from(cost.size(), 0);
  cost[0] = 0;
  for (int64_t r = 1; r <= n; ++r)
    for (int64_t f = 1; f <= frames; ++f) {
      const size_t at = static_cast<size_t>(r) * wide + static_cast<size_t>(f);
      const double both = cost[at - wide - 1], down = cost[at - wide], along = cost[at - 1];
      const char step = both < down && both < along ? 0 : down < both && down < along ? 1 : 2;
      cost[at] = (step == 0 ? both : step == 1 ? down : along) - gain[static_cast<size_t>((r - 1) * frames + f - 1)];
      from[at] = step;
    }
  std::vector<int64_t> begins(static_cast<size_t>(n), 0);
  for (int64_t r = n, f = frames; r > 0 || f > 0;) {
    if (r > 0) begins[static_cast<size_t>(r - 1)] = std::max<int64_t>(0, f - 1);
    const char step = r == 0 ? 2 : f == 0 ? 1 : from[static_cast<size_t>(r) * wide + static_cast<size_t>(f)];
    if (step != 2) --r;
    if (step != 1) --f;
  }
  return begins;
}

}  // namespace situ
