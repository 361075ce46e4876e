#include "generate/penalties.h"

#include <gtest/gtest.h>

#include <limits>

namespace situ {
namespace {

const std::vector<float> kLogits{1.5f, -0.5f, 3.0f, 0.25f, 2.0f, -2.0f, 3.0f, 0.0f, 1.0f, -7.5f, 2.0f, 2.5f};

void expect_near(const std::vector<float>& found, const std::vector<float>& expected) {
  ASSERT_EQ(found.size(), expected.size());
  for (size_t i = 0; i < found.size(); ++i) EXPECT_FLOAT_EQ(found[i], expected[i]) << i;
}

// Written by RepetitionPenaltyLogitsProcessor of transformers 4.57.6 for the ids 2, 5, 2, 0, 9, 1.
TEST(Penalties, RepetitionIsThatOfTransformers) {
  TokenHistory history(std::vector<int64_t>{2, 5, 2}, 12);  // prompt or generated makes no difference, nor how often
  for (const int64_t id : {0, 9, 1}) history.append(id);
  std::vector<float> scores = kLogits;
  penalise_repetition(scores, history.distinct(), 1.3f);
  expect_near(scores, {1.1538461f, -0.65f, 2.3076923f, 0.25f, 2, -2.6f, 3, 0, 1, -9.75f, 2, 2.5f});
  scores = kLogits;
  penalise_repetition(scores, history.distinct(), 0.5f);
  expect_near(scores, {3, -0.25f, 6, 0.25f, 2, -1, 3, 0, 1, -3.75f, 2, 2.5f});
}

TEST(Penalties, PresenceAndFrequencyCountTheAnswerOnly) {
  TokenHistory history(std::vector<int64_t>{2, 5, 2}, 12);
  for (const int64_t id : {5, 7, 7, 7}) history.append(id);
  std::vector<float> scores = kLogits;
  penalise_presence(scores, history, 0.5f, 0.25f);
  std::vector<float> expected = kLogits;
  expected[5] -= 0.75f, expected[7] -= 1.25f;
  expect_near(scores, expected);
}

// Written by SequenceBiasLogitsProcessor of transformers 4.57.6.
TEST(Penalties, Bias) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  std::vector<float> scores = kLogits;
  const LogitBias biases[] = {{3, 5.0f}, {0, -1.25f}, {6, -kInfinity}};
  add_bias(scores, biases);
  expect_near(scores, {0.25f, -0.5f, 3, 5.25f, 2, -2, -kInfinity, 0, 1, -7.5f, 2, 2.5f});
}

TEST(TokenHistory, CountsAndOrders) {
  TokenHistory history(std::vector<int64_t>{3, 1, 3}, 5);
  history.append(1);
  history.append(4);
  EXPECT_EQ(std::vector<int64_t>(history.ids().begin(), history.ids().end()), (std::vector<int64_t>{3, 1, 3, 1, 4}));
  EXPECT_EQ(std::vector<int64_t>(history.distinct().begin(), history.distinct().end()),
            (std::vector<int64_t>{3, 1, 4}));
  EXPECT_EQ(history.generated(), 2);
  EXPECT_EQ(history.count(0) + history.count(3), 0);
  EXPECT_EQ(history.count(1) + history.count(4), 2);
}

}  // namespace
}  // namespace situ
