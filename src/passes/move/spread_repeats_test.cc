// Who reads a repetition whose axis was merged with another one reads it with the axes apart, and computes the same.
#include <gtest/gtest.h>

#include "passes/compile/test_graph.h"
#include "passes/context/pass_context.h"
#include "passes/move/passes.h"

namespace situ {
namespace {

using test::S;

class RepeatGraph : public test::TestGraph {
 public:
  // x [1, S, 2, 5] as [1, S, 2 * 3, 5]; `before`: [1, S, 3 * 2, 5], the groups side by side.
  ValueId repeated(ValueId x, bool before = false) {
    const ValueId wide =
        op("Expand", {unsqueeze(x, before ? 2 : 3), integers({1, 1, before ? 3 : 1, before ? 1 : 3, 1})});
    return op("Reshape", {wide, integers({0, 0, 6, 5})});
  }
  // Whether a pass leaves no reader of a merged repetition; the numbers stay.
  bool spreads(Status (*pass)(PassContext&), const std::vector<ValueId>& leaves) {
    run_pass(pass, leaves, {1, 4});
    for (const Node& n : graph_.nodes) {
      const Node* from = n.is("Reshape") ? graph_.producer(n.in[0], "Expand") : nullptr;
      if (from && graph_.values[n.out[0]].info.shape.size() < graph_.values[n.in[0]].info.shape.size()) return false;
    }
    return true;
  }
};

TEST(SpreadRepeats, ElementwiseOfAnyShapes) {
  for (const bool before : {false, true})
    for (const int kind : {0, 1, 2, 3, 4}) {
      SCOPED_TRACE(std::to_string(kind) + (before ? " before" : " behind"));
      RepeatGraph g;
      const ValueId x = g.input("x", {Dim(1), S(), Dim(2), Dim(5)}), w = g.op("Sigmoid", {x});
      const ValueId y = g.input("y", kind == 2 ? Shape{Dim(6), Dim(1)} : Shape{Dim(1), S(), Dim(6), Dim(1), Dim(5)});
      ValueId r = g.repeated(w, before);
      if (kind == 0) r = g.op("Mul", {r, g.op("Reshape", {y, g.integers({1, -1, 6, 5})})});
      if (kind == 1) r = g.op("Mul", {y, g.unsqueeze(r, 3)});  // behind another view
      if (kind == 2) r = g.op("Sub", {r, y});                  // of fewer axes
      if (kind == 3) r = g.op("Mul", {r, r});
      if (kind == 4) r = g.op("Add", {g.op("Transpose", {r}, {}, {0, 2, 1, 3}), g.number(2)});
      g.graph_.outputs = {r};
      EXPECT_TRUE(g.spreads(spread_repeats, {x, y}));
    }
}

TEST(SpreadRepeats, ProductsOfRepeatedBatches) {
  for (const bool swapped : {false, true}) {
    RepeatGraph g;
    const ValueId x = g.input("x", {Dim(1), S(), Dim(2), Dim(5)}), w = g.op("Sigmoid", {x});
    const ValueId y = g.input("y", {Dim(6), Dim(7), swapped ? S() : Dim(5)});
    ValueId r = g.op("Transpose", {g.repeated(w)}, {}, {0, 2, 1, 3});  // [1, 6, S, 5]
    if (!swapped) r = g.op("Transpose", {r}, {}, {0, 1, 3, 2});
    g.graph_.outputs = {g.op("MatMul", {y, r})};
    EXPECT_TRUE(g.spreads(split_products, {x, y}));
  }
  RepeatGraph g;  // without the axis of rows, as a step of one token of a state has it
  const ValueId x = g.input("x", {Dim(1), Dim(2), Dim(5)}), w = g.op("Sigmoid", {x}),
                y = g.input("y", {Dim(6), Dim(7), Dim(5)});
  const ValueId wide = g.op("Expand", {g.unsqueeze(w, 2), g.integers({1, 2, 3, 5})});
  const ValueId heads = g.op("Reshape", {wide, g.integers({1, 6, 5})});
  g.graph_.outputs = {g.op("MatMul", {y, g.op("Reshape", {heads, g.integers({6, 5, 1})})})};
  EXPECT_TRUE(g.spreads(split_products, {x, y}));
}

// Strides name what is repeated as a whole, and what nothing repeats.
TEST(SpreadRepeats, LeavesViewsAlone) {
  RepeatGraph g;
  const ValueId x = g.input("x", {Dim(1), S(), Dim(1), Dim(5)}), w = g.op("Sigmoid", {x});
  const ValueId wide = g.op("Expand", {g.unsqueeze(w, 3), g.integers({1, 1, 2, 3, 1})});
  g.graph_.outputs = {g.op("Neg", {g.op("Reshape", {wide, g.integers({0, 0, 6, 5})})})};
  const size_t nodes = g.graph_.nodes.size();
  EXPECT_FALSE(g.spreads(spread_repeats, {x}));
  EXPECT_EQ(g.graph_.nodes.size(), nodes);
}

}  // namespace
}  // namespace situ
