// Extents that are known before a step runs, in the spellings of exporters.
#include <gtest/gtest.h>

#include "passes/test_graph.h"

namespace situ {
namespace {

using test::P;
using test::S;

// arange(n, dtype=float) as torch.onnx writes it: all three operands are floats.
ValueId float_range(test::TestGraph& g, ValueId n) {
  return g.op("Range", {g.number(0), g.cast(g.op("Add", {n, g.integer(0)}), DType::kF32), g.number(1)});
}

TEST(InferContent, ARangeIsAsLongAsWhatItsLastNumbersSay) {
  test::TestGraph g;
  const ValueId positions = g.range(P(), P() + S());
  const ValueId rows = g.unsqueeze(positions, 0);
  const ValueId last = g.op("Gather", {positions, g.integer(-1)}), first = g.op("Gather", {positions, g.integer(0)}),
                most = g.op("ReduceMax", {rows}, {{"keepdims", 0}}),
                least = g.op("ReduceMin", {rows}, {{"keepdims", 0}});
  const std::vector<std::pair<ValueId, Dim>> cases{
      {last, P() + S()}, {first, P() + Dim(1)}, {most, P() + S()}, {least, P() + Dim(1)}};
  for (const auto& [number, extent] : cases)
    g.graph_.outputs.push_back(float_range(g, g.op("Add", {number, g.integer(1)})));
  test::TestContext at(g.graph_, 64);
  g.infer(at.context);
  for (size_t i = 0; i < cases.size(); ++i) {
    const ValueInfo& info = g.graph_.values[g.graph_.outputs[i]].info;
    EXPECT_EQ(info.type, DType::kF32);
    EXPECT_EQ(info.shape, Shape{cases[i].second}) << shape_str(info.shape);
  }
}

TEST(InferContent, ARangeOfFractionsIsCounted) {
  test::TestGraph g;
  g.graph_.outputs = {g.op("Range", {g.number(0), g.number(2.5f), g.number(1)})};
  test::TestContext at(g.graph_, 64);
  g.infer(at.context);
  EXPECT_EQ(g.graph_.values[g.graph_.outputs[0]].info.shape, Shape{Dim(3)});
}

}  // namespace
}  // namespace situ
