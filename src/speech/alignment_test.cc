#include "speech/alignment.h"

#include <gtest/gtest.h>

#include "speech/words.h"

namespace situ {
namespace {

// Rows that look at one frame each, a little at the others.
std::vector<float> looking(const std::vector<std::vector<int64_t>>& heads, int64_t stride) {
  std::vector<float> weights;
  for (const auto& rows : heads)
    for (const int64_t at : rows)
      for (int64_t f = 0; f < stride; ++f)
        weights.push_back(std::abs(f - at) <= 4 ? 0.1f : 0.1f / static_cast<float>(stride));
  return weights;
}

TEST(FitToWords, SegmentsAndWordsEndTogether) {
  const auto word = [](double begin, double end) { return SpeechWord{begin, end, "", 1}; };
  std::vector<SpeechSegment> s(3);
  s[0].start = 1, s[0].end = 3, s[0].words = {word(0.8, 1.4), word(1.4, 2.9)};
  s[1].start = 5, s[1].end = 6, s[1].words = {word(2.9, 5.5), word(5.5, 5.9), word(5.9, 8)};  // over two pauses
  s[2].start = 9, s[2].end = 10;
  fit_to_words(s);
  EXPECT_EQ(s[0].start, 0.8);
  EXPECT_EQ(s[0].end, 2.9);
  // Lengths are 0.4, 0.6, 1.5, 2.1 and 2.6: the middle one is above the most of 0.7.
  EXPECT_NEAR(s[1].words[0].start, 4.8, 1e-9);
  EXPECT_NEAR(s[1].words[2].end, 6.6, 1e-9);
  EXPECT_EQ(s[1].start, 5);
  EXPECT_EQ(s[1].end, 6);
  EXPECT_EQ(s[2].end, 10);
}

TEST(AlignTokens, FollowsWhatRowsLookAt) {
  // One row of the prompt, then a row for each of 3 tokens and one behind them, and the end's.
  const std::vector<float> weights = looking({{0, 5, 25, 45, 70, 78}, {40, 5, 25, 45, 70, 1}}, 80);
  const std::vector<int64_t> begins = align_tokens(weights, 2, 6, 80, 80, 1, 3);
  ASSERT_EQ(begins.size(), 4u);
  EXPECT_EQ(begins[0], 0);
  for (size_t i = 1; i < begins.size(); ++i) {
    EXPECT_GE(begins[i], 20 * static_cast<int64_t>(i) - 5);
    EXPECT_LE(begins[i], 20 * static_cast<int64_t>(i) + 10);
  }
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
