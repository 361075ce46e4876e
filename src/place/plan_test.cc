// What a plan may not be, whatever made it.
#include "place/plan.h"

#include "ops/add_node_test.h"

namespace situ {
namespace {

// ids [1, S] -> Gather -> Relu, and an extent of the file that nothing became of.
TEST(MakePlan, RefusesExtentsWithoutAMeaning) {
  Graph graph;
  Binding binding;
  const ValueId ids = graph.add_value("ids", DType::kI64);
  const Dim left = Dim::symbol(graph.symbol("frames"));
  graph.values[ids].info = {DType::kI64, true, {left, Dim::symbol(kSymS)}, std::nullopt};
  graph.inputs.push_back(ids);
  binding.inputs[ids] = InputRole::kTokenIds;
  const auto add = [&](const std::string& op, const std::vector<ValueId>& in) {
    Node n;
    n.op = op;
    n.opset = 18;
    n.in = in;
    return test::add_node(graph, std::move(n));
  };
  const ValueId rows = add("Gather", {graph.add_constant("table", Tensor::allocate(DType::kF32, {64, 8})), ids});
  binding.logits = add("Relu", {rows});
  graph.outputs.push_back(binding.logits);
  graph.rebuild_links();
  const Result<Plan> plan = make_plan(graph, binding, {8, 16, 8});
  ASSERT_FALSE(plan.is_ok());
  EXPECT_NE(plan.status().message().find("frames"), std::string::npos) << plan.status().message();
}

}  // namespace
}  // namespace situ
