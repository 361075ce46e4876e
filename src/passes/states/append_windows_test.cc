// The window of a short convolution, and what keeps it from being appended to.
#include <gtest/gtest.h>

#include "passes/compile/test_graph.h"
#include "passes/states/passes.h"

namespace situ {
namespace {

using test::S;

constexpr int64_t kChannels = 4, kTaps = 3;

// The rule of the state behind the pass. `handed_out`: the rows before the last ones are an output too.
StateRule rule_of_window(bool handed_out) {
  test::TestGraph g;
  const ValueId past = g.input("past", {Dim(1), Dim(kChannels), Dim(kTaps - 1)}),
                x = g.input("x", {Dim(1), Dim(kChannels), S()});
  const ValueId both = g.op("Concat", {past, x}, {{"axis", 2}});
  const ValueId before = g.op("Split", {both, g.graph_.add_shape("sizes", {S(), Dim(kTaps - 1)})}, {{"axis", 2}});
  const ValueId present = g.graph_.add_value("present");
  g.graph_.nodes.back().out.push_back(present);
  const ValueId y =
      g.op("Conv", {both, g.constant(Tensor::allocate(DType::kF32, {kChannels, 1, kTaps}))}, {{"group", kChannels}});
  g.graph_.outputs = {y, present};
  if (handed_out) g.graph_.outputs.push_back(before);
  test::TestContext at(g.graph_, 64);
  at.binding.inputs[past] = InputRole::kState;
  at.binding.states = {{past, present, StateRule::kReplace, 0, "window"}};
  g.infer(at.context);
  const Status passed = append_windows(at.context);
  EXPECT_TRUE(passed.is_ok()) << passed.message();
  g.infer(at.context);
  return at.binding.states[0].rule;
}

TEST(AppendWindows, WhatIsLeftOutIsNoOutput) {
  EXPECT_EQ(rule_of_window(false), StateRule::kAppend);
  EXPECT_EQ(rule_of_window(true), StateRule::kReplace);
}

}  // namespace
}  // namespace situ
