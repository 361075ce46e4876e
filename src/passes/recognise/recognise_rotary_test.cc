// Rotary tables that hold every number twice are read where the numbers stand once.
#include "passes/compile/test_graph.h"
#include "passes/recognise/passes.h"

namespace situ {
namespace {

using test::P, test::TestGraph;

// Angles of a MatMul are no plain rule of positions, and a context is too long to look at each of its steps: the Concat
// of the angles with themselves tells alone.
TEST(RecogniseRotary, NumbersHeldTwiceByMoves) {
  TestGraph g;
  const ValueId x = g.input("x", {Dim(1), Dim(2), Dim(1), Dim(8)}),
                position = g.unsqueeze(g.cast(g.range(P(), P() + Dim(1)), DType::kF32), 0),
                angles = g.op("Transpose", {g.op("MatMul", {g.floats_of({1, .3f, .1f, .01f}, {4, 1}), position})}, {},
                              {1, 0}),
                table = g.op("Concat", {angles, angles}, {{"axis", -1}});
  const auto columns = [&](int64_t from, int64_t to) {
    return g.op("Slice", {x, g.integers({from}), g.integers({to}), g.integers({3})});
  };
  const ValueId turned = g.op("Concat", {g.op("Neg", {columns(4, 8)}), columns(0, 4)}, {{"axis", -1}});
  g.graph_.outputs = {
      g.op("Add", {g.op("Mul", {x, g.op("Cos", {table})}), g.op("Mul", {turned, g.op("Sin", {table})})})};
  test::TestContext at(g.graph_, 100000);
  at.context.phase = Phase::kDecode;
  g.infer(at.context);
  if (::testing::Test::HasFatalFailure()) return;
  const Status recognised = recognise_rotary(at.context);
  ASSERT_TRUE(recognised.is_ok()) << recognised.message();
  g.infer(at.context);
  const Node* rotary = g.graph_.producer(g.graph_.outputs[0]);
  ASSERT_TRUE(rotary && rotary->op == "Rotary");
  for (size_t table_at : {1u, 2u})
    EXPECT_TRUE(g.graph_.values[static_cast<size_t>(rotary->in[table_at])].info.shape.back() == Dim(4));
}

}  // namespace
}  // namespace situ
