#include <gtest/gtest.h>

#include <random>

#include "generate/allocation_counter_test.h"
#include "generate/sampler.h"

namespace situ {
namespace {

TEST(SamplerMemory, AllocatesNothingAfterTheFirstTokens) {
  constexpr size_t kSize = 5000;
  std::mt19937 random(3);
  std::normal_distribution<float> normal(0, 3);
  std::vector<float> logits(kSize);
  for (float& x : logits) x = normal(random);
  for (const int64_t top_k : {0, 50}) {
    SamplingOptions options;
    options.sample = true, options.temperature = 0.7f, options.top_p = 0.9, options.min_p = 0.01,
    options.typical_p = 0.9;
    options.top_k = top_k, options.repetition_penalty = 1.1f, options.no_repeat_ngram = 3,
    options.frequency_penalty = 0.1f;
    Sampler sampler(options, {}, kSize);
    for (int i = 0; i < 600; ++i) sampler.append(sampler.choose(logits).value());
    const int64_t before = testing::allocations();
    for (int i = 0; i < 400; ++i) sampler.append(sampler.choose(logits).value());
    EXPECT_LE(testing::allocations() - before, 2) << top_k;  // the history's two lists may double
  }
}

// A request that waits has a sampler, and nothing by the vocabulary.
TEST(SamplerMemory, TakesNothingByTheVocabularyBeforeItChooses) {
  constexpr int64_t kVocabulary = 1 << 20;
  SamplingOptions options;
  options.sample = true, options.temperature = 0.7f, options.top_p = 0.9, options.repetition_penalty = 1.1f,
  options.frequency_penalty = 0.1f, options.no_repeat_ngram = 3;
  const std::vector<int64_t> prompt{1, 2, 3};
  testing::fail_allocations(0, 1000, kVocabulary);
  Sampler sampler(options, prompt, kVocabulary);
  EXPECT_EQ(testing::fail_allocations(0, 0), 0);
}

}  // namespace
}  // namespace situ
