#include "generate/candidates.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <random>

namespace situ {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
const std::vector<float> kLogits{1.5f, -0.5f, 3.0f, 0.25f, 2.0f, -2.0f, 3.0f, 0.0f, 1.0f, -7.5f, 2.0f, 2.5f};

struct Case {
  const char* name;
  std::function<void(Candidates&)> warp;
  std::vector<int64_t> ids;
  std::vector<double> probabilities;
};

// Written by the warpers of transformers 4.57.6 for kLogits, in which 2 and 6, and 4 and 10, are equal.
const Case kCases[] = {
    {"all",
     [](Candidates& c) { c.take(kLogits, 0, 1); },
     {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11},
     {0.057934, 0.007841, 0.259644, 0.016598, 0.095518, 0.001749, 0.259644, 0.012927, 0.035139, 7e-06, 0.095518,
      0.157482}},
    {"top_k 50",
     [](Candidates& c) { c.take(kLogits, 50, 1); },
     {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11},
     {0.057934, 0.007841, 0.259644, 0.016598, 0.095518, 0.001749, 0.259644, 0.012927, 0.035139, 7e-06, 0.095518,
      0.157482}},
    {"top_k 1", [](Candidates& c) { c.take(kLogits, 1, 1); }, {2, 6}, {0.5, 0.5}},
    {"top_k 3", [](Candidates& c) { c.take(kLogits, 3, 1); }, {2, 6, 11}, {0.383652, 0.383652, 0.232697}},
    {"top_k 5",
     [](Candidates& c) { c.take(kLogits, 5, 1); },
     {2, 4, 6, 10, 11},
     {0.299196, 0.110068, 0.299196, 0.110068, 0.181472}},
    {"top_p 0.05", [](Candidates& c) { c.take(kLogits, 0, 1), c.keep_top_p(0.05); }, {6}, {1}},
    {"top_p 0.3", [](Candidates& c) { c.take(kLogits, 0, 1), c.keep_top_p(0.3); }, {2, 6}, {0.5, 0.5}},
    {"top_p 0.75",
     [](Candidates& c) { c.take(kLogits, 0, 1), c.keep_top_p(0.75); },
     {2, 6, 10, 11},
     {0.336201, 0.336201, 0.123681, 0.203916}},
    {"top_p 0.9",
     [](Candidates& c) { c.take(kLogits, 0, 1), c.keep_top_p(0.9); },
     {0, 2, 4, 6, 10, 11},
     {0.062582, 0.280472, 0.10318, 0.280472, 0.10318, 0.170115}},
    {"top_p 0.999",
     [](Candidates& c) { c.take(kLogits, 0, 1), c.keep_top_p(0.999); },
     {0, 1, 2, 3, 4, 5, 6, 7, 8, 10, 11},
     {0.057935, 0.007841, 0.259645, 0.016599, 0.095518, 0.001749, 0.259645, 0.012927, 0.035139, 0.095518, 0.157483}},
    {"min_p 0.1",
     [](Candidates& c) { c.take(kLogits, 0, 1), c.keep_min_p(0.1); },
     {0, 2, 4, 6, 8, 10, 11},
     {0.060293, 0.270215, 0.099407, 0.270215, 0.03657, 0.099407, 0.163894}},
    {"min_p 0.3",
     [](Candidates& c) { c.take(kLogits, 0, 1), c.keep_min_p(0.3); },
     {2, 4, 6, 10, 11},
     {0.299196, 0.110068, 0.299196, 0.110068, 0.181472}},
    {"min_p 1", [](Candidates& c) { c.take(kLogits, 0, 1), c.keep_min_p(1); }, {2, 6}, {0.5, 0.5}},
    {"typical 0.05", [](Candidates& c) { c.take(kLogits, 0, 1), c.keep_typical(0.05); }, {11}, {1}},
    {"typical 0.2",
     [](Candidates& c) { c.take(kLogits, 0, 1), c.keep_typical(0.2); },
     {4, 10, 11},
     {0.274069, 0.274069, 0.451863}},
    {"typical 0.5",
     [](Candidates& c) { c.take(kLogits, 0, 1), c.keep_typical(0.5); },
     {2, 4, 6, 10, 11},
     {0.299196, 0.110068, 0.299196, 0.110068, 0.181472}},
    {"typical 0.95",
     [](Candidates& c) { c.take(kLogits, 0, 1), c.keep_typical(0.95); },
     {0, 2, 4, 6, 8, 10, 11},
     {0.060293, 0.270215, 0.099407, 0.270215, 0.03657, 0.099407, 0.163894}},
    {"temperature 0.7",
     [](Candidates& c) { c.take(kLogits, 0, 0.7f); },
     {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11},
     {0.03684, 0.002116, 0.314015, 0.006177, 0.075254, 0.000248, 0.314015, 0.004322, 0.018035, 0, 0.075254, 0.153723}},
    {"0.7, top_k 8, top_p 0.9, min_p 0.2",
     [](Candidates& c) { c.take(kLogits, 8, 0.7f), c.keep_top_p(0.9), c.keep_min_p(0.2); },
     {2, 4, 6, 10, 11},
     {0.336831, 0.080722, 0.336831, 0.080722, 0.164893}},
    {"and typical 0.6",
     [](Candidates& c) { c.take(kLogits, 8, 0.7f), c.keep_top_p(0.9), c.keep_min_p(0.2), c.keep_typical(0.6); },
     {2, 6},
     {0.5, 0.5}},
    {"2, top_k 9, top_p 0.95, typical 0.9",
     [](Candidates& c) { c.take(kLogits, 9, 2), c.keep_top_p(0.95), c.keep_typical(0.9); },
     {0, 2, 4, 6, 8, 10, 11},
     {0.097756, 0.206949, 0.125521, 0.206949, 0.076132, 0.125521, 0.161172}},
};

TEST(Candidates, AreThoseOfTransformers) {
  Candidates candidates;  // one for all: nothing of a token is left for the next
  for (const Case& c : kCases) {
    SCOPED_TRACE(c.name);
    c.warp(candidates);
    size_t next = 0;
    for (int64_t id = 0; id < static_cast<int64_t>(kLogits.size()); ++id) {
      const bool kept = next < c.ids.size() && c.ids[next] == id;
      EXPECT_NEAR(candidates.probability(id), kept ? c.probabilities[next] : 0, 1e-6) << id;
      next += kept ? 1 : 0;
    }
  }
}

// Also where scores are flat, by themselves or by the temperature, and a thousandth of the sum is more than any share.
TEST(Candidates, NoMassIsTheBest) {
  Candidates candidates;
  for (const size_t count : {3, 5000})
    for (const float temperature : {0.5f, 100.0f, 1e35f})
      for (const bool flat : {true, false}) {
        SCOPED_TRACE(std::to_string(count) + " " + std::to_string(temperature) + " " + std::to_string(flat));
        std::vector<float> scores(count, 1.0f);
        const size_t best = flat ? count - 1 : count / 2;
        if (!flat) scores[best] = 1.001f;
        const int64_t first = std::max_element(scores.begin(), scores.end()) - scores.begin();
        candidates.take_top_p(scores, first, temperature, 0);
        ASSERT_FALSE(candidates.empty());
        EXPECT_EQ(candidates.draw(1, 1), static_cast<int64_t>(best));
        for (const int64_t top_k : {0, 2}) {
          candidates.take(scores, top_k, temperature);
          candidates.keep_top_p(0);
          EXPECT_EQ(candidates.probability(static_cast<int64_t>(best)), 1);
        }
      }
}

TEST(Candidates, DrawByTheirShares) {
  Candidates candidates;
  candidates.take(std::vector<float>{-kInfinity, std::log(2.0f), -kInfinity, std::log(6.0f), 0}, 0,
                  1);  // 2/9, 6/9, 1/9
  constexpr int kDraws = 90000;
  std::map<int64_t, double> counts;
  for (uint64_t position = 0; position < kDraws; ++position) counts[candidates.draw(5, position)] += 1.0 / kDraws;
  EXPECT_EQ(counts.size(), 3u);
  for (const auto& [id, share] : {std::pair<int64_t, double>{1, 2.0 / 9}, {3, 6.0 / 9}, {4, 1.0 / 9}})
    EXPECT_NEAR(counts[id], share, 4 * std::sqrt(share * (1 - share) / kDraws));
}

// With numbers that decide by shares of [0, 1) in the order of ids, one draw in ten changes here.
TEST(Candidates, DrawTheSameWhenScoresChangeALittle) {
  std::mt19937 random(1);
  std::normal_distribution<float> normal(0, 3), small(0, 0.02f);
  Candidates one, other;
  int differ = 0;
  constexpr int kDraws = 500;
  for (uint64_t position = 0; position < kDraws; ++position) {
    std::vector<float> scores(5000), changed;
    for (float& x : scores) changed.push_back((x = normal(random)) + small(random));
    one.take(scores, 50, 1);
    other.take(changed, 50, 1);
    differ += one.draw(7, position) != other.draw(7, position);
  }
  EXPECT_LT(differ, kDraws / 50);
}

// take_top_p looks for the same candidates as take and keep_top_p, whatever the shape of the scores.
TEST(Candidates, TopPAtOnceKeepsTheSame) {
  std::mt19937 random(2);
  Candidates at_once, after;
  for (const float deviation : {0.01f, 0.5f, 1.5f, 3.0f, 9.0f})
    for (const double mass : {0.05, 0.5, 0.95, 0.9999999})
      for (const size_t count : {7, 300, 20000}) {
        std::normal_distribution<float> normal(0, deviation);
        std::vector<float> scores(count);
        for (float& x : scores) x = normal(random);
        for (size_t i = 0; i < count; i += 5) scores[i] = scores[0];  // many are equal
        const int64_t best = std::max_element(scores.begin(), scores.end()) - scores.begin();
        at_once.take_top_p(scores, best, 0.8f, mass);
        after.take(scores, 0, 0.8f);
        after.keep_top_p(mass);
        for (uint64_t position = 0; position < 20; ++position)
          EXPECT_EQ(at_once.draw(1, position), after.draw(1, position)) << deviation << " " << mass << " " << count;
        EXPECT_NEAR(at_once.probability(best), after.probability(best), 1e-3 * after.probability(best))
            << deviation << " " << mass << " " << count;
      }
}

TEST(Candidates, ExtremeScoresAndTemperatures) {
  Candidates candidates;
  candidates.take(std::vector<float>{-3e38f, 3e38f, 2.9e38f}, 0, 1);
  EXPECT_EQ(candidates.probability(1), 1);
  candidates.take(std::vector<float>{1, 1.0001f, -5}, 0, 1e-37f);
  EXPECT_EQ(candidates.probability(1), 1);
  candidates.take(std::vector<float>{1, kInfinity, kInfinity, 3}, 2, 1);
  EXPECT_EQ(candidates.probability(1), 0.5);
  const std::vector<float> three{1, 2, 3};
  candidates.take(three, 0, 1e30f);
  EXPECT_NEAR(candidates.probability(0), 1.0 / 3, 1e-6);
  candidates.keep_typical(0.5);  // all are equally typical
  EXPECT_NEAR(candidates.probability(0), 1.0 / 3, 1e-6);
  candidates.take(std::vector<float>{-kInfinity, -kInfinity}, 1, 1);
  EXPECT_TRUE(candidates.empty());
  const std::vector<float> near{1, 1.0001f, -5};
  candidates.take_top_p(near, 1, 1e-39f, 0.9);
  EXPECT_EQ(candidates.probability(1), 1);
}

}  // namespace
}  // namespace situ
