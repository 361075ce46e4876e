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

uint32_t digits_of(const TokenNumbers& numbers, uint32_t id) {
  uint32_t digits = 0;
  numbers.first_digits({&id, 1}, {&digits, 1});
  return digits;
}
double exact_of(const TokenNumbers& numbers, uint32_t id) { return numbers.exact(id, digits_of(numbers, id)); }

TEST(TokenNumbers, AreSpreadOverSeedsPositionsAndIds) {
  constexpr int kCount = 24;
  std::set<double> all;
  double sum = 0, by_next_position = 0, by_next_seed = 0, by_next_id = 0;
  const auto number = [](uint64_t seed, uint64_t position, int64_t id) {
    return exact_of(TokenNumbers(seed, position), static_cast<uint32_t>(id));
  };
  for (uint64_t seed = 0; seed < kCount; ++seed)
    for (uint64_t position = 0; position < kCount; ++position)
      for (int64_t id = 0; id < kCount; ++id) {
        const double x = number(seed, position, id);
        EXPECT_TRUE(x >= 0 && x < 1);
        const double floor = TokenNumbers::floor(digits_of(TokenNumbers(seed, position), static_cast<uint32_t>(id)));
        EXPECT_GE(x, floor);
        EXPECT_LT(x - floor, 0x1p-32);
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

TEST(TokenNumbers, DoNotDependOnWhatIsAskedBeside) {
  const TokenNumbers numbers(3, 4);
  std::vector<uint32_t> ids(50), digits(50);
  for (uint32_t id = 0; id < 50; ++id) ids[id] = id;
  numbers.first_digits(ids, digits);
  for (uint32_t id = 0; id < 50; ++id) EXPECT_EQ(digits[id], digits_of(numbers, id));
  // Philox of counter (id / 4, position, 0), key (seed): what the draws of earlier versions were made with.
  for (uint32_t id = 0; id < 50; ++id) EXPECT_EQ(digits[id], (philox({id / 4, 4, 0, 0}, {3, 0})[id % 4]));
}

}  // namespace
}  // namespace situ
