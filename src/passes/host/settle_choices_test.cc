// Choices of the host that are the same at every step, and others that only seem so.
#include "passes/compile/test_graph.h"
#include "passes/host/passes.h"

namespace situ {
namespace {

using test::P, test::S, test::TestGraph;

// Rows of a mask that see no key become zeros: of a causal one there are none, of one that hides the first
// key, there is one.
TEST(SettleChoices, RowsThatSeeNoKey) {
  for (const bool hidden : {false, true}) {
    TestGraph g;
    const ValueId x = g.input("x", {S(), Dim(8)}), keys = g.unsqueeze(g.range(Dim(hidden ? 1 : 0), P() + S()), 0),
                  queries = g.unsqueeze(g.range(P(), P() + S()), 1), seen = g.op("LessOrEqual", {keys, queries}),
                  count = g.op("ReduceSum", {g.cast(seen, DType::kF32), g.integers({-1})}),
                  none = g.op("Less", {count, g.number(1)});
    g.graph_.outputs = {g.op("Relu", {g.op("Where", {none, g.number(0), x})})};
    test::TestContext at(g.graph_, 512);
    g.infer(at.context);
    if (::testing::Test::HasFatalFailure()) return;
    ASSERT_TRUE(settle_choices(at.context).is_ok());
    EXPECT_EQ(g.graph_.producer(g.graph_.outputs[0])->in[0] == x, !hidden);
  }
}

}  // namespace
}  // namespace situ
