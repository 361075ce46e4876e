#include "generate/sampler.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <set>

#include "base/sweep_for_tests.h"

namespace situ {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
const std::vector<float> kLogits{1.5f, -0.5f, 3.0f, 0.25f, 2.0f, -2.0f, 3.0f, 0.0f, 1.0f, -7.5f, 2.0f, 2.5f};
constexpr int64_t kVocabulary = 12;

SamplingOptions sampling(uint64_t seed) {
  SamplingOptions options;
  options.sample = true;
  options.seed = seed;
  return options;
}

std::vector<int64_t> draw(const SamplingOptions& options, int count) {
  Sampler sampler(options, {}, kVocabulary);
  std::vector<int64_t> ids;
  for (int i = 0; i < count; ++i) {
    ids.push_back(sampler.choose(kLogits).value());
    sampler.append(ids.back());
  }
  return ids;
}

// Pearson's statistic; infinite where something came that cannot.
double chi_square(const std::vector<int64_t>& ids, const std::map<int64_t, double>& probabilities) {
  std::map<int64_t, double> counts;
  for (const int64_t id : ids) ++counts[id];
  double sum = 0;
  for (const auto& [id, count] : counts)
    if (!probabilities.contains(id)) return kInfinity;
  for (const auto& [id, p] : probabilities) {
    const double expected = p * static_cast<double>(ids.size());
    sum += (counts[id] - expected) * (counts[id] - expected) / expected;
  }
  return sum;
}

// Of transformers 4.57.6 for kLogits. 9, whose probability is 7e-6, is banned: 20,000 draws expect 0.14 of it.
const std::map<int64_t, double> kPlain{{0, 0.057934}, {1, 0.007841},  {2, 0.259644}, {3, 0.016598},
                                       {4, 0.095518}, {5, 0.001749},  {6, 0.259644}, {7, 0.012927},
                                       {8, 0.035139}, {10, 0.095518}, {11, 0.157482}};
const std::map<int64_t, double> kWarped{{2, 0.336831}, {4, 0.080722}, {6, 0.336831}, {10, 0.080722}, {11, 0.164893}};
// What a correct sampler exceeds once in a thousand seeds: chi-square with 10 and with 4 degrees of freedom.
constexpr double kLimit10 = 29.59, kLimit4 = 18.47;
constexpr int kDraws = 20000;

SamplingOptions plain(uint64_t seed) {
  SamplingOptions options = sampling(seed);
  options.biases = {{9, -kInfinity}};
  return options;
}

SamplingOptions warped(uint64_t seed) {
  SamplingOptions options = sampling(seed);
  options.temperature = 0.7f, options.top_k = 8, options.top_p = 0.9, options.min_p = 0.2;
  return options;
}

TEST(Sampler, DrawsTheDistributionOfTransformers) {
  for (uint64_t seed = 1; seed <= 3; seed += static_cast<uint64_t>(sweep_stride(3))) {
    EXPECT_LT(chi_square(draw(plain(seed), kDraws), kPlain), kLimit10) << seed;
    EXPECT_LT(chi_square(draw(warped(seed), kDraws), kWarped), kLimit4) << seed;
  }
  // And over seeds: many answers of one token.
  std::vector<int64_t> first;
  for (uint64_t seed = 0; seed < kDraws; ++seed) first.push_back(draw(plain(seed), 1)[0]);
  EXPECT_LT(chi_square(first, kPlain), kLimit10);
}

TEST(Sampler, TheTestOfTheDistributionCanFail) {
  SamplingOptions wrong = plain(1);
  wrong.temperature = 1.05f;  // next to right
  EXPECT_GT(chi_square(draw(wrong, kDraws), kPlain), kLimit10);
  wrong = warped(1);
  wrong.temperature = 0.75f;
  EXPECT_GT(chi_square(draw(wrong, kDraws), kWarped), kLimit4);
  wrong.top_p = 0.95;
  EXPECT_EQ(chi_square(draw(wrong, kDraws), {{2, 0.5}, {6, 0.5}}), kInfinity);
}

TEST(Sampler, SameSeedSameTokens) {
  EXPECT_EQ(draw(sampling(7), 200), draw(sampling(7), 200));
  EXPECT_NE(draw(sampling(7), 200), draw(sampling(8), 200));
  EXPECT_NE(draw(sampling(7), 200), draw(sampling(7 + (1ull << 40)), 200));
  // Beside another sequence, asked twice, and forked.
  Sampler a(sampling(7), {}, kVocabulary), b(sampling(8), {}, kVocabulary);
  std::vector<int64_t> ids;
  for (int i = 0; i < 200; ++i) {
    const int64_t other = b.choose(kLogits).value();
    if (i % 3) b.append(other);
    if (i == 100) a = Sampler(a);
    ids.push_back(a.choose(kLogits).value());
    EXPECT_EQ(a.choose(kLogits).value(), ids.back());
    a.append(ids.back());
  }
  EXPECT_EQ(ids, draw(sampling(7), 200));
}

int64_t greedy(const SamplingOptions& options, const std::vector<float>& logits,
               const std::vector<int64_t>& prompt = {}, const std::vector<int64_t>& generated = {}) {
  Sampler sampler(options, prompt, static_cast<int64_t>(logits.size()));
  for (const int64_t id : generated) sampler.append(id);
  return sampler.choose(logits).value();
}

TEST(Sampler, GreedyIsTheFirstLargestNumber) {
  EXPECT_EQ(greedy({}, {-kInfinity, 1, 3, 3, -kInfinity}), 2);
  SamplingOptions penalised;
  penalised.presence_penalty = 1;
  EXPECT_EQ(greedy(penalised, {-kInfinity, 1, 3, 2.5f, -kInfinity}, {}, {2}), 3);
  SamplingOptions banned;
  banned.biases = {{0, -kInfinity}};
  EXPECT_EQ(greedy(banned, {kInfinity, 1, 2}), 2);
}

TEST(Sampler, BiasComesBeforeThePenalty) {
  SamplingOptions options;
  options.biases = {{0, -2.0f}};
  options.repetition_penalty = 2;
  // (1 - 2) * 2 = -2; the other order gives 1 / 2 - 2 = -1.5.
  EXPECT_EQ(greedy(options, {1, -1.75f}, {0}), 1);
}

TEST(Sampler, BansHoldAgainstBias) {
  SamplingOptions options;
  options.biases = {{0, 100.0f}, {1, 50.0f}, {2, 25.0f}};
  options.end_ids = {0};
  options.min_new_tokens = 2;
  options.bad_words = {{3, 1}};
  options.no_repeat_ngram = 1;
  EXPECT_EQ(greedy(options, {0, 0, 0, 0}, {3}), 2);         // 0 too early, 1 after 3
  EXPECT_EQ(greedy(options, {0, 0, 0, 0}, {}, {3, 2}), 0);  // not too early any more
}

TEST(Sampler, ALogitThatIsNoNumberIsAnError) {
  std::vector<float> logits(200, 1);
  logits[70] = logits[190] = NAN;
  SamplingOptions options[3];
  options[1].sample = true;
  options[2].suppressed = {70};  // not even where it could not be chosen
  for (const SamplingOptions& o : options) {
    Sampler sampler(o, std::vector<int64_t>{5}, 200);
    sampler.append(6);
    EXPECT_EQ(sampler.choose(logits).status().message(), "logits of id 70 are not a number after 1 new tokens");
  }
}

TEST(Sampler, TopPOf0KeepsTheBest) {
  SamplingOptions options = sampling(1);
  options.top_p = 0;
  const std::vector<float> one{-1, 4, 3.9f, -kInfinity, 3};
  for (uint64_t seed = 0; seed < 50; ++seed) {
    options.seed = seed;
    EXPECT_EQ(Sampler(options, {}, 5).choose(one).value(), 1);
    EXPECT_TRUE((std::set<int64_t>{2, 6}.contains(draw(options, 1)[0])));  // as probable as each other
  }
}

TEST(Sampler, NothingLeftIsAnErrorThatSaysWhy) {
  const std::vector<float> none{-kInfinity, -kInfinity}, two{1, 2};
  for (const bool sample : {false, true}) {
    SamplingOptions options = sampling(1);
    options.sample = sample;
    EXPECT_NE(Sampler(options, {}, 2).choose(none).status().message().find("every logit"), std::string::npos);
    options.no_repeat_ngram = 1;
    options.bad_words = {{1}};
    const std::string message = Sampler(options, std::vector<int64_t>{0}, 2).choose(two).status().message();
    EXPECT_NE(message.find("no_repeat_ngram 1, bad_words"), std::string::npos) << message;
  }
}

}  // namespace
}  // namespace situ
