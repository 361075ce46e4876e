// Barriers against the edges of random schedules: each is enough, and none is one too many.
#include "runtime/barriers.h"

#include <gtest/gtest.h>

#include <random>

namespace situ {
namespace {

// A schedule of which only what barriers look at is filled in.
Schedule random_schedule(uint32_t seed) {
  std::mt19937 random(seed);
  const auto pick = [&](int low, int high) { return std::uniform_int_distribution<int>(low, high)(random); };
  Schedule s;
  const int count = pick(1, 24);
  for (int i = 0; i < count; ++i) {
    Call c;
    c.for_logits = pick(0, 3) == 0;
    c.takes = static_cast<Takes>(pick(0, 3));
    s.calls.push_back(c);
    for (int before = 0; before < i; ++before)
      if (pick(0, count) < 3) s.edges.push_back({before, i});
  }
  for (int begin = pick(0, 4); begin + 1 < count;) {
    const int end = std::min(count, begin + pick(2, 4));
    s.row_groups.push_back({begin, end});
    begin = end + pick(0, 5);
  }
  return s;
}

TEST(Barriers, AreAsManyAsTheEdgesOfAScheduleNeed) {
  int barriers = 0;
  for (uint32_t seed = 0; seed < 400; ++seed) {
    const Schedule s = random_schedule(seed);
    for (int k = 0; k < kStepKinds; ++k) {
      const StepKind kind = step_kind(k);
      const std::vector<char> made = barriers_of(s, kind);
      const Status good = check_barriers(s, kind, made);
      ASSERT_TRUE(good.is_ok()) << "seed " << seed << ", kind " << k << ": " << good.message();
      for (size_t i = 0; i < made.size(); ++i) {
        if (!made[i]) continue;
        ++barriers;
        std::vector<char> fewer = made;
        fewer[i] = 0;
        EXPECT_FALSE(check_barriers(s, kind, fewer).is_ok()) << "seed " << seed << ", kind " << k << ", call " << i;
        if (i + 1 == made.size() || made[i + 1]) continue;
        fewer[i + 1] = 1;  // later than the call that waits
        EXPECT_FALSE(check_barriers(s, kind, fewer).is_ok()) << "seed " << seed << ", kind " << k << ", call " << i;
      }
    }
  }
  EXPECT_GT(barriers, 1000);
}

TEST(Barriers, OfAChainStandBeforeEveryCallButTheFirst) {
  Schedule s;
  s.calls.resize(5);
  for (int i = 1; i < 5; ++i) s.edges.push_back({i - 1, i});
  EXPECT_EQ(barriers_of(s, {}), (std::vector<char>{0, 1, 1, 1, 1}));
  s.row_groups.push_back({1, 4});
  EXPECT_EQ(barriers_of(s, {true, false, true}), (std::vector<char>{0, 1, 0, 0, 1}));
}

// A waits for B through what is left out: the barrier stays.
TEST(Barriers, KeepTheOrderThroughCallsThatAreLeftOut) {
  Schedule s;
  s.calls.resize(3);
  s.calls[1].for_logits = true;
  s.edges = {{0, 1}, {1, 2}};
  EXPECT_EQ(barriers_of(s, {false, false, false}), (std::vector<char>{0, 0, 1}));
}

TEST(Barriers, OfCallsThatDoNotWaitAreNone) {
  Schedule s;
  s.calls.resize(4);
  s.edges = {{0, 3}, {1, 3}, {2, 3}};
  EXPECT_EQ(barriers_of(s, {}), (std::vector<char>{0, 0, 0, 1}));
}

}  // namespace
}  // namespace situ
