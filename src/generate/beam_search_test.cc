#include "generate/beam_search.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <random>

namespace situ {
namespace {

constexpr int64_t kVocabulary = 3, kEnd = 2;

// Log-probabilities [kVocabulary] that depend on all tokens so far.
std::vector<float> model(const std::vector<int64_t>& ids, unsigned seed) {
  for (const int64_t id : ids) seed = seed * 31 + static_cast<unsigned>(id) + 1;
  std::mt19937 random(seed);
  std::vector<float> p(kVocabulary);
  float sum = 0;
  for (float& x : p) sum += x = 0.05f + static_cast<float>(random() % 1000) / 1000;
  for (float& x : p) x = std::log(x / sum);
  return p;
}

std::vector<BeamSearch::Answer> search(const BeamOptions& options, unsigned seed, int64_t* steps = nullptr) {
  BeamSearch search(options);
  while (!search.running().empty()) {
    for (size_t i = 0; i < search.running().size(); ++i) search.offer(i, model(search.running()[i].ids, seed));
    search.advance();
    if (steps) ++*steps;
  }
  return search.answers();
}

// All that a model can answer, best first.
std::vector<BeamSearch::Answer> everything(const BeamOptions& o, unsigned seed) {
  std::vector<BeamSearch::Answer> all;
  const std::function<void(std::vector<int64_t>, double)> extend = [&](std::vector<int64_t> ids, double sum) {
    const std::vector<float> p = model(ids, seed);
    const double divisor = std::pow(static_cast<double>(ids.size() + 1), o.length_penalty);
    for (int64_t token = 0; token < kVocabulary; ++token) {
      const double total = sum + static_cast<double>(p[static_cast<size_t>(token)]);
      std::vector<int64_t> longer = ids;
      if (token != kEnd) longer.push_back(token);
      if (token == kEnd || static_cast<int64_t>(longer.size()) == o.max_new_tokens)
        all.push_back({longer, total / divisor, total, token == kEnd});
      else
        extend(longer, total);
    }
  };
  extend({}, 0);
  std::stable_sort(all.begin(), all.end(), [](const auto& a, const auto& b) { return a.score > b.score; });
  return all;
}

TEST(BeamSearch, WithoutATokenItIsAtALoss) {
  constexpr float kNone = -std::numeric_limits<float>::infinity();
  BeamSearch search({.beams = 2, .max_new_tokens = 5, .end_ids = {kEnd}});
  search.offer(0, std::vector<float>{-1, -2, kNone});
  EXPECT_FALSE(search.at_a_loss());
  search.advance();
  EXPECT_EQ(search.answers().size(), 0u);
  for (size_t i = 0; i < 2; ++i) search.offer(i, std::vector<float>{kNone, kNone, kNone});
  EXPECT_TRUE(search.at_a_loss());
  const std::vector<BeamSearch::Answer> so_far = search.answers_so_far();
  ASSERT_EQ(so_far.size(), 2u);
  EXPECT_EQ(so_far[0].ids, (std::vector<int64_t>{0}));
  EXPECT_EQ(so_far[0].score, -1);
  EXPECT_FALSE(so_far[0].ended);
  search.offer(1, std::vector<float>{kNone, kNone, -1});  // one of them can end
  EXPECT_FALSE(search.at_a_loss());
  search.advance();
  EXPECT_EQ(search.answers()[0].ids, (std::vector<int64_t>{1}));
  EXPECT_EQ(search.answers_so_far().size(), 1u);
}

// As in transformers: what a group avoids is subtracted before a repetition is penalised.
TEST(BeamSearch, AvoidsBeforeRepetitionsArePenalised) {
  const std::vector<float> offered = {-0.2f, -0.9f, -5.0f};  // the first was -0.1, times 2
  for (const bool repeated : {false, true}) {
    BeamSearch search(
        {.beams = 2, .groups = 2, .diversity_penalty = 0.5, .repetition_penalty = 2, .max_new_tokens = 3});
    for (size_t i = 0; i < 2; ++i) search.offer(i, offered, [&](int64_t token) { return repeated && token == 0; });
    search.advance();
    EXPECT_EQ(search.running()[0].ids[0], 0);
    EXPECT_EQ(search.running()[1].ids[0], repeated ? 1 : 0);
    EXPECT_NEAR(search.running()[1].log_probability, repeated ? -0.9 : -0.7, 1e-6);
  }
}

TEST(BeamSearch, WithABeamForEveryAnswerFindsTheBest) {
  for (unsigned seed = 0; seed < 50; ++seed) {
    for (const double penalty : {0.0, 1.0, 2.0, -1.0}) {
      const BeamOptions options{.beams = 40, .length_penalty = penalty, .max_new_tokens = 4, .end_ids = {kEnd}};
      const std::vector<BeamSearch::Answer> want = everything(options, seed), got = search(options, seed);
      ASSERT_EQ(got.size(), want.size());
      for (size_t i = 0; i < want.size(); ++i) {
        EXPECT_NEAR(got[i].score, want[i].score, 1e-5) << i;
        if (i + 1 < want.size() && want[i].score - want[i + 1].score < 1e-4) continue;
        if (i > 0 && want[i - 1].score - want[i].score < 1e-4) continue;
        EXPECT_EQ(got[i].ids, want[i].ids) << i;
        EXPECT_EQ(got[i].ended, want[i].ended) << i;
      }
    }
  }
}

TEST(BeamSearch, OneBeamIsTheGreedyChoice) {
  for (unsigned seed = 0; seed < 50; ++seed) {
    const std::vector<BeamSearch::Answer> got = search({.beams = 1, .max_new_tokens = 6}, seed);
    std::vector<int64_t> ids;
    while (ids.size() < 6) {
      const std::vector<float> p = model(ids, seed);
      ids.push_back(std::max_element(p.begin(), p.end()) - p.begin());
    }
    ASSERT_EQ(got.size(), 1u);
    EXPECT_EQ(got[0].ids, ids);
    EXPECT_FALSE(got[0].ended);
  }
}

TEST(BeamSearch, StopsEarly) {
  int64_t first = 0, attainable = 0, never = 0;
  for (unsigned seed = 0; seed < 100; ++seed) {
    BeamOptions options{.beams = 3, .max_new_tokens = 40, .end_ids = {kEnd}};
    options.early_stopping = EarlyStopping::kFirst;
    EXPECT_EQ(search(options, seed, &first).size(), 3u);
    options.early_stopping = EarlyStopping::kAttainable;
    const double score = search(options, seed, &attainable)[0].score;
    options.early_stopping = EarlyStopping::kNever;
    EXPECT_GE(search(options, seed, &never)[0].score, score - 1e-9);
  }
  EXPECT_LT(first, attainable);
  EXPECT_LT(attainable, never);
}

TEST(BeamSearch, GroupsAvoidEachOthersTokens) {
  for (unsigned seed = 0; seed < 50; ++seed) {
    const std::vector<BeamSearch::Answer> alike = search({.beams = 2, .groups = 2, .max_new_tokens = 3}, seed);
    EXPECT_EQ(alike[0].ids, alike[1].ids);
    const std::vector<BeamSearch::Answer> apart =
        search({.beams = 2, .groups = 2, .diversity_penalty = 100, .max_new_tokens = 3}, seed);
    for (size_t i = 0; i < 3; ++i) EXPECT_NE(apart[0].ids[i], apart[1].ids[i]);
  }
}

TEST(BeamSearch, WhatIsBannedIsNeverChosen) {
  BeamSearch search({.beams = 3, .max_new_tokens = 2});
  search.offer(
      0, std::vector<float>{-1, -std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity()});
  search.advance();
  ASSERT_EQ(search.running().size(), 1u);
  search.offer(0, std::vector<float>(3, -std::numeric_limits<float>::infinity()));
  search.advance();
  EXPECT_TRUE(search.running().empty());
  EXPECT_TRUE(search.answers().empty());
}

}  // namespace
}  // namespace situ
