// Parts of a Split are put together, and what is cut alike is joined first; in another order nothing changes.
#include <gtest/gtest.h>

#include "passes/compile/test_graph.h"
#include "passes/move/passes.h"

namespace situ {
namespace {

using test::S;

TEST(JoinParts, OfASplit) {
  // Axes of the split and of the join, and the order of the parts.
  for (const auto& [split, join, swapped, joined] :
       {std::tuple{1, 0, false, true}, {1, 0, true, false}, {2, 0, false, false}, {1, 1, false, false}}) {
    SCOPED_TRACE(std::to_string(split) + std::to_string(join) + std::to_string(swapped));
    test::TestGraph g;
    const ValueId x = g.input("x", {Dim(1), Dim(4), S(), Dim(6)}), y = g.op("Sigmoid", {x});
    ValueId a = g.op("Split", {split == 1 ? y : g.op("Transpose", {y}, {}, {0, 2, 1, 3}), g.integers({2, 2})},
                     {{"axis", split}});
    g.graph_.nodes.back().out.push_back(g.graph_.add_value("second"));
    ValueId b = g.graph_.nodes.back().out[1];
    for (ValueId* part : {&a, &b}) *part = g.op("Reshape", {*part, g.integers({-1, 6})});
    const ValueId all =
        g.op("Concat", swapped ? std::vector<ValueId>{b, a} : std::vector<ValueId>{a, b}, {{"axis", join}});
    g.graph_.outputs = {g.op("Sigmoid", {all})};
    g.run_pass(join_parts, {x}, {1, 4});
    EXPECT_EQ(g.graph_.producer(g.graph_.nodes.back().in[0], "Concat") == nullptr, joined);
  }
}

// Without the first row: two values, each computed; the same one twice; other rows; along the axis of the rows.
TEST(JoinParts, SlicesOfTheSameRows) {
  for (const int kind : {0, 1, 2, 3}) {
    SCOPED_TRACE(kind);
    test::TestGraph g;
    const ValueId x = g.input("x", {Dim(1), Dim(5), Dim(3)}), y = g.input("y", {Dim(1), Dim(5), Dim(3)});
    const ValueId a = g.op("Sigmoid", {x}), b = kind == 1 ? a : g.op("Sigmoid", {y});
    const auto rows = [&](ValueId v, int64_t end) {
      return g.op("Slice", {v, g.integers({1}), g.integers({end}), g.integers({1})});
    };
    const ValueId both = g.op("Concat", {rows(a, 5), rows(b, kind == 2 ? -1 : 5)}, {{"axis", kind >= 2 ? 1 : -1}});
    g.graph_.outputs = {g.op("Sigmoid", {both})};
    g.run_pass(join_parts, {x, y}, {1});
    EXPECT_EQ(g.graph_.producer(g.graph_.nodes.back().in[0], "Slice") != nullptr, kind == 0);
  }
}

}  // namespace
}  // namespace situ
