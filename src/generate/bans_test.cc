#include "generate/bans.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace situ {
namespace {

using Ids = std::vector<int64_t>;

template <typename Ban>
Ids banned(const Ban& ban_some) {
  std::vector<float> scores(12, 1.0f);
  ban_some(std::span<float>(scores));
  Ids found;
  for (size_t i = 0; i < scores.size(); ++i)
    if (scores[i] == kBanned) found.push_back(static_cast<int64_t>(i));
  return found;
}

TEST(Bans, Others) {
  const auto others = [](const std::vector<uint32_t>& allowed) {
    return banned([&](std::span<float> scores) { ban_others(scores, allowed); });
  };
  EXPECT_EQ(others({0xffffffff}), Ids{});
  EXPECT_EQ(others({0xfff}), Ids{});
  EXPECT_EQ(others({0x7f5}), (Ids{1, 3, 11}));
  EXPECT_EQ(others({}).size(), 12u);
  std::vector<float> scores(70, 1.0f);
  ban_others(scores, std::vector<uint32_t>{0xffffffff, 0x80000000});
  EXPECT_EQ(std::count(scores.begin(), scores.end(), 1.0f), 33);
  EXPECT_EQ(scores[63], 1.0f);
}

// Written by NoRepeatNGramLogitsProcessor of transformers 4.57.6.
TEST(Bans, RepeatedNgramsAreThoseOfTransformers) {
  const auto after = [](int64_t size, const Ids& ids) {
    return banned([&](std::span<float> scores) { ban_repeated_ngrams(scores, ids, size); });
  };
  EXPECT_EQ(after(1, {3, 1, 3}), (Ids{1, 3}));
  EXPECT_EQ(after(2, {1, 2, 3, 1, 4, 1}), (Ids{2, 4}));
  EXPECT_EQ(after(3, {1, 2, 3, 1, 2, 4, 1, 2}), (Ids{3, 4}));
  EXPECT_EQ(after(3, {1, 2}), Ids{});
  EXPECT_EQ(after(4, {1, 1, 1, 1, 1}), (Ids{1}));
  EXPECT_EQ(after(2, {5}), Ids{});
  EXPECT_EQ(after(int64_t{1} << 30, {5, 5}), Ids{});
}

// The first four as NoBadWordsLogitsProcessor of transformers 4.57.6, the last as its description.
TEST(Bans, WordsEndNowhere) {
  const auto after = [](const Ids& ids) {
    const std::vector<Ids> words{{7}, {1, 2}, {3, 4, 5}, {6, 6, 6}};
    return banned([&](std::span<float> scores) { ban_words(scores, ids, words); });
  };
  EXPECT_EQ(after({0, 0, 0}), (Ids{7}));
  EXPECT_EQ(after({0, 0, 1}), (Ids{2, 7}));
  EXPECT_EQ(after({1, 3, 4}), (Ids{5, 7}));
  EXPECT_EQ(after({6, 6, 6}), (Ids{6, 7}));
  EXPECT_EQ(after({1}), (Ids{2, 7}));
}

}  // namespace
}  // namespace situ
