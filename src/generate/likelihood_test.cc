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
  LikelihoodMeter meter;
  meter.add(numbers, 0);
  EXPECT_EQ(meter.sum().not_a_number, -1);
  meter.add(none, 0);
  EXPECT_EQ(meter.sum().not_a_number, 1);
}

TEST(LikelihoodMeter, SaysWhereNoTokenIsLeft) {
  const float none = -std::numeric_limits<float>::infinity();
  const std::vector<float> one{none, 1, none}, nothing{none, none, none}, unknown{none, NAN, none};
  LikelihoodMeter meter;
  meter.add(one, 1);
  meter.add(one, 0);
  meter.add(unknown, 0);
  EXPECT_EQ(meter.sum().nothing_left, -1);
  meter.add(nothing, 1);
  meter.add(nothing, 1);
  EXPECT_EQ(meter.sum().nothing_left, 3);
}

TEST(LikelihoodMeter, AddsUp) {
  constexpr size_t kVocabulary = 5000;
  std::mt19937 random(1);
  std::normal_distribution<float> normal(0, 4);
  LikelihoodMeter meter;
  std::vector<float> logits(kVocabulary);
  double expected = 0;
  for (int row = 0; row < 100; ++row) {
    for (float& x : logits) x = normal(random);
    const int64_t id = static_cast<int64_t>(random() % kVocabulary);
    LogProbabilities exact;
    exact.read(logits);
    expected -= exact.of(id);
    meter.add(logits, id);
  }
  EXPECT_EQ(meter.sum().tokens, 100);
  EXPECT_NEAR(meter.sum().nll, expected, 1e-5 * expected);
  EXPECT_EQ(meter.sum().not_a_number, -1);
}

TEST(LikelihoodMeter, AnImpossibleTokenIsInfinitelyUnlikely) {
  const std::vector<float> logits{0, -std::numeric_limits<float>::infinity(), 1};
  LikelihoodMeter meter;
  meter.add(logits, 1);
  EXPECT_EQ(meter.sum().nll, std::numeric_limits<double>::infinity());
  EXPECT_EQ(LikelihoodMeter().sum().tokens, 0);
}

}  // namespace
}  // namespace situ
