#include "speech/alignment.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

namespace situ {
namespace {

// Rows that look at one frame each, and less at others the farther they are.
std::vector<float> looking(const std::vector<std::vector<int64_t>>& heads, int64_t stride) {
  std::vector<float> weights;
  for (const auto& rows : heads)
    for (const int64_t at : rows) {
      std::vector<float> row;
      for (int64_t f = 0; f < stride; ++f) row.push_back(std::exp(-static_cast<float>(std::abs(f - at)) / 4));
      const float sum = std::accumulate(row.begin(), row.end(), 0.0f);
      for (const float w : row) weights.push_back(w / sum);
    }
  return weights;
}

TEST(AlignTokens, FollowsWhatRowsLookAt) {
  // One row of the prompt, then a row for each of 3 tokens and one behind them, and the end's.
  const std::vector<float> weights = looking({{0, 5, 25, 45, 70, 78}, {40, 5, 25, 45, 70, 1}}, 80);
  const std::vector<int64_t> begins = align_tokens(weights, 2, 6, 80, 80, 1, 3);
  ASSERT_EQ(begins.size(), 4u);
  EXPECT_EQ(begins[0], 0);
  for (size_t i = 1; i < begins.size(); ++i) {
    EXPECT_GE(begins[i], 20 * static_cast<int64_t>(i) - 6);
    EXPECT_LE(begins[i], 20 * static_cast<int64_t>(i) + 10);
  }
}

// As if the frames that do not count, and what rows see in them, were not there.
TEST(AlignTokens, FramesThatDoNotCountTakeNothing) {
  std::vector<float> weights = looking({{0, 5, 12, 30, 38, 39}, {38, 5, 12, 30, 39, 1}}, 40), longer;
  for (size_t r = 0; r < 12; ++r) {
    const float seen = 1 - 0.07f * static_cast<float>(r);  // of each row, in the frames that count
    for (size_t f = 0; f < 40; ++f) longer.push_back(seen * weights[r * 40 + f]);
    longer.push_back(1 - seen);
  }
  EXPECT_EQ(align_tokens(longer, 2, 6, 41, 40, 1, 3), align_tokens(weights, 2, 6, 40, 40, 1, 3));
}

TEST(AlignTokens, StaysWithinItsFramesAndGoesOn) {
  for (const int64_t frames : {1, 2, 5, 30}) {
    const std::vector<int64_t> begins = align_tokens(looking({{3, 9, 1, 30, 2}}, 40), 1, 5, 40, frames, 0, 4);
    ASSERT_EQ(begins.size(), 5u);
    for (size_t i = 0; i < begins.size(); ++i) {
      EXPECT_LT(begins[i], frames);
      EXPECT_GE(begins[i], i == 0 ? 0 : begins[i - 1]);
    }
  }
}

}  // namespace
}  // namespace situ
