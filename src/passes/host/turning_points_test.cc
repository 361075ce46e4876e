// Rules about positions that hold for one position far out alone: it is among the points that are looked at, or the
// rule is not one whose points tell all others.
#include "passes/host/turning_points.h"
#include "passes/compile/test_graph.h"
#include "passes/context/binding.h"

#include <algorithm>
#include <functional>

namespace situ {
namespace {

using test::P, test::S, test::TestGraph;

constexpr int64_t kFarEnd = 1 << 20, kThere = 5000;  // the position that the rules are about

struct Rule {
  const char* name;
  std::function<ValueId(TestGraph&)> make;
};

ValueId positions(TestGraph& g) { return g.range(Dim(0), P() + S()); }
ValueId equals(TestGraph& g, ValueId x, int64_t number) { return g.op("Equal", {x, g.integer(number)}); }

TurningPoints points_of(const Rule& rule) {
  TestGraph g;
  const ValueId root = rule.make(g);
  test::TestContext at(g.graph_, kFarEnd);
  g.infer(at.context);
  const Prober prober(g.graph_, at.binding, at.evaluator);
  EXPECT_TRUE(prober.changes(root));
  return turning_points(g.graph_, prober, {root});
}

const Rule kRules[] = {
    {"number", [](TestGraph& g) { return equals(g, positions(g), kThere); }},
    {"filled",
     [](TestGraph& g) { return g.op("Equal", {positions(g), g.filled({P() + S()}, Tensor::vector_i64({kThere}))}); }},
    {"times_a_number", [](TestGraph& g) { return equals(g, g.op("Mul", {positions(g), g.integer(7)}), 7 * kThere); }},
    {"times_numbers",
     [](TestGraph& g) {
       const ValueId two = g.op("Mul", {g.unsqueeze(positions(g), 1), g.integers({3, 7})});
       return equals(g, two, 7 * kThere);
     }},
    {"times_what_is_filled",
     [](TestGraph& g) {
       const ValueId seven = g.filled({P() + S()}, Tensor::vector_i64({7}));
       return equals(g, g.op("Mul", {positions(g), seven}), 7 * kThere);
     }},
    {"range_of_steps",
     [](TestGraph& g) { return equals(g, g.range(Dim(0), (P() + S()) * Dim(7), Dim(7)), 7 * kThere); }},
    {"every_seventh",
     [](TestGraph& g) {
       const ValueId all = g.range(Dim(0), (P() + S()) * Dim(7));
       return equals(g,
                     g.op("Slice", {all, g.integers({0}), g.integers({INT64_MAX}), g.integers({0}), g.integers({7})}),
                     7 * kThere);
     }},
    {"rows_of_seven",
     [](TestGraph& g) {
       const ValueId all = g.range(Dim(0), (P() + S()) * Dim(7));
       const ValueId rows = g.op("Reshape", {all, g.graph_.add_shape("rows", {P() + S(), Dim(7)})});
       return equals(g, g.op("Slice", {rows, g.integers({0}), g.integers({1}), g.integers({1})}), 7 * kThere);
     }},
    {"sum_of_positions",
     [](TestGraph& g) { return equals(g, g.op("CumSum", {positions(g), g.integer(0)}), kThere * (kThere + 1) / 2); }},
    {"sum_of_sums",
     [](TestGraph& g) {
       const ValueId ones = g.filled({P() + S()}, Tensor::vector_i64({1}));
       return equals(g, g.op("CumSum", {g.op("CumSum", {ones, g.integer(0)}), g.integer(0)}),
                     (kThere + 1) * (kThere + 2) / 2);
     }},
    {"sum_of_sevens",
     [](TestGraph& g) {
       const ValueId sevens = g.filled({P() + S()}, Tensor::vector_i64({7}));
       return equals(g, g.op("CumSum", {sevens, g.integer(0)}), 7 * (kThere + 1));
     }},
    {"sum_of_all",
     [](TestGraph& g) {
       const ValueId all = g.op("ReduceSum", {positions(g), g.integers({0})}, {{"keepdims", 1}});
       return equals(g, all, kThere * (kThere + 1) / 2);
     }},
    {"sum_of_ones",
     [](TestGraph& g) {
       const ValueId ones = g.filled({P() + S()}, Tensor::vector_i64({1}));
       return equals(g, g.op("CumSum", {ones, g.integer(0)}), kThere + 1);
     }},
    {"count",
     [](TestGraph& g) {
       const ValueId late = g.cast(g.op("GreaterOrEqual", {positions(g), g.integer(100)}), DType::kI64);
       return equals(g, g.op("CumSum", {late, g.integer(0)}), kThere - 99);
     }},
    {"again_and_again",
     [](TestGraph& g) {
       const ValueId few = g.range(Dim(0), S() + S());
       const ValueId many = g.op("Tile", {few, g.integers({3})});
       return equals(g, many, kThere);
     }},
};

class TurningPointsOf : public testing::TestWithParam<Rule> {};

TEST_P(TurningPointsOf, AreLookedAt) {
  const TurningPoints points = points_of(GetParam());
  const bool beside =
      std::any_of(points.at.begin(), points.at.end(), [](int64_t n) { return n >= kThere - 1 && n <= kThere + 2; });
  EXPECT_TRUE(!points.plain || points.anywhere || beside);
}

INSTANTIATE_TEST_SUITE_P(Rules, TurningPointsOf, testing::ValuesIn(kRules),
                         [](const auto& info) { return std::string(info.param.name); });

// Rules of real masks are plain: they keep their closed forms.
TEST(TurningPoints, OfRealMasksArePlain) {
  const Rule rules[] = {
      {"ones are counted",
       [](TestGraph& g) {
         const ValueId ones = g.filled({Dim(1), P() + S()}, Tensor::vector_i64({1}));
         return g.op("Sub", {g.op("CumSum", {ones, g.integer(1)}), g.integer(1)});
       }},
      {"and again, of bools",
       [](TestGraph& g) {
         const ValueId seen = g.op("LessOrEqual", {positions(g), g.integer(30)});
         return g.op("ReduceSum", {g.cast(seen, DType::kI64), g.integers({0})}, {{"keepdims", 1}});
       }},
      {"heads",
       [](TestGraph& g) {
         const ValueId row = g.unsqueeze(g.unsqueeze(positions(g), 0), 0);
         return g.op("Tile", {row, g.integers({1, 4, 1})});
       }},
      {"rows and columns",
       [](TestGraph& g) {
         const ValueId row =
             g.op("Reshape", {positions(g), g.graph_.add_shape("row", {Dim(1), Dim(1), P() + S(), Dim(1)})});
         return g.op("Greater", {row, g.range(Dim(0), S())});
       }},
  };
  for (const Rule& rule : rules) EXPECT_TRUE(points_of(rule).plain) << rule.name;
}

// A step of one token is looked at wherever it stands; what cannot be is not told.
TEST(TellingSteps, StandBesideEveryNumber) {
  for (const int64_t number : {int64_t{40}, int64_t{50000}, kFarEnd - 2}) {
    TestGraph g;
    const ValueId root = equals(g, positions(g), number);
    test::TestContext at(g.graph_, kFarEnd);
    g.infer(at.context);
    const Prober prober(g.graph_, at.binding, at.evaluator);
    const TellingSteps telling = telling_steps(g.graph_, prober, {root}, Phase::kAny, kFarEnd);
    EXPECT_TRUE(telling.told);
    for (const int64_t past : {number - 1, number, number + 1})
      EXPECT_EQ(std::count(telling.steps.begin(), telling.steps.end(), std::pair(int64_t{1}, past)), 1) << past;
    EXPECT_EQ(std::count(telling.steps.begin(), telling.steps.end(), std::pair(int64_t{1}, kFarEnd - 1)), 1);
  }
  TestGraph g;
  const ValueId root = equals(g, g.op("Mod", {positions(g), g.integer(64)}), 5);
  test::TestContext at(g.graph_, kFarEnd);
  g.infer(at.context);
  const Prober prober(g.graph_, at.binding, at.evaluator);
  EXPECT_FALSE(telling_steps(g.graph_, prober, {root}, Phase::kAny, kFarEnd).told);
  EXPECT_TRUE(telling_steps(g.graph_, prober, {root}, Phase::kDecode, 1000).told);
}

}  // namespace
}  // namespace situ
