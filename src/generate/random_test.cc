#include "generate/random.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>

namespace situ {
namespace {

using Words = std::array<uint32_t, 4>;

// kat_vectors of the Random123 library: philox4x32, 10 rounds.
TEST(Philox, KnownAnswers) {
  EXPECT_EQ(philox({0, 0, 0, 0}, {0, 0}), (Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(philox({0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}, {0xffffffff, 0xffffffff}),
            (Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Uniform, IsSpreadOverSeedsAndPositions) {
  constexpr int kCount = 100;
  std::set<double> all;
  double sum = 0, by_next_position = 0, by_next_seed = 0;
  for (uint64_t seed = 0; seed < kCount; ++seed)
    for (uint64_t position = 0; position < kCount; ++position) {
      const double x = uniform(seed, position);
      EXPECT_TRUE(x >= 0 && x < 1);
      all.insert(x);
      sum += x;
      by_next_position += (x - 0.5) * (uniform(seed, position + 1) - 0.5);
      by_next_seed += (x - 0.5) * (uniform(seed + 1, position) - 0.5);
    }
  constexpr double kAll = kCount * kCount;
  EXPECT_EQ(all.size(), kAll);
  EXPECT_NEAR(sum / kAll, 0.5, 4 * std::sqrt(1.0 / 12 / kAll));
  EXPECT_NEAR(by_next_position / kAll, 0, 4.0 / 12 / std::sqrt(kAll));
  EXPECT_NEAR(by_next_seed / kAll, 0, 4.0 / 12 / std::sqrt(kAll));
  EXPECT_NE(uniform(1ull << 32, 0), uniform(1, 0));
  EXPECT_NE(uniform(0, 1ull << 32), uniform(0, 1));
}

}  // namespace
}  // namespace situ
