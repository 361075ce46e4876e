#include "generate/logprobs.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace situ {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
const std::vector<float> kLogits{1.5f, -0.5f, 3.0f, 0.25f, 2.0f, -2.0f, 3.0f, 0.0f, 1.0f, -7.5f, 2.0f, 2.5f};

// Written by torch.log_softmax.
const std::vector<double> kExpected{-2.848445, -4.848445, -1.348445, -4.098445,  -2.348445, -6.348445,
                                    -1.348445, -4.348445, -3.348445, -11.848445, -2.348445, -1.848445};

TEST(LogProbabilities, AreLogSoftmax) {
  LogProbabilities logprobs;
  logprobs.read(kLogits);
  for (size_t i = 0; i < kLogits.size(); ++i)
    EXPECT_NEAR(logprobs.of(static_cast<int64_t>(i)), kExpected[i], 2e-6) << i;
}

TEST(LogProbabilities, TopIsInOrder) {
  LogProbabilities logprobs;
  logprobs.read(kLogits);
  std::vector<int64_t> ids;
  for (const LogProbabilities::Entry& e : logprobs.top(5)) ids.push_back(e.id);
  EXPECT_EQ(ids, (std::vector<int64_t>{2, 6, 11, 4, 10}));
  EXPECT_EQ(logprobs.top(1).size(), 1u);
  EXPECT_EQ(logprobs.top(0).size(), 0u);
  EXPECT_EQ(logprobs.top(12).back().id, 9);
  EXPECT_EQ(logprobs.top(100).size(), 12u);
}

TEST(LogProbabilities, InfinitiesAndNotNumbers) {
  LogProbabilities logprobs;
  const std::vector<float> one{NAN, 5, -kInfinity}, two{kInfinity, 1, kInfinity}, none{-kInfinity, NAN};
  logprobs.read(one);
  EXPECT_EQ(logprobs.of(1), 0);
  EXPECT_EQ(logprobs.of(0), -kInfinity);
  EXPECT_EQ(logprobs.top(3).size(), 1u);
  logprobs.read(two);
  EXPECT_NEAR(logprobs.of(2), std::log(0.5), 1e-12);
  EXPECT_EQ(logprobs.of(1), -kInfinity);
  logprobs.read(none);
  EXPECT_EQ(logprobs.top(2).size(), 0u);
  EXPECT_EQ(logprobs.of(0), -kInfinity);
}

TEST(LogSoftmax, IsWhatEachIdHas) {
  constexpr float kInf = std::numeric_limits<float>::infinity(), kNan = std::numeric_limits<float>::quiet_NaN();
  for (const std::vector<float>& logits : {std::vector<float>{1, 2, 3, -4, 90, 89},
                                           {5},
                                           {},
                                           {0, -kInf, 1},
                                           {1, kNan, 2},
                                           {kNan, 1},
                                           {1, kInf, 2},
                                           {-kInf, -kInf}}) {
    std::vector<float> all(logits.size());
    log_softmax(logits, all);
    LogProbabilities each;
    each.read(logits);
    for (size_t i = 0; i < logits.size(); ++i) {
      const double want = each.of(static_cast<int64_t>(i));
      const bool same = std::isfinite(want) ? std::abs(all[i] - want) <= 1e-5 * (1 + std::abs(want))
                        : std::isnan(want)  ? std::isnan(all[i])
                                            : all[i] == want;
      EXPECT_TRUE(same) << i << ": " << all[i] << " for " << want;
    }
  }
}

}  // namespace
}  // namespace situ
