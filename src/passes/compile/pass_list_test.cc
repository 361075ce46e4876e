// The order of the passes, what they may not leave, and how their edits are counted.
#include "passes/compile/pass_list.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "passes/compile/legal.h"
#include "passes/compile/pass_trace.h"
#include "passes/compile/test_graph.h"

namespace situ {
namespace {

using List = std::vector<Pass>;

auto named(List& list, const std::string& name) {
  return std::find_if(list.begin(), list.end(), [&](const Pass& p) { return p.name == name; });
}

// Without where in the list the pass stands, which each new pass changes.
std::string without_number(std::string message) {
  const size_t from = message.find(" ("), to = message.find(" of the list)");
  if (to != std::string::npos) message.erase(from, to + std::string(" of the list)").size() - from);
  return message;
}

// What check_order says once `change` was done to the list.
template <typename Change>
std::string refused(Change change) {
  List list = pass_list();
  change(list);
  return without_number(check_order(list).message());
}

TEST(PassList, IsInOrder) { EXPECT_EQ(check_order(pass_list()).message(), ""); }

TEST(PassList, NeedsAreMetInFront) {
  // In front of what it needs; without it; behind what comes after it; where it is left again behind.
  EXPECT_EQ(refused([](List& l) { std::swap(*named(l, "bind_inputs"), *named(l, "inline_control")); }),
            "pass inline_control needs what no pass in front of it is sure to leave");
  EXPECT_EQ(refused([](List& l) { l.erase(named(l, "find_switches")); }),
            "pass settle_choices needs what no pass in front of it is sure to leave");
  EXPECT_EQ(refused([](List& l) { std::swap(*named(l, "read_stacks"), *named(l, "unstack_states")); }),
            "pass unstack_states comes after what no pass in front of it leaves");
  EXPECT_EQ(refused([](List& l) { std::rotate(named(l, "pack_experts"), named(l, "pack_experts") + 1, l.end()); }),
            "pass fuse_matmuls comes after what is not left before a pass behind it");
}

TEST(PassList, WhatAlwaysRunsNeedsNothingThatMayBeOff) {
  const auto with = [](PassUse use) { return refused([&](List& l) { named(l, "bind_inputs")->use = use; }); };
  EXPECT_EQ(with(PassUse::kAlways), "");
  for (const PassUse use : {PassUse::kPlaced, PassUse::kMayBeOff})
    EXPECT_EQ(with(use), "pass inline_control needs what no pass in front of it is sure to leave");
}

TEST(PassList, IsRefusedBeforeItRuns) {
  test::TestGraph g;
  test::TestContext at(g.graph_, 8);
  List list = pass_list();
  std::swap(*named(list, "find_states"), *named(list, "find_logits"));
  EXPECT_EQ(without_number(run_passes(at.context, false, nullptr, list).message()),
            "pass find_logits needs what no pass in front of it is sure to leave");
}

TEST(PassList, EntriesAreTraced) {
  test::TestGraph g;
  const ValueId x = g.input("x", {Dim(2)});
  g.graph_.outputs = {g.op("Neg", {x})};
  test::TestContext at(g.graph_, 8);
  g.infer(at.context);
  // The second one changes one node, adds another, and leaves what it may not.
  const List list{{"looks", [](PassContext&) { return Status::ok(); }, PassUse::kAlways},
                  {"edits",
                   [](PassContext& context) {
                     Graph& graph = context.graph;
                     graph.nodes[0].op = "Abs";
                     const ValueId y = graph.add_value("y");
                     graph.add_node({.op = "Exp", .opset = 18, .in = {graph.outputs[0]}, .out = {y}});
                     graph.outputs = {y};
                     return resolve_ops(graph);
                   },
                   PassUse::kAlways,
                   {.leaves = {Fact::kInputsBound}}}};
  CompileTrace trace{"decoder"};
  EXPECT_EQ(run_passes(at.context, false, &trace, list).message(),
            "behind pass edits: 'x' is an input without a meaning");
  ASSERT_EQ(trace.passes.size(), 2u);
  EXPECT_EQ(trace.passes[0].edits, 0);
  EXPECT_EQ(trace.passes[0].nodes, 1);
  EXPECT_EQ(trace.passes[1].edits, 2);
  EXPECT_EQ(trace.passes[1].nodes, 2);
  EXPECT_GE(trace.passes[1].visits, 3);
  EXPECT_NE(trace.passes[0].digest, trace.passes[1].digest);
  EXPECT_EQ(trace.passes[1].digest, digest_of(at.context));
}

TEST(Legal, NamesWhatMayNoLongerBeThere) {
  test::TestGraph g;
  const ValueId x = g.input("x", {Dim(1), Dim(4), Dim(2)}), past = g.input("past", {Dim(1)});
  g.graph_.outputs = {g.op("Einsum", {x})};
  g.graph_.nodes.back().name = "product";
  test::TestContext at(g.graph_, 8);
  ASSERT_TRUE(resolve_ops(g.graph_).is_ok());
  at.binding.inputs = {{x, InputRole::kFeatures}, {past, InputRole::kState}};
  const auto said = [&](Facts left) { return check_legal(at.context, left).message(); };
  EXPECT_EQ(said({}), "");
  EXPECT_EQ(said({Fact::kInputsBound, Fact::kControlInlined, Fact::kFusedExpanded}), "");
  EXPECT_EQ(said({Fact::kExpertsExpanded}), "Einsum 'product': is a fused operator, which no kernel computes");
  EXPECT_EQ(said({Fact::kStatesFound}), "'past' is a state that is in no pair");
  at.binding.states = {{past, g.graph_.outputs[0], StateRule::kReplace, 0, ""}};
  EXPECT_EQ(said({Fact::kStatesFound}), "");
  at.binding.inputs.erase(x);
  EXPECT_EQ(said({Fact::kInputsBound}), "'x' is an input without a meaning");
  Node& choice = g.graph_.nodes.back();
  choice.attrs["then_branch"].graph = std::make_shared<Graph>();
  EXPECT_EQ(said({Fact::kControlInlined}), "Einsum 'product': branches on a condition");
}

}  // namespace
}  // namespace situ
