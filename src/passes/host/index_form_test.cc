// Lines whose numbers do not fit 64 bits are no lines, and nothing is computed of them.
#include "passes/host/index_form.h"

#include "passes/compile/test_graph.h"

namespace situ {
namespace {

using test::P, test::S, test::TestGraph;

constexpr int64_t kReach = 300;

std::optional<IndexForm> form_of(TestGraph& g, ValueId v) {
  test::TestContext at(g.graph_, kReach);
  g.infer(at.context);
  const Prober prober(g.graph_, at.binding, at.evaluator);
  IndexForms forms(g.graph_, at.binding, prober, at.evaluator, -kReach, kReach);
  return forms.find(v);
}

TEST(IndexForms, Lines) {
  TestGraph g;
  const ValueId twice = g.op("Mul", {g.range(P(), P() + S()), g.integer(-2)});
  const std::optional<IndexForm> form = form_of(g, g.op("Sub", {twice, g.integer(5)}));
  ASSERT_TRUE(form && !form->has_table());
  EXPECT_EQ(form->steps, std::vector<int64_t>{-2});
  EXPECT_EQ(form->offset, Dim(-2) * P() - Dim(5));
}

TEST(IndexForms, BeyondTheIntegers) {
  constexpr int64_t kBig = int64_t{1} << 32, kLowest = std::numeric_limits<int64_t>::min();
  using Make = ValueId (*)(TestGraph&, ValueId);
  const std::map<std::string, Make> makes{
      {"product of products",
       [](TestGraph& g, ValueId x) { return g.op("Mul", {g.op("Mul", {x, g.integer(kBig)}), g.integer(kBig)}); }},
      {"product", [](TestGraph& g, ValueId x) { return g.op("Mul", {x, g.integer(kLowest)}); }},
      {"sums of products",
       [](TestGraph& g, ValueId x) {
         ValueId sum = g.op("Mul", {x, g.integer(int64_t{1} << 29)});
         for (int i = 0; i < 40; ++i) sum = g.op("Add", {sum, sum});
         return sum;
       }},
      {"negated",
       [](TestGraph& g, ValueId x) {
         return g.op("Neg", {g.op("Add", {g.op("Mul", {x, g.integer(0)}), g.integer(kLowest)})});
       }},
      {"difference", [](TestGraph& g, ValueId x) { return g.op("Sub", {x, g.integer(kLowest)}); }},
      {"counted",
       [](TestGraph& g, ValueId x) {
         const ValueId many = g.filled({S()}, Tensor::vector_i64({kLowest}));
         return g.op("Add", {x, g.op("CumSum", {many, g.integer(0)})});
       }},
      {"every so many",
       [](TestGraph& g, ValueId x) {
         const ValueId far = g.op("Mul", {x, g.integer(int64_t{1} << 29)});
         return g.op("Slice",
                     {far, g.integers({0}), g.integers({INT64_MAX}), g.integers({0}), g.integers({INT64_MAX})});
       }},
      {"a range",
       [](TestGraph& g, ValueId x) { return g.op("Add", {x, g.range(Dim(0), S() * Dim(kBig), Dim(kBig))}); }},
  };
  for (const auto& [name, make] : makes) {
    TestGraph g;
    const ValueId v = make(g, g.range(P(), P() + S()));
    const std::optional<IndexForm> form = form_of(g, v);
    EXPECT_FALSE(form && !form->has_table()) << name;
  }
}

// A bound that no position reaches is a number as any other.
TEST(IndexForms, LargeBounds) {
  TestGraph g;
  const ValueId x = g.op("Max", {g.range(P(), P() + S()), g.integer(std::numeric_limits<int64_t>::min())});
  const std::optional<IndexForm> form = form_of(g, x);
  ASSERT_TRUE(form && !form->has_table());
  EXPECT_EQ(form->steps, std::vector<int64_t>{1});
}

}  // namespace
}  // namespace situ
