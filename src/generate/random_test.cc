#include "generate/random.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <vector>

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

TEST(TokenNumbers, AreSpreadOverSeedsPositionsAndIds) {
  constexpr int kCount = 24;
  std::set<double> all;
  double sum = 0, by_next_position = 0, by_next_seed = 0, by_next_id = 0;
  const auto number = [](uint64_t seed, uint64_t position, int64_t id) {
    return TokenNumbers(seed, position).exact(id);
  };
  for (uint64_t seed = 0; seed < kCount; ++seed)
    for (uint64_t position = 0; position < kCount; ++position)
      for (int64_t id = 0; id < kCount; ++id) {
        const double x = number(seed, position, id);
        EXPECT_TRUE(x >= 0 && x < 1);
        EXPECT_GE(x, TokenNumbers(seed, position).floor(id));
        EXPECT_LT(x - TokenNumbers(seed, position).floor(id), 0x1p-32);
        all.insert(x);
        sum += x;
        by_next_position += (x - 0.5) * (number(seed, position + 1, id) - 0.5);
        by_next_seed += (x - 0.5) * (number(seed + 1, position, id) - 0.5);
        by_next_id += (x - 0.5) * (number(seed, position, id + 1) - 0.5);
      }
  constexpr double kAll = kCount * kCount * kCount;
  EXPECT_EQ(all.size(), kAll);
  EXPECT_NEAR(sum / kAll, 0.5, 4 * std::sqrt(1.0 / 12 / kAll));
  for (const double covariance : {by_next_position, by_next_seed, by_next_id})
    EXPECT_NEAR(covariance / kAll, 0, 4.0 / 12 / std::sqrt(kAll));
  EXPECT_NE(number(1ull << 32, 0, 0), number(1, 0, 0));
  EXPECT_NE(number(0, 1ull << 32, 0), number(0, 1, 0));
}

TEST(TokenNumbers, DoNotDependOnWhatWasAskedBefore) {
  TokenNumbers numbers(3, 4);
  std::vector<double> in_order;
  for (int64_t id = 0; id < 50; ++id) in_order.push_back(numbers.exact(id));
  for (int64_t id = 49; id >= 0; id -= 3) EXPECT_EQ(numbers.exact(id), in_order[static_cast<size_t>(id)]);
}

}  // namespace
}  // namespace situ
