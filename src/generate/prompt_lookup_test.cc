#include "generate/prompt_lookup.h"

#include <gtest/gtest.h>

#include <vector>

#include "generate/guess_count.h"

namespace situ {
namespace {

using Ids = std::vector<int64_t>;
Ids guess(const Ids& text, int64_t most = 4) {
  const std::span<const int64_t> found = lookup_prompt(text, most);
  return {found.begin(), found.end()};
}

TEST(PromptLookup, WhatFollowedTheLastTime) {
  EXPECT_EQ(guess({1, 2, 3, 4, 5, 6, 7, 8, 1, 2, 3}), (Ids{4, 5, 6, 7}));
  EXPECT_EQ(guess({1, 2, 3, 4, 5, 6, 7, 8, 1, 2, 3}, 2), (Ids{4, 5}));
  EXPECT_EQ(guess({9, 2, 3, 4, 9, 2, 3, 5, 8, 2, 3}), (Ids{5, 8, 2, 3}));     // the later of two, by two tokens
  EXPECT_EQ(guess({1, 2, 3, 4, 5, 7, 2, 3, 9, 1, 2, 3}), (Ids{4, 5, 7, 2}));  // three say more than two
  EXPECT_EQ(guess({5, 5, 5, 5}), (Ids{5}));
  EXPECT_EQ(guess({1, 2, 3, 4, 5}), (Ids{}));
  for (const Ids& text : {Ids{}, Ids{1}, Ids{1, 1}, Ids{1, 2, 1}}) EXPECT_EQ(guess(text), Ids{});
}

TEST(GuessCount, AsManyAsWereGood) {
  GuessCount count(6);
  EXPECT_EQ(count.now(), 6);
  for (int i = 0; i < 3; ++i) count.learn(6, 1);
  EXPECT_EQ(count.now(), 3);
  count.learn(0, 0);
  count.learn(3, 3);
  EXPECT_EQ(count.now(), 5);
  for (int i = 0; i < 20; ++i) count.learn(5, 0);
  EXPECT_EQ(count.now(), 1);
  for (int i = 0; i < 20; ++i) count.learn(1, 1);
  EXPECT_EQ(count.now(), 6);
  EXPECT_EQ(GuessCount(0).now(), 0);
}

}  // namespace
}  // namespace situ
