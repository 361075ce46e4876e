#include "generate/prompt_lookup.h"

#include <gtest/gtest.h>

#include <vector>

namespace situ {
namespace {

using Ids = std::vector<int64_t>;
Ids guess(const PromptLookup& lookup, const Ids& text) {
  const std::span<const int64_t> found = lookup.guess(text);
  return {found.begin(), found.end()};
}

TEST(PromptLookup, WhatFollowedTheLastTime) {
  const PromptLookup lookup(4);
  EXPECT_EQ(guess(lookup, {1, 2, 3, 4, 5, 6, 7, 8, 1, 2, 3}), (Ids{4, 5, 6, 7}));
  EXPECT_EQ(guess(lookup, {9, 2, 3, 4, 9, 2, 3, 5, 8, 2, 3}), (Ids{5, 8, 2, 3}));  // the later of two, by two tokens
  EXPECT_EQ(guess(lookup, {1, 2, 3, 4, 5, 7, 2, 3, 9, 1, 2, 3}), (Ids{4, 5, 7, 2}));  // three say more than two
  EXPECT_EQ(guess(lookup, {5, 5, 5, 5}), (Ids{5}));
  EXPECT_EQ(guess(lookup, {1, 2, 3, 4, 5}), (Ids{}));
  for (const Ids& text : {Ids{}, Ids{1}, Ids{1, 1}, Ids{1, 2, 1}}) EXPECT_EQ(guess(lookup, text), Ids{});
  EXPECT_EQ(guess(PromptLookup(0), {1, 2, 3, 1, 2, 3, 1, 2}), Ids{});
}

TEST(PromptLookup, GuessesAsMuchAsItIsGoodFor) {
  PromptLookup lookup(6);
  Ids text;
  for (int i = 0; i < 60; ++i) text.push_back(i % 20);
  EXPECT_EQ(guess(lookup, text).size(), 6u);
  for (int i = 0; i < 3; ++i) lookup.learn(6, 1);
  EXPECT_EQ(guess(lookup, text).size(), 3u);
  lookup.learn(0, 0);
  lookup.learn(3, 3);
  EXPECT_EQ(guess(lookup, text).size(), 5u);
  for (int i = 0; i < 20; ++i) lookup.learn(5, 0);
  EXPECT_EQ(guess(lookup, text).size(), 1u);
  for (int i = 0; i < 20; ++i) lookup.learn(1, 1);
  EXPECT_EQ(guess(lookup, text).size(), 6u);
}

}  // namespace
}  // namespace situ
