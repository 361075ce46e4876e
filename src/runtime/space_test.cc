#include "runtime/space.h"

#include <gtest/gtest.h>

#include <set>

namespace situ {
namespace {

std::unique_ptr<StatePool> pool_of(int64_t capacity) {
  Result<std::unique_ptr<StatePool>> pool = StatePool::create({}, {capacity});
  EXPECT_TRUE(pool.is_ok());
  return std::move(*pool);
}

std::set<int64_t> slots_of(const Sequence& s) {
  std::set<int64_t> slots;
  for (const auto& r : s.runs())
    for (int64_t i = 0; i < r.length; ++i) slots.insert(r.first_slot + i);
  return slots;
}

// Of its first `count` tokens.
std::set<int64_t> first_slots(const Sequence& s, int64_t count) {
  std::set<int64_t> slots;
  for (const auto& r : s.runs())
    for (int64_t i = 0; i < r.length && count > 0; ++i, --count) slots.insert(r.first_slot + i);
  return slots;
}

// Runs of blocks of 16 slots here; one run each where sequences have to be.
TEST(StatePool, SequencesThatTakeTurnsHaveFewRuns) {
  for (const bool spread : {false, true}) {
    const auto pool = pool_of(1024);
    if (spread) pool->space(SpaceKind::kAppend).spread();
    Sequence a(*pool), b(*pool);
    for (int i = 0; i < 100; ++i) {
      ASSERT_TRUE(a.append(1).is_ok());
      ASSERT_TRUE(b.append(1).is_ok());
    }
    EXPECT_LE(a.runs().size(), spread ? 1u : 7u);
    EXPECT_LE(b.runs().size(), spread ? 1u : 7u);
  }
}

TEST(StatePool, SlotsThatWereUsedComeFirst) {
  const auto pool = pool_of(64 * 256);
  std::set<int64_t> used;
  for (int i = 0; i < 1000; ++i) {
    Sequence a(*pool), b(*pool);
    ASSERT_TRUE(a.append(10 + i % 90).is_ok());
    ASSERT_TRUE(b.append(300).is_ok());
    for (const Sequence* s : {&a, &b}) used.merge(slots_of(*s));
  }
  EXPECT_LE(*used.rbegin(), 1024);
  EXPECT_EQ(pool->free_slots(), 64 * 256);
}

TEST(StatePool, TheLastSlotsAreCutOffOnceTheyAreFree) {
  const auto pool = pool_of(64);
  Space& space = pool->space(SpaceKind::kAppend);
  Sequence a(*pool), b(*pool);
  ASSERT_TRUE(a.append(20).is_ok());
  ASSERT_TRUE(b.append(40).is_ok());
  EXPECT_FALSE(space.cut(10));
  EXPECT_FALSE(space.cut(100));
  EXPECT_EQ(pool->capacity(), 64);
  b.clear();
  EXPECT_TRUE(space.cut(10));
  EXPECT_EQ(pool->capacity(), 54);
  EXPECT_EQ(pool->free_slots(), 34);
  while (a.length() < 54) ASSERT_TRUE(a.append(54).is_ok());
  EXPECT_FALSE(a.append(1).is_ok());
  EXPECT_EQ(*slots_of(a).rbegin(), 53);
  pool->give_back();
  a.clear();
  EXPECT_EQ(pool->free_slots(), 54);
}

TEST(StatePool, EverySlotIsFoundInPieces) {
  const auto pool = pool_of(64);
  std::vector<Sequence> singles;
  for (int i = 0; i < 64; ++i) {
    singles.emplace_back(*pool);
    ASSERT_TRUE(singles.back().append(1).is_ok());
  }
  for (size_t i = 0; i < singles.size(); i += 2)
    singles[i].clear();  // no two free slots are neighbours, if they were in order
  ASSERT_EQ(pool->free_slots(), 32);
  Sequence s(*pool);
  while (s.length() < 32) ASSERT_TRUE(s.append(32 - s.length()).is_ok());
  EXPECT_EQ(slots_of(s).size(), 32u);
  const Result<situ::Run> none = s.append(1);
  ASSERT_FALSE(none.is_ok());
  EXPECT_NE(none.status().message().find("all 64 slots are taken"), std::string::npos);
  for (size_t i = 1; i < singles.size(); i += 2) EXPECT_EQ(slots_of(s).count(*slots_of(singles[i]).begin()), 0u);
}

TEST(StatePool, ForksShareSlotsUntilTheLastIsGone) {
  const auto pool = pool_of(64);
  Sequence a(*pool);
  ASSERT_TRUE(a.append(10).is_ok());
  Sequence b = a.fork();
  EXPECT_EQ(slots_of(a), slots_of(b));
  EXPECT_EQ(pool->free_slots(), 54);
  ASSERT_TRUE(a.append(5).is_ok());
  ASSERT_TRUE(b.append(5).is_ok());
  EXPECT_EQ(pool->free_slots(), 44);
  a.rewind(4);
  EXPECT_EQ(pool->free_slots(), 49);  // the five of its own; the others are b's too
  b.rewind(7);
  EXPECT_EQ(pool->free_slots(), 57);
  b.clear();
  EXPECT_EQ(pool->free_slots(), 60);
  a.clear();
  EXPECT_EQ(pool->free_slots(), 64);
}

// A window moves on: the same slots stand for other tokens again and again.
TEST(StatePool, WhatLeavesTheWindowIsFree) {
  for (int64_t first : {0, 3, 7}) {
    const auto pool = pool_of(40);
    Sequence s(*pool), fork(*pool);
    ASSERT_TRUE(s.append(9).is_ok());
    fork = s.fork();
    const std::set<int64_t> kept_by_fork = slots_of(fork), sinks = first_slots(s, first);
    for (int64_t length = 9; length < 200; ++length) {
      ASSERT_TRUE(s.append(1).is_ok());
      s.drop(12 + first, first);
      EXPECT_EQ(s.length(), length + 1);
      EXPECT_EQ(s.kept(), std::min(length + 1, 12 + first));
      EXPECT_EQ(slots_of(s).size(), static_cast<size_t>(s.kept()));
      EXPECT_EQ(first_slots(s, first), sinks);
      EXPECT_LE(s.runs().size(), 6u);
    }
    EXPECT_EQ(slots_of(fork), kept_by_fork);
    EXPECT_EQ(pool->free_slots(), 40 - 9 - 12);
    s.rewind(195);
    EXPECT_EQ(s.kept(), 12 + first - 5);
    Sequence other = s.fork();
    EXPECT_EQ(other.kept(), s.kept());
    EXPECT_EQ(other.length(), 195);
    s.clear();
    other.clear();
    fork.clear();
    EXPECT_EQ(pool->free_slots(), 40);
  }
}

TEST(Sequence, TokensThatAreTied) {
  const auto pool = pool_of(40);
  Sequence s(*pool);
  for (const int64_t count : {5, 1, 4}) {
    ASSERT_TRUE(s.append(count).is_ok());
    s.tie(count);
  }
  const auto whole = [](const Sequence& sequence) {
    std::vector<int64_t> all;
    for (int64_t length = 0; length <= sequence.length(); ++length) all.push_back(sequence.whole_before(length));
    return all;
  };
  EXPECT_EQ(whole(s), (std::vector<int64_t>{0, 0, 0, 0, 0, 5, 6, 6, 6, 6, 10}));
  Sequence fork = s.fork(), moved(*pool);
  s.rewind(6);
  EXPECT_EQ(whole(s), (std::vector<int64_t>{0, 0, 0, 0, 0, 5, 6}));
  ASSERT_TRUE(s.append(2).is_ok());
  EXPECT_EQ(whole(s).back(), 8);
  EXPECT_EQ(s.whole_before(7), 7);
  s.clear();
  EXPECT_EQ(s.whole_before(3), 3);
  moved = std::move(fork);
  EXPECT_EQ(moved.whole_before(9), 6);
}

}  // namespace
}  // namespace situ
