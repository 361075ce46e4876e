// Rows that are written side by side are joined; where some stay, or are written twice, nothing changes.
#include <gtest/gtest.h>

#include "passes/test_graph.h"

namespace situ {
namespace {

using test::S;

ValueId scattered(test::TestGraph& g, ValueId x, const std::vector<int64_t>& at, ValueId rows) {
  Tensor indices = Tensor::vector_i64(at);
  return g.op("ScatterND", {x, g.constant(indices.reshaped({std::ssize(at), 1})), rows});
}

TEST(JoinScatters, RowsSideBySide) {
  struct Case {
    std::vector<std::vector<int64_t>> writes;
    bool joined;
  };
  for (const Case& c : {Case{{{0, 1}, {2, 3, 4}}, true},
                        {{{-2, -1}, {0}, {1, 2}}, true},
                        {{{0, 1, 2, 3, 4}}, true},
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
    g.run_pass(join_scatters, leaves, {1, 4});
    EXPECT_EQ(g.graph_.producer(g.graph_.nodes.back().in[0], "Concat") != nullptr, c.joined);
  }
}

}  // namespace
}  // namespace situ
