// Parts of stacked values are those values, whatever was written into the stack before.
#include <gtest/gtest.h>

#include <algorithm>

#include "passes/compile/test_graph.h"
#include "passes/context/pass_context.h"
#include "passes/move/passes.h"
#include "passes/states/passes.h"

namespace situ {
namespace {

class StackGraph : public test::TestGraph {
 public:
  static constexpr int64_t kLayers = 3;

  StackGraph() {
    std::vector<ValueId> rows;
    for (int64_t i = 0; i < kLayers; ++i) {
      leaves.push_back(input("x" + std::to_string(i), {Dim(1), Dim(2), Dim(4)}));
      rows.push_back(unsqueeze(leaves.back(), 0));
    }
    stack = op("Concat", rows, {{"axis", 0}});
  }
  ValueId fresh(const Shape& dims) {
    leaves.push_back(input("u" + std::to_string(leaves.size()), dims));
    return leaves.back();
  }
  ValueId part(ValueId of, int64_t i) { return op("Gather", {of, integer(i)}, {{"axis", 0}}); }
  ValueId places(const std::vector<int64_t>& at, const std::vector<int64_t>& dims) {
    Tensor t = Tensor::allocate(DType::kI64, dims);
    std::copy(at.begin(), at.end(), t.view().as<int64_t>());
    return constant(t);
  }
  // Runs a pass; how many nodes of the operator are left. The numbers stay.
  int64_t left(const std::string& name, Status (*pass)(PassContext&) = read_stacks) {
    run_pass(pass, leaves, {1});
    return std::count_if(graph_.nodes.begin(), graph_.nodes.end(), [&](const Node& n) { return n.is(name); });
  }

  ValueId stack = kNoValue;
  std::vector<ValueId> leaves;
};

TEST(ReadStacks, PartsBeforeAndAfterTheyAreWritten) {
  StackGraph g;
  const ValueId all = g.fresh({Dim(1), Dim(1), Dim(2), Dim(4)}), two = g.fresh({Dim(2)});
  const ValueId first = g.op("ScatterND", {g.stack, g.places({1}, {1, 1}), all});                       // all of part 1
  const ValueId then = g.op("ScatterND", {first, g.places({-1, 0, 0, 3, -1, 0, 1, -1}, {2, 4}), two});  // of part 2
  for (const ValueId of : {g.stack, first, then})
    for (const int64_t i : {0, 1, -1}) g.graph_.outputs.push_back(g.op("Neg", {g.part(of, i)}));
  EXPECT_EQ(g.left("Gather"), 0);
}

TEST(ReadStacks, TheStackIsNotMade) {
  StackGraph g;
  const ValueId written =
      g.op("ScatterND", {g.stack, g.places({0}, {1, 1}), g.fresh({Dim(1), Dim(1), Dim(2), Dim(4)})});
  g.graph_.outputs = {g.part(written, 0), g.part(written, 2)};
  EXPECT_EQ(g.left("Concat"), 0);
}

// Places of several parts at once, parts that are summed, or of which the step tells the number.
TEST(ReadStacks, LeavesTheOthersAlone) {
  StackGraph g;
  const ValueId both =
      g.op("ScatterND", {g.stack, g.places({0, 1}, {2, 1}), g.fresh({Dim(2), Dim(1), Dim(2), Dim(4)})});
  g.graph_.outputs = {g.part(both, 0)};
  EXPECT_EQ(g.left("ScatterND"), 1);
  StackGraph sum;
  const ValueId added =
      sum.op("ScatterND", {sum.stack, sum.places({0}, {1, 1}), sum.fresh({Dim(1), Dim(1), Dim(2), Dim(4)})});
  sum.graph_.nodes.back().set_string("reduction", "add");
  sum.graph_.outputs = {sum.part(added, 0)};
  EXPECT_EQ(sum.left("ScatterND"), 1);
}

TEST(Simplify, AScatterOfAllPlacesIsWhatItWrites) {
  for (const bool rows : {true, false})  // places of rows, and of numbers
    for (const bool ordered : {true, false}) {
      StackGraph g;
      std::vector<int64_t> at;
      for (const int64_t i : {0, 1})
        for (const int64_t j : {0, 1}) {
          at.insert(at.end(), {0, ordered ? i : j, 0});
          if (rows) break;
          at.push_back(ordered ? j : i);
        }
      if (rows && !ordered) at = {0, 1, 0, 0, 0, 0};
      const ValueId places = rows ? g.places(at, {1, 2, 1, 3}) : g.places(at, {1, 2, 1, 2, 4});
      const ValueId written = g.fresh({Dim(1), Dim(2), Dim(1), Dim(2)});
      const ValueId zeros = g.floats_of(std::vector<float>(4), {1, 2, 1, 2});
      g.graph_.outputs = {g.op("Neg", {g.op("ScatterND", {zeros, places, written})})};
      EXPECT_EQ(g.left("ScatterND", simplify), ordered ? 0 : 1);
    }
}

// As of a mask that hides nothing, at places that are counted in the step; and a row as often as there are tokens.
TEST(Simplify, WhatRepeatsIsNotMoved) {
  StackGraph g;
  const ValueId ones = g.cast(g.filled({Dim(1), test::S()}, Tensor::vector_i64({1})), DType::kF32);
  const ValueId places = g.unsqueeze(g.range(Dim(0), test::S()), 1);
  const ValueId tuples = g.op("Concat", {g.op("Mul", {places, g.integer(0)}), places}, {{"axis", 1}});
  const ValueId tiled = g.op("Tile", {g.fresh({Dim(1), Dim(4)}), g.graph_.add_shape("repeats", {test::S(), Dim(1)})});
  g.graph_.outputs = {g.op("Neg", {g.op("GatherND", {ones, tuples})}), g.op("Neg", {tiled})};
  EXPECT_EQ(g.left("GatherND", simplify), 0);
  EXPECT_EQ(g.left("Tile", simplify), 0);
}

// As torch writes x[.., a:b] = y into zeros: stretches that are all of it, the last one of each.
TEST(Simplify, StretchesThatAreAllAreJoined) {
  for (const int64_t second : {2, 1}) {  // one place is written twice, or one not at all
    StackGraph g;
    const ValueId zeros = g.op("ConstantOfShape", {g.graph_.add_shape("dims", {Dim(4), Dim(3), test::S()})});
    const ValueId a = g.fresh({Dim(2), Dim(3), test::S()}), b = g.fresh({Dim(2), Dim(3), test::S()});
    const ValueId once = g.op("ScatterND", {zeros, g.places({0, 1}, {2, 1}), a});
    const ValueId turned = g.op("Transpose", {g.op("Transpose", {once}, {}, {2, 1, 0})}, {}, {2, 1, 0});
    g.graph_.outputs = {g.op("Neg", {g.op("ScatterND", {turned, g.places({second, second + 1}, {2, 1}), b})})};
    EXPECT_EQ(g.left("ScatterND", simplify), second == 2 ? 0 : 2);
  }
}

// Rows counted from both ends, each once and one behind the other, with transpositions between; or not all of them.
TEST(Simplify, RowsSideBySideAreJoined) {
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
    StackGraph g;
    ValueId y = g.op("Sigmoid", {g.fresh({Dim(5), test::S(), Dim(3)})});
    for (const std::vector<int64_t>& at : c.writes) {
      const int64_t count = std::ssize(at);
      y = g.op("ScatterND", {y, g.places(at, {count, 1}), g.fresh({Dim(count), test::S(), Dim(3)})});
      if (at != c.writes.back()) y = g.op("Transpose", {g.op("Transpose", {y}, {}, {2, 0, 1})}, {}, {1, 2, 0});
    }
    g.graph_.outputs = {g.op("Sigmoid", {y})};
    EXPECT_EQ(g.left("ScatterND", simplify), c.joined ? 0 : std::ssize(c.writes));
  }
}

// By an index of any rank, which is the result's.
TEST(Simplify, WhatWasWrittenIsReadWhereItIsMade) {
  for (const std::vector<int64_t>& dims : {std::vector<int64_t>{}, {1}, {1, 1}}) {
    StackGraph g;
    const ValueId written = g.op("ScatterND", {g.fresh({Dim(4), Dim(3), test::S()}), g.places({1}, {1, 1}),
                                               g.fresh({Dim(1), Dim(3), test::S()})});
    const ValueId read = g.op("Gather", {written, g.places({1}, dims)}, {{"axis", 0}});
    g.graph_.outputs = {g.op("Neg", {read})};
    EXPECT_EQ(g.left("ScatterND", simplify), 0);
    EXPECT_EQ(g.graph_.values[g.graph_.outputs[0]].info.shape.size(), dims.size() + 2);
  }
}

// Rows of a rotary embedding that text has three times, of which some take the place of others.
TEST(Simplify, WhatIsThereAlreadyIsNotWritten) {
  for (const bool same : {true, false}) {
    StackGraph g;
    const ValueId row = g.fresh({Dim(1), Dim(1), Dim(5)}), other = same ? row : g.fresh({Dim(1), Dim(1), Dim(5)});
    const ValueId factors = g.floats_of({1, 2, 3, 4, 5}, {5});
    const auto repeated = [&](ValueId x) { return g.op("Expand", {x, g.integers({3, 1, 5})}); };
    const ValueId rows = g.op("Mul", {repeated(row), factors}),
                  others = same ? rows : g.op("Mul", {repeated(other), factors});
    const ValueId data = g.op("Transpose", {g.part(rows, 0)}, {}, {1, 0});
    const ValueId taken = g.op("Slice", {g.op("Transpose", {g.part(others, 2)}, {}, {1, 0}), g.integers({1}),
                                         g.integers({5}), g.integers({0}), g.integers({3})});
    g.graph_.outputs = {g.op("Neg", {g.op("ScatterND", {data, g.places({1, 4}, {2, 1}), taken})})};
    EXPECT_EQ(g.left("ScatterND", simplify), same ? 0 : 1);
  }
}

// One that moves what it pads is something else.
TEST(Simplify, PadsByNothingAreNone) {
  for (const bool moves : {false, true}) {
    StackGraph g;
    const ValueId padded = g.op("Pad", {g.fresh({Dim(3), Dim(4)}), g.integers({0, moves, 0, -int64_t{moves}})});
    g.graph_.outputs = {g.op("Neg", {padded})};
    EXPECT_EQ(g.left("Pad", simplify), moves ? 1 : 0);
  }
}

// A constant is no place for what is written into it.
TEST(Simplify, ConstantsThatAreWrittenIntoAreFilledInPlace) {
  StackGraph g;
  const ValueId at = g.input("at", {Dim(2), Dim(1)}, DType::kI64), zeros = g.constant(Tensor::vector_i64({0, 0}));
  g.graph_.outputs = {g.op("ScatterND", {zeros, at, g.constant(Tensor::vector_i64({0, 1}))})};
  test::TestContext context(g.graph_, 16);
  g.infer(context.context);
  for (int i = 0; i < 2; ++i) {
    ASSERT_TRUE(simplify(context.context).is_ok());
    g.infer(context.context);
  }
  ASSERT_EQ(g.graph_.nodes.size(), 2u);
  EXPECT_TRUE(g.graph_.nodes[0].is("ConstantOfShape"));
}

// As torch writes state[:, :, i] = x for each layer, and reads what the next one has.
TEST(Simplify, LayersThatAreWrittenOneByOneAreJoined) {
  for (const int64_t layers : {2, 3}) {  // all of them, or all but one
    StackGraph g;
    const ValueId past = g.fresh({Dim(1), Dim(3), Dim(layers)});
    ValueId state = past;
    for (const int64_t i : {0, 1}) {
      const ValueId row = g.op("Gather", {state, g.integer(i)}, {{"axis", 2}});
      const ValueId made = g.unsqueeze(g.op("Exp", {row}), 2);
      state = g.op("ScatterElements", {state, g.places({i, i, i}, {1, 3, 1}), made}, {{"axis", -1}});
    }
    g.graph_.outputs = {state};
    EXPECT_EQ(g.left("ScatterElements", simplify), layers == 2 ? 0 : 2);
  }
}

// A stack of states is looked at once, however often its parts are added to each other.
TEST(UnstackStates, WhatIsMadeOfItselfManyTimes) {
  test::TestGraph g;
  const ValueId past = g.input("past", {Dim(2), Dim(1), test::P(), Dim(4)}),
                x = g.input("x", {Dim(1), test::S(), Dim(4)});
  const auto grown = [&](int64_t i) {
    return g.op("Concat", {g.op("Gather", {past, g.integer(i)}, {{"axis", 0}}), x}, {{"axis", 1}});
  };
  ValueId other = g.op("Neg", {grown(1)});
  for (int i = 0; i < 64; ++i) other = g.op("Add", {other, other});
  g.graph_.outputs = {g.op("Concat", {g.unsqueeze(grown(0), 0), g.unsqueeze(other, 0)}, {{"axis", 0}})};
  test::TestContext at(g.graph_, 16);
  at.binding.inputs[past] = InputRole::kState;
  g.infer(at.context);
  ASSERT_TRUE(unstack_states(at.context).is_ok());
  EXPECT_EQ(g.graph_.outputs.size(), 1u);
}

}  // namespace
}  // namespace situ
