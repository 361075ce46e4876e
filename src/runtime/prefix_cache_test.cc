#include "runtime/prefix_cache.h"

#include <gtest/gtest.h>

#include <map>
#include <random>

namespace situ {
namespace {

using Tokens = std::vector<int64_t>;

// Sequences as an engine makes them, and which beginning of which prompt every slot was written for.
class PrefixCacheTest : public ::testing::Test {
 protected:
  void start(int64_t capacity, int64_t plenty = INT64_MAX) {
    Result<std::unique_ptr<StatePool>> pool = StatePool::create({}, {capacity});
    ASSERT_TRUE(pool.is_ok());
    pool_ = std::move(*pool);
    cache_ = std::make_unique<PrefixCache>(*pool_, INT64_MAX, plenty);
  }

  void check_slots(const Tokens& tokens, const Sequence& s) const {
    int64_t at = 0;
    for (const auto& r : s.runs())
      for (int64_t i = 0; i < r.length; ++i, ++at)
        ASSERT_EQ(written_.at(r.first_slot + i), Tokens(tokens.begin(), tokens.begin() + at + 1));
    ASSERT_EQ(at, s.length());
  }

  // How much of `tokens` was kept.
  int64_t run(const Tokens& tokens) {
    Sequence s = cache_->find(tokens);
    check_slots(tokens, s);
    const int64_t found = s.length();
    while (s.length() < static_cast<int64_t>(tokens.size())) {
      const int64_t past = s.length();
      auto slots = s.append(static_cast<int64_t>(tokens.size()) - past);
      while (!slots.is_ok() && cache_->drop_oldest()) slots = s.append(static_cast<int64_t>(tokens.size()) - past);
      EXPECT_TRUE(slots.is_ok());
      if (!slots.is_ok()) return found;
      for (int64_t i = 0; i < slots->length; ++i)
        written_[slots->first_slot + i] = Tokens(tokens.begin(), tokens.begin() + past + i + 1);
    }
    cache_->keep(tokens, s);
    return found;
  }

  std::unique_ptr<StatePool> pool_;
  std::unique_ptr<PrefixCache> cache_;
  std::map<int64_t, Tokens> written_;
};

TEST_F(PrefixCacheTest, FindsTheLongestBeginning) {
  start(64);
  EXPECT_EQ(run({1, 2, 3, 4}), 0);
  EXPECT_EQ(run({1, 2, 5}), 2);  // in the middle of what is kept
  EXPECT_EQ(run({1, 2, 3, 4, 6}), 4);
  EXPECT_EQ(run({1, 2, 5, 7, 8}), 3);
  EXPECT_EQ(run({2, 1}), 0);
  EXPECT_EQ(run({1}), 1);
  EXPECT_EQ(cache_->slots(), 4 + 1 + 1 + 2 + 2);  // nothing twice
  EXPECT_EQ(pool_->free_slots(), 64 - 10);
}

TEST_F(PrefixCacheTest, SlotsOfSeveralTreesCountOnce) {
  start(64);
  const Tokens prompt = {1, 2, 3, 4};
  run(prompt);
  Sequence s = cache_->find(prompt);
  ASSERT_TRUE(s.append(2).is_ok());
  cache_->keep(Tokens{1, 2, 3, 4, 5, 6}, s, {.answers = true});
  s.clear();
  EXPECT_EQ(cache_->slots(), 6);
  EXPECT_EQ(pool_->free_slots(), 64 - 6);
  EXPECT_TRUE(cache_->drop_oldest());  // of the first tree, whose slots the other has too
  EXPECT_EQ(cache_->slots(), 6);
  EXPECT_TRUE(cache_->drop_oldest());
  EXPECT_FALSE(cache_->drop_oldest());
  EXPECT_EQ(cache_->slots(), 0);
  EXPECT_EQ(pool_->free_slots(), 64);
}

TEST_F(PrefixCacheTest, WhatLostTokensIsNotKept) {
  start(64);
  Sequence s(*pool_);
  ASSERT_TRUE(s.append(6).is_ok());
  s.drop(4, 1);
  cache_->keep(Tokens{1, 2, 3, 4, 5, 6}, s);
  EXPECT_EQ(cache_->slots(), 0);
  EXPECT_EQ(cache_->find(Tokens{1, 2, 3}).length(), 0);
}

TEST_F(PrefixCacheTest, TheOldestMakesRoom) {
  start(32);  // a quarter of which is kept
  run({1, 2, 3});
  run({4, 5, 6});
  run({1, 2});  // used again
  EXPECT_EQ(run({7, 8, 9, 10}), 0);
  EXPECT_LE(cache_->slots(), 8);
  EXPECT_EQ(run({1, 2, 3}), 3);
  EXPECT_EQ(run({4, 5, 6}), 1);  // as much of it as may be kept beside the others
}

TEST_F(PrefixCacheTest, ALongPromptKeepsItsFirstTokens) {
  start(64);
  Tokens prompt(40);
  for (size_t i = 0; i < prompt.size(); ++i) prompt[i] = static_cast<int64_t>(i);
  EXPECT_EQ(run(prompt), 0);
  EXPECT_EQ(cache_->slots(), 16);
  EXPECT_EQ(run(prompt), 16);
  EXPECT_EQ(run({0, 1, 2, 3, 100}), 4);
  EXPECT_EQ(pool_->free_slots(), 64 - cache_->slots());
}

TEST_F(PrefixCacheTest, ALongPromptLeavesWhatWasFoundAgain) {
  start(160);  // a quarter of which is kept
  const auto prompt = [](int64_t first, int64_t length) {
    Tokens tokens(static_cast<size_t>(length));
    for (int64_t i = 0; i < length; ++i) tokens[static_cast<size_t>(i)] = first + i;
    return tokens;
  };
  Tokens system = prompt(0, 16), other = system;
  system.push_back(1000);
  other.push_back(1001);
  run(system);
  EXPECT_EQ(run(other), 16);
  for (int64_t i = 1; i < 4; ++i) EXPECT_EQ(run(prompt(100 * i, 60)), 0);
  EXPECT_EQ(run(other), 16);
  EXPECT_EQ(run(prompt(300, 60)), 20);
  EXPECT_EQ(run(prompt(300, 60)), 24);  // its own beginning is no other one
  EXPECT_LE(cache_->slots(), 40);
  cache_.reset();
  start(160);
  EXPECT_EQ(run(prompt(1000, 24)), 0);
  EXPECT_EQ(run(prompt(2000, 60)), 0);
  EXPECT_EQ(run(prompt(1000, 24)), 20);  // was not found before
}

TEST_F(PrefixCacheTest, OnlyWhatFreesSlotsIsEvicted) {
  start(64);
  run({1, 2, 3, 4});
  run({5, 6, 7});
  Sequence held = cache_->find(Tokens{1, 2, 3});
  EXPECT_EQ(cache_->evictable(), 1 + 3);
  EXPECT_EQ(run({5, 6, 7}), 3);  // was used last
  EXPECT_TRUE(cache_->evict(10));
  EXPECT_EQ(cache_->find(Tokens{1, 2, 3, 4}).length(), 3);
  EXPECT_EQ(cache_->find(Tokens{5, 6, 7}).length(), 3);
  EXPECT_TRUE(cache_->evict(2));
  EXPECT_EQ(cache_->find(Tokens{5, 6, 7}).length(), 1);
  EXPECT_TRUE(cache_->evict(2));
  EXPECT_FALSE(cache_->evict(2));  // a sequence has the others
  EXPECT_EQ(cache_->slots(), 3);
  EXPECT_EQ(pool_->free_slots(), 64 - 3);
  held.clear();
  EXPECT_EQ(cache_->evictable(), 3);
}

TEST_F(PrefixCacheTest, SaltsShareNothing) {
  start(64);
  const Tokens prompt = {1, 2, 3, 4};
  Sequence s(*pool_);
  ASSERT_TRUE(s.append(4).is_ok());
  cache_->keep(prompt, s, {.salt = "a"});
  EXPECT_EQ(cache_->find(prompt, {.salt = "a"}).length(), 4);
  EXPECT_EQ(cache_->find(prompt, {.salt = "b"}).length(), 0);
  EXPECT_EQ(cache_->find(prompt).length(), 0);
}

// Whole states are known where a step of a sequence ended, and a beginning that is found ends there. A slot of them is
// free once neither the cache nor a sequence holds it.
TEST_F(PrefixCacheTest, PromptsThatNeverComeAgainHaveABound) {
  start(4096, 100);
  for (int64_t i = 0; i < 200; ++i) {
    run({i, i + 1, i + 2, i + 3});
    ASSERT_LE(cache_->slots(), 100);
  }
  EXPECT_EQ(cache_->slots(), 100);
  Tokens prompt;
  for (int64_t i = 0; i < 80; ++i) prompt.push_back(1000 + i);
  run(prompt);  // where prompts are longer, so is what is kept
  for (int64_t i = 0; i < 200; ++i) {
    run({i, i + 1, i + 2, i + 3});
    ASSERT_LE(cache_->slots(), 4 * 80);
  }
  EXPECT_EQ(cache_->slots(), 4 * 80);
}

TEST(PrefixCacheOfWholeStates, EndsWhereTheyAreKnown) {
  StateLayout rows, whole;
  rows.pair.rule = StateRule::kAppend;
  whole.pair.rule = StateRule::kReplace;
  rows.type = whole.type = DType::kF32;
  rows.slot_elements = whole.slot_elements = 1;
  Result<std::unique_ptr<StatePool>> made = StatePool::create({rows, whole}, {100, 0, 40});
  ASSERT_TRUE(made.is_ok());
  StatePool& pool = **made;
  const auto free_slots = [&] { return pool.space(SpaceKind::kWhole).free_slots(); };
  const int64_t all = free_slots();
  {
    PrefixCache cache(pool);
    Sequence s(pool);
    const auto step = [&](int64_t count) {
      ASSERT_TRUE(s.append(count).is_ok());
      ASSERT_TRUE(s.take_write_slot(s.length()).is_ok());
      s.step_done();
    };
    step(4);
    const int64_t after_four = s.read_slot();
    step(1);
    cache.keep(Tokens{1, 2, 3, 4, 5}, s);
    Sequence found = cache.find(Tokens{1, 2, 3, 4, 9});
    EXPECT_EQ(found.length(), 4);
    EXPECT_EQ(found.read_slot(), after_four);
    EXPECT_TRUE(found.holds(4));
    EXPECT_FALSE(found.holds(3));
    EXPECT_EQ(cache.find(Tokens{1, 2, 3, 7}).length(), 0);  // in the middle of a step
    EXPECT_EQ(cache.find(Tokens{1, 2, 3, 4, 5, 6}).length(), 5);
    // Parts of an edge split what it holds, and lose nothing.
    Sequence other(pool);
    ASSERT_TRUE(other.append(2).is_ok());
    ASSERT_TRUE(other.take_write_slot(other.length()).is_ok());
    other.step_done();
    cache.keep(Tokens{1, 2}, other);
    EXPECT_EQ(cache.find(Tokens{1, 2, 3, 7}).length(), 2);
    EXPECT_EQ(cache.find(Tokens{1, 2, 3, 4, 9}).read_slot(), after_four);
    s.clear();
    other.clear();
    found.clear();
    EXPECT_EQ(free_slots(), all - 3);
    while (cache.drop_oldest()) {
    }
    EXPECT_EQ(free_slots(), all);
    EXPECT_EQ(pool.free_slots(), 100);
  }
  EXPECT_EQ(free_slots(), all);
}

TEST_F(PrefixCacheTest, AsACacheOfAllPromptsWouldFind) {
  std::mt19937 random(std::random_device{}());
  start(100000);
  std::vector<Tokens> prompts;
  for (int i = 0; i < 600; ++i) {
    Tokens tokens(1 + random() % 12);
    for (int64_t& t : tokens) t = static_cast<int64_t>(random() % 3);
    int64_t longest = 0;
    for (const Tokens& p : prompts) {
      const auto same = std::mismatch(tokens.begin(), tokens.end(), p.begin(), p.end()).first - tokens.begin();
      longest = std::max(longest, static_cast<int64_t>(same));
    }
    ASSERT_EQ(run(tokens), longest);
    prompts.push_back(tokens);
  }
  EXPECT_EQ(pool_->free_slots(), 100000 - cache_->slots());
  while (cache_->drop_oldest()) {
  }
  EXPECT_EQ(pool_->free_slots(), 100000);
}

TEST_F(PrefixCacheTest, FewSlots) {
  std::mt19937 random(std::random_device{}());
  start(24);
  for (int i = 0; i < 2000; ++i) {
    Tokens tokens(1 + random() % 12);
    for (int64_t& t : tokens) t = static_cast<int64_t>(random() % 3);
    run(tokens);
    ASSERT_EQ(pool_->free_slots(), 24 - cache_->slots());
  }
}

}  // namespace
}  // namespace situ
