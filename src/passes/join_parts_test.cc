// Rows that are written side by side are joined, parts of a Split put together; where some stay, or are written twice,
// or stand in another order, nothing changes.
#include <gtest/gtest.h>

#include "passes/test_graph.h"

namespace situ {
namespace {

using test::S;

ValueId scattered(test::TestGraph& g, ValueId x, const std::vector<int64_t>& at, ValueId rows) {
  Tensor indices = Tensor::vector_i64(at);
  return g.op("ScatterND", {x, g.constant(indices.reshaped({std::ssize(at), 1})), rows});
}

TEST(JoinParts, RowsSideBySide) {
  struct Case {
    std::vector<std::vector<int64_t>> writes;
    bool joined;
  };
  for (const Case& c : {Case{{{0, 1}, {2, 3, 4}}, true},
                        {{{-2, -1}, {0}, {1, 2}}, true},
                        {{{0, 1, 2, 3, 4}}, true},
                        {{{-1, 0}, {1, 2, 3}}, false},
                        {{{0, 1}, {2, 3}}, false},
                        {{{0, 1, 2}, {2, 3}}, false},
                        {{{1, 0}, {2, 3, 4}}, false},
                        {{{0, 2}, {1, 3, 4}}, false}}) {
    SCOPED_TRACE(c.writes.size() * 10 + c.writes[0].size());
    test::TestGraph g;
    const ValueId x = g.input("x", {Dim(5), S(), Dim(3)});
    std::vector<ValueId> leaves{x};
    ValueId y = g.op("Sigmoid", {x});
    for (const std::vector<int64_t>& at : c.writes) {
      leaves.push_back(g.input("rows", {Dim(std::ssize(at)), S(), Dim(3)}));
      y = scattered(g, y, at, leaves.back());
      if (at != c.writes.back()) y = g.op("Transpose", {g.op("Transpose", {y}, {}, {2, 0, 1})}, {}, {1, 2, 0});
    }
    g.graph_.outputs = {g.op("Sigmoid", {y})};
    g.run_pass(join_parts, leaves, {1, 4});
    EXPECT_EQ(g.graph_.producer(g.graph_.nodes.back().in[0], "Concat") != nullptr, c.joined);
  }
}

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
