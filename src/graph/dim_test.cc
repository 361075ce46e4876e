// Dims: equality of polynomials, and bounds that hold at every step.
#include "graph/dim.h"

#include <gtest/gtest.h>

#include <random>

#include "graph/graph.h"

namespace situ {
namespace {

const Dim kS = Dim::symbol(kSymS), kP = Dim::symbol(kSymP), kT = kS + kP;

SymbolValues step(int64_t tokens, int64_t past) {
  SymbolValues s;
  s[kSymS] = tokens;
  s[kSymP] = past;
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
  for (one[kSymP] = 0; one[kSymP] < 9; ++one[kSymP])
    EXPECT_EQ(dim_div(Dim(4) * e + p, Dim(4)).eval(one), (4 + one[kSymP]) / 4);
}

TEST(Dim, BoundsHoldAtEveryStep) {
  constexpr int64_t kCapacity = 24, kStep = 7;
  std::mt19937 random(5);
  for (int i = 0; i < 3000; ++i) {
    Dim d;
    try {
      const ScopedSymbols symbols(StepLimits{kCapacity, kStep});
      d = random_dim(random, 1 + i % 4);
    } catch (const DimTooLong&) {
      continue;
    }
    const ScopedSymbols symbols(StepLimits{kCapacity, kStep});
    const int64_t low = d.lower_bound(), high = d.upper_bound();
    for (int64_t tokens = 1; tokens <= kStep; ++tokens)
      for (int64_t past = 0; past + tokens <= kCapacity; ++past) {
        const int64_t x = d.eval(step(tokens, past));
        ASSERT_LE(low, x) << d.str() << " at S " << tokens << ", P " << past;
        ASSERT_GE(high, x) << d.str() << " at S " << tokens << ", P " << past;
      }
  }
}

// Any table: bounds and relations are told by it alone.
TEST(Dim, BoundsFollowTheTableOfSymbols) {
  SymbolTable table;
  table.symbols = {
      {"rows", Provenance::kSource, 2, 9}, {"kept", Provenance::kSource, 0, 9}, {"step", Provenance::kStep}};
  table.relations = {{{{0, 1}, {1, -1}}, 0, 9}, {{{1, 1}, {2, 1}}, 0, 20}};  // kept <= rows, kept + step <= 20
  const ScopedSymbols symbols(table);
  const Dim rows = Dim::symbol(0), kept = Dim::symbol(1), step = Dim::symbol(2);
  EXPECT_EQ((rows - kept).lower_bound(), 0);
  EXPECT_EQ((kept - rows).upper_bound(), 0);
  EXPECT_EQ((Dim(3) * kept + Dim(2) * step).upper_bound(), 2 * 20 + 9);
  EXPECT_EQ(step.upper_bound(), INT64_MAX);
  EXPECT_EQ(dim_min(rows, 9), rows);
  EXPECT_EQ(dim_less(rows, kept), Dim(0));
  EXPECT_EQ((rows * Dim(4)).str(), "4*rows");
  EXPECT_TRUE(of_sequence(kept));
  EXPECT_FALSE(of_sequence(step + Dim::symbol(3)));  // a file's
}

TEST(Dim, LoneSymbols) {
  EXPECT_EQ(kP.lone_symbol(), kSymP);
  EXPECT_EQ(Dim::symbol(kFirstFileSymbol + 3).lone_symbol(), kFirstFileSymbol + 3);
  for (const Dim& d : {Dim(4), kT, kS * kP, kS * Dim(2), kS + Dim(1), dim_mod(kS, 3)}) EXPECT_EQ(d.lone_symbol(), -1);
  EXPECT_EQ((dim_min(kS, dim_div(kP, 3)) * Dim::symbol(20)).symbols(), (std::set<int>{kSymS, kSymP, 20}));
}

TEST(SymbolValues, HoldAnyNumber) {
  SymbolValues s;
  EXPECT_EQ(s[kSymE], 1);
  EXPECT_EQ(s[5000], 0);
  s[kFirstFileSymbol + 100] = 7;
  const SymbolValues copy = s;
  EXPECT_EQ(copy[kFirstFileSymbol + 100], 7);
  EXPECT_EQ(copy[kFirstFileSymbol + 99], 0);
}

TEST(Graph, NamesOfSymbolsAreSharedUntilOneIsAdded) {
  Graph graph;
  EXPECT_EQ(graph.symbol("batch"), kFirstFileSymbol);
  Graph copy = graph;
  EXPECT_EQ(copy.symbol("batch"), kFirstFileSymbol);
  EXPECT_EQ(&copy.symbol_names(), &graph.symbol_names());
  EXPECT_EQ(copy.symbol("past"), kFirstFileSymbol + 1);
  EXPECT_EQ(copy.symbol_names().size(), kFirstFileSymbol + 2u);
  EXPECT_EQ(graph.symbol_names().size(), kFirstFileSymbol + 1u);
  EXPECT_EQ(graph.symbol("other"), kFirstFileSymbol + 1);
}

TEST(Dim, BoundsOfSizesThatBend) {
  const ScopedSymbols symbols(StepLimits{256, 32});
  EXPECT_EQ(kS.upper_bound(), 32);
  EXPECT_EQ(kT.upper_bound(), 256);
  EXPECT_EQ((dim_mod(kT, 50) + Dim(1)).upper_bound(), 50);
  EXPECT_EQ(dim_min(kS, kP).upper_bound(), 32);
  EXPECT_GE((kT * (Dim(256) - kT)).upper_bound(), 128 * 128);
  EXPECT_EQ((kT - dim_min(4, kT)).lower_bound(), 0);
  EXPECT_EQ((kT - dim_max(kS, kP)).upper_bound(), 32);
  EXPECT_EQ((dim_min(kT, 9) - kT).upper_bound(), 0);
}

TEST(Dim, PaddedToMultiples) {
  const ScopedSymbols symbols(StepLimits{256, 32});
  const Dim missing = dim_mod(Dim(4) - dim_mod(kS, 4), 4), padded = kS + missing;
  EXPECT_EQ(dim_exact_div(padded, 4), dim_div(kS + Dim(3), 4));
  EXPECT_EQ(dim_min(kS, padded), kS);
  EXPECT_EQ(dim_mod(kS + Dim(8), 4), dim_mod(kS, 4));
  for (int64_t tokens = 1; tokens < 10; ++tokens)
    EXPECT_EQ(padded.eval(step(tokens, 0)), (tokens + 3) / 4 * 4) << tokens;
}

}  // namespace
}  // namespace situ
