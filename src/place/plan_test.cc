// What a plan may not be, whatever made it.
#include "place/plan.h"

#include "ops/add_node_test.h"

namespace situ {
namespace {

class PlanTest : public testing::Test {
 protected:
  PlanTest() {
    ids_ = graph_.add_value("ids", DType::kI64);
    graph_.values[ids_].info = {DType::kI64, true, {Dim(1), Dim::symbol(kSymS)}, std::nullopt};
    graph_.inputs.push_back(ids_);
    binding_.inputs[ids_] = InputRole::kTokenIds;
  }
  ValueId add(const std::string& op, const std::vector<ValueId>& in, const std::map<std::string, int64_t>& ints = {}) {
    Node n;
    n.op = op;
    n.opset = 18;
    n.in = in;
    for (const auto& [key, v] : ints) n.set_int(key, v);
    return test::add_node(graph_, std::move(n));
  }
  ValueId rows() { return add("Gather", {graph_.add_constant("table", Tensor::allocate(DType::kF32, {64, 8})), ids_}); }
  ValueId product(ValueId x, int64_t width) {
    const int64_t wide = graph_.values[x].info.shape.back().value();
    return add("MatMul", {x, graph_.add_constant("w", Tensor::allocate(DType::kF32, {wide, width}))});
  }
  Result<Plan> plan_of(ValueId logits) {
    binding_.logits = logits;
    graph_.outputs = {logits};
    graph_.rebuild_links();
    return make_plan(graph_, binding_, {8, 16, 8});
  }
  std::string wrong(const Plan& plan) const {
    const Status status = check_lifetimes(graph_, binding_, plan);
    return status.is_ok() ? "" : status.message();
  }
  Graph graph_;
  Binding binding_;
  ValueId ids_ = kNoValue;
};

TEST_F(PlanTest, RefusesExtentsWithoutAMeaning) {
  graph_.values[ids_].info.shape[0] = Dim::symbol(graph_.symbol("frames"));
  const Result<Plan> plan = plan_of(add("Relu", {rows()}));
  ASSERT_FALSE(plan.is_ok());
  EXPECT_NE(plan.status().message().find("frames"), std::string::npos) << plan.status().message();
}

TEST_F(PlanTest, BlocksThatLiveAtOnceLieApart) {
  const ValueId x = rows(), y = product(x, 24);
  Result<Plan> plan = plan_of(add("Add", {product(y, 8), x}));
  ASSERT_TRUE(plan.is_ok()) << plan.status().message();
  const auto root = [&](ValueId v) -> Root& { return plan->arena[static_cast<size_t>(plan->values[v].root)]; };
  EXPECT_EQ(wrong(*plan), "");
  root(y).offset = root(x).offset + root(x).bytes - 64;
  EXPECT_NE(wrong(*plan).find("lies over that of"), std::string::npos) << wrong(*plan);
  root(y).offset = plan->arena_bytes;
  EXPECT_NE(wrong(*plan).find("leaves the arena"), std::string::npos) << wrong(*plan);
}

// Relu may take the place of x, unless x is read later.
TEST_F(PlanTest, WhatNobodyReadsIsWrittenOver) {
  const ValueId x = rows(), y = add("Relu", {x});
  Result<Plan> plan = plan_of(product(y, 8));
  ASSERT_TRUE(plan.is_ok()) << plan.status().message();
  EXPECT_EQ(plan->values[x].root, plan->values[y].root);
  EXPECT_EQ(wrong(*plan), "");
}

TEST_F(PlanTest, WhatIsReadLaterIsNot) {
  const ValueId x = rows(), y = add("Relu", {x});
  Result<Plan> plan = plan_of(add("Add", {product(y, 8), product(x, 8)}));
  ASSERT_TRUE(plan.is_ok()) << plan.status().message();
  EXPECT_NE(plan->values[x].root, plan->values[y].root);
  plan->values[y] = plan->values[x];
  EXPECT_NE(wrong(*plan).find("was written over by Relu"), std::string::npos) << wrong(*plan);
}

// Threads of a product write while others read.
TEST_F(PlanTest, ProductsDoNotWriteOverTheirOperand) {
  const ValueId x = rows(), y = product(x, 8);
  Result<Plan> plan = plan_of(product(y, 8));
  ASSERT_TRUE(plan.is_ok()) << plan.status().message();
  plan->values[y] = plan->values[x];
  EXPECT_NE(wrong(*plan).find("its output lies over its operand"), std::string::npos) << wrong(*plan);
}

TEST_F(PlanTest, WhatTheHostKnowsHasNoPlace) {
  const Shape dims{Dim(1), Dim::symbol(kSymS)};
  const ValueId x = rows(), shape = add("Shape", {ids_});
  graph_.values[shape].info.content = dims;
  const ValueId twice = add("Concat", {shape, shape}, {{"axis", 0}});
  graph_.values[twice].info.content = Shape{dims[0], dims[1], dims[0], dims[1]};
  const Result<Plan> plan = plan_of(product(x, 8));
  ASSERT_TRUE(plan.is_ok()) << plan.status().message();
  EXPECT_EQ(wrong(*plan), "");
}

// Parts of a Concat lie beside each other, also where they alternate; one moved by an element lies over the other.
TEST_F(PlanTest, PartsOfAConcat) {
  const ValueId x = rows(), a = product(x, 4), b = product(a, 4);
  const auto parted = [&](ValueId v, const std::vector<int64_t>& dims) {
    return add("Reshape", {v, graph_.add_constant("dims", Tensor::vector_i64(dims))});
  };
  const ValueId halves = add("Concat", {a, b}, {{"axis", -1}});
  const ValueId pairs =
      add("Concat", {parted(product(b, 8), {1, -1, 8, 1}), parted(product(b, 8), {1, -1, 8, 1})}, {{"axis", 3}});
  Result<Plan> plan = plan_of(add("Add", {product(halves, 16), parted(pairs, {1, -1, 16})}));
  ASSERT_TRUE(plan.is_ok()) << plan.status().message();
  EXPECT_EQ(wrong(*plan), "");
  ASSERT_EQ(plan->values[a].root, plan->values[b].root);
  plan->values[b].view.offset = plan->values[a].view.offset + Dim(3);
  EXPECT_NE(wrong(*plan), "");
}

// A block with more results than are compared with each other.
TEST_F(PlanTest, ManyPartsOfAConcat) {
  const ValueId x = rows();
  std::vector<ValueId> parts(5000);
  for (ValueId& part : parts) part = add("Relu", {x});
  Result<Plan> plan = plan_of(add("ReduceMax", {add("Concat", parts, {{"axis", -1}})}));
  ASSERT_TRUE(plan.is_ok()) << plan.status().message();
  EXPECT_EQ(wrong(*plan), "");
  ASSERT_EQ(plan->values[parts[4800]].root, plan->values[parts[4900]].root);
  plan->values[parts[4900]].view.offset = plan->values[parts[4800]].view.offset + Dim(3);
  EXPECT_NE(wrong(*plan).find("was written over by Relu"), std::string::npos) << wrong(*plan);
}

// What a view makes a state of is computed in the slot that is written, and read there.
TEST_F(PlanTest, AStateThatIsAViewIsComputedInItsSlot) {
  const ValueId past = graph_.add_value("past", DType::kF32);
  graph_.values[past].info = {DType::kF32, true, {Dim(1), Dim(2), Dim(4)}, std::nullopt};
  graph_.inputs.push_back(past);
  binding_.inputs[past] = InputRole::kState;
  const ValueId made = add("Exp", {past}),
                row = add("Reshape", {made, graph_.add_constant("row", Tensor::vector_i64({1, 8}))}),
                present = add("Reshape", {row, graph_.add_constant("as", Tensor::vector_i64({1, 2, 4}))});
  binding_.states = {StatePair{past, present, StateRule::kReplace}};
  const ValueId logits = product(add("Add", {rows(), row}), 8);
  graph_.outputs = {logits, present};
  binding_.logits = logits;
  graph_.rebuild_links();
  const Result<Plan> plan = make_plan(graph_, binding_, {8, 16, 8});
  ASSERT_TRUE(plan.is_ok()) << plan.status().message();
  EXPECT_EQ(plan->values[made].region, RegionKind::kState);
  EXPECT_TRUE(std::none_of(plan->steps.begin(), plan->steps.end(), [](const Step& s) { return s.move; }));
  const Status verified = verify_plan(graph_, binding_, *plan, {2, 1, 3});
  EXPECT_TRUE(verified.is_ok()) << verified.message();
}

// Two states of one value: it is computed in the slot of one, and moved to that of the other.
TEST_F(PlanTest, TwoStatesThatAreViewsOfOneValue) {
  std::vector<ValueId> pasts;
  for (const char* name : {"past", "other"}) {
    pasts.push_back(graph_.add_value(name, DType::kF32));
    graph_.values[pasts.back()].info = {DType::kF32, true, {Dim(1), Dim(2), Dim(4)}, std::nullopt};
    graph_.inputs.push_back(pasts.back());
    binding_.inputs[pasts.back()] = InputRole::kState;
  }
  const ValueId row = add("Reshape", {add("Add", pasts), graph_.add_constant("row", Tensor::vector_i64({1, 8}))});
  const ValueId logits = product(add("Add", {rows(), row}), 8);
  graph_.outputs = {logits};
  for (const ValueId past : pasts) {
    graph_.outputs.push_back(add("Reshape", {row, graph_.add_constant("as", Tensor::vector_i64({1, 2, 4}))}));
    binding_.states.push_back(StatePair{past, graph_.outputs.back(), StateRule::kReplace});
  }
  binding_.logits = logits;
  graph_.rebuild_links();
  const Result<Plan> plan = make_plan(graph_, binding_, {8, 16, 8});
  ASSERT_TRUE(plan.is_ok()) << plan.status().message();
  EXPECT_EQ(std::count_if(plan->steps.begin(), plan->steps.end(), [](const Step& s) { return s.move; }), 1);
  const Status verified = verify_plan(graph_, binding_, *plan, {2, 1, 3});
  EXPECT_TRUE(verified.is_ok()) << verified.message();
}

}  // namespace
}  // namespace situ
