#include "generate/selection.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <random>

namespace situ {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

TEST(KthLargest, IsWhatSortingGives) {
  std::mt19937 random(1);
  std::vector<float> scratch;
  for (int round = 0; round < 300; ++round) {
    const size_t size = 1 + random() % 200;
    std::vector<float> scores(size);
    for (float& s : scores) s = random() % 20 == 0 ? -kInfinity : static_cast<float>(random() % 30) - 15;
    if (round % 3 == 1) std::sort(scores.begin(), scores.end());
    std::vector<float> sorted = scores;
    std::sort(sorted.begin(), sorted.end(), std::greater<>());
    for (size_t k = 1; k <= size; k += 1 + random() % 7)
      EXPECT_EQ(kth_largest(scores, k, scratch), sorted[k - 1]) << size << " " << k;
    EXPECT_EQ(kth_largest(scores, size + 1, scratch), -kInfinity);
  }
}

TEST(ReachingMass, IsWhatSortingGives) {
  std::mt19937 random(2);
  for (int round = 0; round < 300; ++round) {
    std::vector<Ranked> ranked(1 + random() % (round % 10 == 9 ? 20000 : 500));
    double total = 0;
    for (size_t i = 0; i < ranked.size(); ++i) {
      // Multiples of 1/8: sums are exact in any order.
      ranked[i] = {static_cast<double>(random() % 40), static_cast<int64_t>(i), static_cast<double>(random() % 50) / 8};
      if (round % 3 == 2 && random() % 100 == 0) ranked[i].key = std::numeric_limits<double>::infinity();
      total += ranked[i].weight;
    }
    const double mass = total * static_cast<double>(random() % 1001) / 1000;
    std::vector<Ranked> sorted = ranked;
    std::sort(sorted.begin(), sorted.end(), ranks_before);
    double sum = 0;
    size_t at = 0;
    while ((sum += sorted[at].weight) < mass && at + 1 < sorted.size()) ++at;
    EXPECT_EQ(reaching_mass(ranked, mass).id, sorted[at].id) << round;
    EXPECT_EQ(reaching_mass(ranked, total + 1).id, sorted.back().id);
  }
}

}  // namespace
}  // namespace situ
