// Rows that a pixel shuffle joins are written where it wants them, also where the row of the class is left out first.
#include <gtest/gtest.h>

#include "passes/compile/test_graph.h"
#include "passes/move/passes.h"

namespace situ {
namespace {

// Of x [2, 17, 3] + y: rows 1 to 16 as squares of 2 x 2, each of which becomes one row.
void shuffle(test::TestGraph& g, bool class_row, bool read_twice, bool flat) {
  const Shape dims{Dim(2), Dim(class_row ? 17 : 16), Dim(3)};
  const ValueId x = g.input("x", dims), y = g.input("y", dims), sum = g.op("Add", {x, y});
  ValueId r = sum;
  if (class_row) r = g.op("Slice", {r, g.integers({1}), g.integers({1000}), g.integers({1}), g.integers({1})});
  r = g.op("Reshape", {g.op("Reshape", {r, g.integers({2, 4, 4, 3})}), g.integers({2, 4, 2, 6})});
  r = g.op("Reshape", {g.op("Transpose", {r}, {}, {0, 2, 1, 3}), g.integers({2, 2, 2, 12})});
  r = g.op("Transpose", {r}, {}, {0, 2, 1, 3});
  if (flat) r = g.op("Reshape", {r, g.integers({2, 4, 12})});
  g.graph_.outputs = {r};
  if (read_twice) g.graph_.outputs.push_back(sum);
  g.run_pass(split_axes, {x, y}, {1});
}

TEST(SplitAxes, RowsAreWrittenWhereTheyAreJoined) {
  for (const bool class_row : {false, true})
    for (const auto& [read_twice, flat] : {std::pair{false, true}, {false, false}, {true, true}}) {
      SCOPED_TRACE(std::to_string(class_row) + std::to_string(read_twice) + std::to_string(flat));
      test::TestGraph g;
      shuffle(g, class_row, read_twice, flat);
      const Node* joined = g.graph_.producer(g.graph_.outputs[0], "Reshape");
      const Node* moved = joined ? g.graph_.producer(joined->in[0], "Transpose") : nullptr;
      EXPECT_EQ(moved && g.graph_.producer(moved->in[0], "Add"), !read_twice);
    }
}

// Windows of 2 x 2 rows: one transposition, of axes that are parts of one; heads are moved whole.
TEST(SplitAxes, OneTranspositionOfParts) {
  for (const bool windows : {true, false}) {
    test::TestGraph g;
    const Shape dims{Dim(windows ? 16 : 4), Dim(windows ? 3 : 2), Dim(5)};
    const ValueId x = g.input("x", dims), y = g.input("y", dims);
    ValueId r = g.op("Add", {x, y});
    if (windows) r = g.op("Reshape", {r, g.integers({2, 2, 2, 2, 15})});
    r = g.op("Transpose", {r}, {}, windows ? std::vector<int64_t>{0, 2, 1, 3, 4} : std::vector<int64_t>{1, 0, 2});
    g.graph_.outputs = {g.op("Reshape", {r, g.integers({-1, 5})})};
    g.run_pass(split_axes, {x, y}, {1});
    const Node* first = nullptr;
    for (const Node& n : g.graph_.nodes)
      if (n.is("Add")) first = &n;
    ASSERT_NE(first, nullptr);
    EXPECT_EQ(g.graph_.producer(first->in[0], "Reshape") != nullptr, windows);
  }
}

}  // namespace
}  // namespace situ
