// Tokens of a step that the others are left out for: the last one may be taken in any part of a prompt, any other only
// where a prompt is one step.
#include "passes/compile/token_order.h"
#include "passes/compile/test_graph.h"
#include "passes/context/binding.h"

namespace situ {
namespace {

using test::P, test::S, test::TestGraph;

constexpr int64_t kTokens = 64, kRowWidth = 4;

struct Taken {
  const char* name;
  std::function<ValueId(TestGraph&, ValueId x)> make;  // of x [1, S, C]
  bool last;
};

ValueId slice(TestGraph& g, ValueId x, ValueId begin, ValueId end) {
  return g.op("Slice", {x, begin, end, g.integers({1})});
}
ValueId list(TestGraph& g, const Dim& d) { return g.unsqueeze(g.dim(d), 0); }
ValueId gather(TestGraph& g, ValueId x, ValueId index) { return g.op("Gather", {x, index}, {{"axis", 1}}); }
ValueId ones(TestGraph& g, const Dim& n) { return g.filled({Dim(1), n}, Tensor::vector_i64({1})); }
ValueId total(TestGraph& g, ValueId x) { return g.op("ReduceSum", {x, g.integers({1})}, {{"keepdims", 0}}); }

const Taken kTaken[] = {
    {"slice_from_minus_one",
     [](TestGraph& g, ValueId x) { return slice(g, x, g.integers({-1}), g.integers({INT64_MAX})); }, true},
    {"slice_of_the_extent", [](TestGraph& g, ValueId x) { return slice(g, x, list(g, S() - Dim(1)), list(g, S())); },
     true},
    {"slice_of_the_first", [](TestGraph& g, ValueId x) { return slice(g, x, g.integers({0}), g.integers({1})); },
     false},
    {"slice_of_the_third_last", [](TestGraph& g, ValueId x) { return slice(g, x, g.integers({-3}), g.integers({-2})); },
     false},
    {"gather_minus_one", [](TestGraph& g, ValueId x) { return gather(g, x, g.integer(-1)); }, true},
    {"gather_a_row", [](TestGraph& g, ValueId x) { return gather(g, x, g.integers({-1})); }, true},
    {"gather_by_the_extent", [](TestGraph& g, ValueId x) { return gather(g, x, g.dim(S() - Dim(1))); }, true},
    {"gather_the_first", [](TestGraph& g, ValueId x) { return gather(g, x, g.integer(0)); }, false},
    {"gather_two", [](TestGraph& g, ValueId x) { return gather(g, x, g.integers({-1, -2})); }, false},
    {"gather_by_ones",
     [](TestGraph& g, ValueId x) { return gather(g, x, g.op("Sub", {total(g, ones(g, S())), g.integer(1)})); }, true},
    {"gather_by_all_ones",
     [](TestGraph& g, ValueId x) {
       const ValueId new_ones = g.op("Sub", {total(g, ones(g, P() + S())), g.dim(P())});
       return gather(g, x, g.op("Sub", {new_ones, g.integer(1)}));
     },
     true},
    {"gather_by_ones_up_to_ten",
     [](TestGraph& g, ValueId x) {
       const ValueId at = g.op("Sub", {total(g, ones(g, S())), g.integer(1)});
       return gather(g, x, g.op("Min", {at, g.integer(10)}));
     },
     false},
    {"gather_by_data",
     [](TestGraph& g, ValueId x) { return gather(g, x, g.op("ArgMax", {x}, {{"axis", 1}, {"keepdims", 0}})); }, false},
    {"split_off_the_last",
     [](TestGraph& g, ValueId x) {
       const ValueId sizes = g.graph_.add_shape("sizes", {S() - Dim(1), Dim(1)});
       const ValueId first = g.op("Split", {x, sizes}, {{"axis", 1}});
       g.graph_.nodes.back().out.push_back(g.graph_.add_value("last"));
       (void)first;
       return g.graph_.nodes.back().out[1];
     },
     true},
    {"split_off_the_first",
     [](TestGraph& g, ValueId x) {
       const ValueId sizes = g.graph_.add_shape("sizes", {Dim(1), S() - Dim(1)});
       const ValueId first = g.op("Split", {x, sizes}, {{"axis", 1}});
       g.graph_.nodes.back().out.push_back(g.graph_.add_value("rest"));
       return first;
     },
     false},
};

class TokenIsTaken : public testing::TestWithParam<Taken> {};

TEST_P(TokenIsTaken, TheLastAlone) {
  TestGraph g;
  const ValueId x = g.input("x", {Dim(1), S(), Dim(kRowWidth)});
  const ValueId y = GetParam().make(g, x);
  g.graph_.outputs = {g.op("MatMul", {y, g.floats_of(std::vector<float>(kRowWidth * 7, 0.5f), {kRowWidth, 7})})};
  test::TestContext at(g.graph_, kTokens);
  g.infer(at.context);
  if (::testing::Test::HasFatalFailure()) return;
  const TokenOrder order = token_order(g.graph_, at.binding, at.evaluator, Phase::kAny, kTokens);
  EXPECT_EQ(order.mixing.empty(), GetParam().last) << order.mixing;
  EXPECT_NE(order.one_sequence, "");
}

INSTANTIATE_TEST_SUITE_P(Rows, TokenIsTaken, testing::ValuesIn(kTaken),
                         [](const auto& info) { return std::string(info.param.name); });

// What a step reads of a state that the step replaces follows where a prompt is cut, unless the tokens take it one by
// one.
TEST(WholeStates, AreTakenInTurns) {
  enum class Reads { kAsIs, kTurned, kBeside };
  for (const Reads reads : {Reads::kAsIs, Reads::kTurned, Reads::kBeside}) {
    TestGraph g;
    const ValueId x = g.input("x", {Dim(1), S(), Dim(kRowWidth)});
    const ValueId past = g.input("past", {Dim(1), Dim(1), Dim(kRowWidth), Dim(kRowWidth)});
    const ValueId h = reads == Reads::kTurned ? g.op("Transpose", {past}, {}, {0, 1, 3, 2}) : past;
    ValueId y = g.op("LinearAttention", {x, x, x, h}, {{"q_heads", 1}, {"v_heads", 1}, {"columns_first", 0}});
    g.graph_.nodes.back().domain = "situ";
    g.graph_.nodes.back().opset = 1;
    const ValueId present = g.graph_.add_value("present");
    g.graph_.nodes.back().out.push_back(present);
    if (reads == Reads::kBeside) y = g.op("Add", {y, g.op("ReduceMax", {past}, {{"keepdims", 0}})});
    g.graph_.outputs = {y, present};
    test::TestContext at(g.graph_, kTokens);
    g.infer(at.context);
    if (::testing::Test::HasFatalFailure()) return;
    at.binding.states.push_back({past, present, StateRule::kReplace, 0, "0"});
    const TokenOrder order = token_order(g.graph_, at.binding, at.evaluator, Phase::kAny, kTokens);
    EXPECT_EQ(order.recurrence.empty() && order.mixing.empty(), reads == Reads::kAsIs);
  }
}

}  // namespace
}  // namespace situ
