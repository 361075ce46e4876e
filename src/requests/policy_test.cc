// Decisions of the scheduler, on a model that is none: it has slots, steps and a clock of its own.
#include "requests/policy.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

namespace situ {
namespace {

using Waiting = Policy::Waiting;

std::vector<uint64_t> order_of(Policy& policy, std::vector<Waiting> waiting) {
  std::vector<uint64_t> order;
  while (!waiting.empty()) {
    const size_t chosen = policy.next(waiting);
    order.push_back(waiting[chosen].number);
    policy.admitted(waiting[chosen]);
    waiting.erase(waiting.begin() + static_cast<int64_t>(chosen));
  }
  return order;
}

TEST(Policy, OneClientIsServedInOrder) {
  Policy policy;
  EXPECT_EQ(order_of(policy, {{0, "", false, 1}, {0, "", false, 2}, {0, "", false, 3}}),
            (std::vector<uint64_t>{1, 2, 3}));
}

TEST(Policy, ClientsTakeTurns) {
  Policy policy;
  EXPECT_EQ(order_of(policy, {{0, "a", false, 1},
                              {0, "a", false, 2},
                              {0, "a", false, 3},
                              {0, "b", false, 4},
                              {0, "b", false, 5},
                              {0, "c", false, 6}}),
            (std::vector<uint64_t>{1, 4, 6, 2, 5, 3}));
}

// A new connection for each request is a new client each time.
TEST(Policy, NewClientsDoNotKeepAnOldOneWaiting) {
  Policy policy;
  std::vector<Waiting> waiting{{0, "old", false, 0}};
  policy.admitted(waiting[0]);
  waiting[0].number = 1;
  for (uint64_t i = 2; i < 6; ++i) {
    waiting.push_back({0, "new " + std::to_string(i), false, i});
    const size_t chosen = policy.next(waiting);
    if (waiting[chosen].client == "old") return;
    policy.admitted(waiting[chosen]);
    waiting.erase(waiting.begin() + static_cast<int64_t>(chosen));
  }
  FAIL() << "the old client was never chosen";
}

TEST(Policy, PriorityIsBeforeTurns) {
  Policy policy;
  EXPECT_EQ(order_of(policy, {{0, "a", false, 1}, {2, "a", false, 2}, {2, "a", false, 3}, {-1, "b", false, 4}}),
            (std::vector<uint64_t>{2, 3, 1, 4}));
}

TEST(Policy, WhoGaveWayIsAtTheHeadOfItsQueue) {
  Policy policy;
  EXPECT_EQ(order_of(policy, {{0, "", false, 7}, {0, "", false, 8}, {0, "", true, 9}}),
            (std::vector<uint64_t>{9, 7, 8}));
}

TEST(Policy, TheYoungestOfTheLowestPriorityGivesWay) {
  EXPECT_EQ(Policy::victim(std::vector<Policy::Running>{{0, 1, true}, {0, 5, true}, {0, 3, true}}), 1);
  EXPECT_EQ(Policy::victim(std::vector<Policy::Running>{{1, 9, true}, {0, 1, true}}), 1);
  EXPECT_EQ(Policy::victim(std::vector<Policy::Running>{{0, 9, false}, {0, 1, true}}), 1);
  EXPECT_EQ(Policy::victim(std::vector<Policy::Running>{{0, 9, false}}), -1);
}

TEST(Policy, OneSlotIn32IsHeldBack) {
  EXPECT_TRUE(Policy::fits(300, 310, 320, false));
  EXPECT_FALSE(Policy::fits(301, 310, 320, false));
  EXPECT_TRUE(Policy::fits(310, 310, 320, true));
}

// Steps of 20 ms, and 0.5 ms for each row of a prompt beside it: the pieces that are fed soon keep to 40 ms, where
// somebody waits; else they are whole.
TEST(Policy, PromptsTakeWhatAnswersLeave) {
  Policy policy;
  constexpr double kDecode = 20, kRow = 0.5;
  constexpr int64_t kChunk = 512;
  EXPECT_EQ(policy.prompt_rows(false, true, kChunk), kChunk);
  EXPECT_EQ(policy.prompt_rows(true, false, kChunk), kChunk);
  for (int i = 0; i < 20; ++i) policy.learn(kDecode, 8, 0);
  double longest = 0;
  for (int i = 0; i < 200; ++i) {
    const int64_t rows = policy.prompt_rows(true, true, kChunk);
    const double ms = kDecode + kRow * static_cast<double>(rows);
    if (i > 0) longest = std::max(longest, ms);
    policy.learn(ms, 8, rows);
  }
  EXPECT_LE(longest, 2 * kDecode + kRow);
  EXPECT_GE(policy.prompt_rows(true, true, kChunk), 30);
  // Short steps may last 30 ms; prompts come to an end beside steps of any length.
  Policy quick, slow;
  for (int i = 0; i < 20; ++i) {
    quick.learn(2, 8, 0);
    quick.learn(2 + 16 * 0.1, 8, 16);
    slow.learn(2, 8, 0);
    slow.learn(2 + 16 * 10, 8, 16);
  }
  EXPECT_NEAR(static_cast<double>(quick.prompt_rows(true, true, kChunk)), 280, 5);
  EXPECT_EQ(slow.prompt_rows(true, true, kChunk), 16);
}

// An encoder of 200 pieces of 4 ms beside steps of 20 ms, and prompts whose rows take 0.5 ms: a step is at most twice
// as long as without them, but for the piece that was begun.
TEST(Policy, EncodersAreSuspendedBesideAnswers) {
  Policy policy;
  constexpr double kDecode = 20, kRow = 0.5, kPiece = 4;
  for (int i = 0; i < 20; ++i) policy.learn(kDecode, 8, 0);
  policy.learn(kDecode + 16 * kRow, 8, 16);
  int left = 200, steps = 0;
  double longest = 0;
  for (; left > 0; ++steps) {
    double spent = 0;
    do {
      spent += kPiece;
      --left;
    } while (left > 0 && spent < policy.encoder_ms(true));
    const int64_t rows = policy.prompt_rows(true, true, 512, spent);
    EXPECT_GE(rows, 16);
    longest = std::max(longest, spent + kDecode + kRow * static_cast<double>(rows));
    policy.learn(kDecode + kRow * static_cast<double>(rows), 8, rows);
  }
  EXPECT_LE(longest, 2 * kDecode + kPiece);
  EXPECT_LE(steps, 70);
  // Beside none that somebody waits for, it goes on long.
  EXPECT_GT(policy.encoder_ms(false), 10 * policy.encoder_ms(true));
}

}  // namespace
}  // namespace situ
