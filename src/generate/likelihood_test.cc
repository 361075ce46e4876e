#include "generate/likelihood.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

#include "generate/logprobs.h"

namespace situ {
namespace {

TEST(LikelihoodMeter, SaysWhichLogitIsNoNumber) {
  const std::vector<float> numbers{1, -std::numeric_limits<float>::infinity()}, none{1, NAN};
  LikelihoodMeter meter(false);
  meter.add(numbers, 0);
  EXPECT_EQ(meter.sum().not_a_number, -1);
  meter.add(none, 0);
  EXPECT_EQ(meter.sum().not_a_number, 1);
}

// Two places that steps write in turn, as an engine has them: each step waits for what it is about to overwrite.
TEST(LikelihoodMeter, ReadsWhileStepsRun) {
  constexpr size_t kVocabulary = 5000, kRows = 7;
  std::mt19937 random(1);
  std::normal_distribution<float> normal(0, 4);
  for (const bool beside : {true, false}) {
    LikelihoodMeter meter(beside);
    std::vector<float> places[2] = {std::vector<float>(kRows * kVocabulary), std::vector<float>(kRows * kVocabulary)};
    double expected = 0;
    for (int step = 0; step < 60; ++step) {
      meter.begin_step();
      std::vector<float>& place = places[step % 2];
      for (float& x : place) x = normal(random);
      for (size_t row = 0; row < kRows; ++row) {
        const std::span<const float> logits = std::span(place).subspan(row * kVocabulary, kVocabulary);
        const int64_t id = static_cast<int64_t>(random() % kVocabulary);
        LogProbabilities exact;
        exact.read(logits);
        expected -= exact.of(id);
        meter.add(logits, id);
      }
    }
    const LikelihoodMeter::Sum sum = meter.sum();
    EXPECT_EQ(sum.tokens, 60 * 7);
    EXPECT_NEAR(sum.nll, expected, 1e-5 * expected);
    EXPECT_EQ(sum.not_a_number, -1);
  }
}

TEST(LikelihoodMeter, AnImpossibleTokenIsInfinitelyUnlikely) {
  const std::vector<float> logits{0, -std::numeric_limits<float>::infinity(), 1};
  LikelihoodMeter meter(true);
  meter.add(logits, 1);
  EXPECT_EQ(meter.sum().nll, std::numeric_limits<double>::infinity());
  EXPECT_EQ(LikelihoodMeter(true).sum().tokens, 0);
}

}  // namespace
}  // namespace situ
