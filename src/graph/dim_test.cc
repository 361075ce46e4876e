// Dims: equality of polynomials, and bounds that hold at every step.
#include "graph/dim.h"

#include <gtest/gtest.h>

#include <random>

namespace situ {
namespace {

const Dim kS = Dim::symbol(kSymS), kP = Dim::symbol(kSymP), kT = kS + kP;

SymbolValues step(int64_t tokens, int64_t past) {
  SymbolValues s;
  s.value[kSymS] = tokens;
  s.value[kSymP] = past;
  return s;
}

// A random expression of S, P and small numbers.
Dim random_dim(std::mt19937& random, int depth) {
  auto less_than = [&](unsigned n) { return static_cast<int>(random() % n); };
  if (depth == 0) {
    const int k = less_than(4);
    return k == 0 ? kS : k == 1 ? kP : Dim(less_than(12) - 3);
  }
  const Dim a = random_dim(random, depth - 1), b = random_dim(random, depth - 1);
  switch (less_than(10)) {
    case 0:
      return a + b;
    case 1:
      return a - b;
    case 2:
      return a * b;
    case 3:
      return dim_div(a, Dim(1 + less_than(5)));
    case 4:
      return dim_mod(a, Dim(1 + less_than(50)));
    case 5:
      return dim_min(a, b);
    case 6:
      return dim_max(a, b);
    case 7:
      return dim_select(dim_less(a, b), a, b);
    case 8:
      return dim_equal(a, b);
    default:
      return dim_less(a, b) + b;
  }
}

TEST(Dim, SumsInAnyOrderAreEqual) {
  EXPECT_EQ(kS + kP, kP + kS);
  EXPECT_EQ((kT * Dim(8)).str(), "8*P + 8*S");
  EXPECT_EQ(kT - kP, kS);
  EXPECT_NE(kS, kP);
}

TEST(Dim, SumsOfSymbolsAreLinear) {
  EXPECT_TRUE(Dim(3).linear());
  EXPECT_TRUE((kT * Dim(2) - Dim(1)).linear());
  EXPECT_FALSE((kS * kP).linear());
  EXPECT_FALSE(dim_mod(kT, 50).linear());
  EXPECT_FALSE(dim_min(kS, kP).linear());
}

TEST(Dim, MultiplesOfADivisorGoInFront) {
  const Dim e = Dim::symbol(kSymE), s = Dim::symbol(kSymS), p = Dim::symbol(kSymP);
  EXPECT_EQ(dim_div(Dim(384) * e + Dim(894), Dim(384)), e + Dim(2));
  EXPECT_EQ(dim_div(Dim(4) * e - Dim(1), Dim(4)), e - Dim(1));
  EXPECT_EQ(dim_div(Dim(6) * s + Dim(3) * p + Dim(2), Dim(3)), Dim(2) * s + p);
  // Not of what may be below 0, where division goes towards zero, nor beside another symbol.
  EXPECT_NE(dim_div(Dim(4) * e - Dim(9), Dim(4)), e - Dim(3));
  SymbolValues one;
  EXPECT_EQ(dim_div(Dim(4) * e - Dim(9), Dim(4)).eval(one), -1);
  for (one.value[kSymP] = 0; one.value[kSymP] < 9; ++one.value[kSymP])
    EXPECT_EQ(dim_div(Dim(4) * e + p, Dim(4)).eval(one), (4 + one.value[kSymP]) / 4);
}

TEST(Dim, BoundsHoldAtEveryStep) {
  constexpr int64_t kCapacity = 24, kStep = 7;
  std::mt19937 random(5);
  for (int i = 0; i < 3000; ++i) {
    Dim d;
    try {
      const ScopedTokenLimit limit(kCapacity, kStep);
      d = random_dim(random, 1 + i % 4);
    } catch (const DimTooLong&) {
      continue;
    }
    const ScopedTokenLimit limit(kCapacity, kStep);
    const int64_t low = d.lower_bound(), high = d.upper_bound();
    for (int64_t tokens = 1; tokens <= kStep; ++tokens)
      for (int64_t past = 0; past + tokens <= kCapacity; ++past) {
        const int64_t x = d.eval(step(tokens, past));
        ASSERT_LE(low, x) << d.str() << " at S " << tokens << ", P " << past;
        ASSERT_GE(high, x) << d.str() << " at S " << tokens << ", P " << past;
      }
  }
}

TEST(Dim, BoundsOfSizesThatBend) {
  const ScopedTokenLimit limit(256, 32);
  EXPECT_EQ(kS.upper_bound(), 32);
  EXPECT_EQ(kT.upper_bound(), 256);
  EXPECT_EQ((dim_mod(kT, 50) + Dim(1)).upper_bound(), 50);
  EXPECT_EQ(dim_min(kS, kP).upper_bound(), 32);
  EXPECT_GE((kT * (Dim(256) - kT)).upper_bound(), 128 * 128);
  EXPECT_EQ((kT - dim_min(4, kT)).lower_bound(), 0);
  EXPECT_EQ((kT - dim_max(kS, kP)).upper_bound(), 32);
  EXPECT_EQ((dim_min(kT, 9) - kT).upper_bound(), 0);
}

}  // namespace
}  // namespace situ
