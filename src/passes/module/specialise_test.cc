#include "passes/module/specialise.h"

#include "passes/compile/test_graph.h"

namespace situ {
namespace {

// A choice by what is longer than shape arithmetic may get stays a choice.
TEST(Specialise, PredicateOfTooManyExtents) {
  test::TestGraph g;
  std::vector<ValueId> parts;
  for (int i = 0; i < 1000; ++i) {
    const int id = g.graph_.symbol("extent_" + std::to_string(i));
    parts.push_back(g.input("a" + std::to_string(i), {Dim(1), Dim::symbol(id)}, DType::kI64));
  }
  const ValueId all = g.op("Concat", parts, {{"axis", 1}});
  const ValueId some = g.op("Greater", {g.op("ReduceMax", {all}, {{"keepdims", 0}}), g.integer(7)});
  const auto branch = [](float x) {
    auto made = std::make_shared<Graph>();
    Tensor t = Tensor::allocate(DType::kF32, {1});
    t.view().as<float>()[0] = x;
    made->outputs.push_back(made->add_constant("y", t));
    return made;
  };
  g.graph_.outputs.push_back(g.op("If", {some}));
  for (const auto& [name, x] : {std::pair<const char*, float>{"then_branch", 1}, {"else_branch", 2}}) {
    Attribute& a = g.graph_.nodes.back().attrs[name];
    a.kind = Attribute::Kind::kGraph;
    a.graph = branch(x);
  }
  ThreadPool pool(1);
  Evaluator evaluator(pool);
  const Result<Graph> same = specialise(g.graph_, {}, evaluator);
  ASSERT_TRUE(same.is_ok()) << same.status().message();
  EXPECT_TRUE(same->nodes.back().is("If"));
  EXPECT_FALSE(told_apart(g.graph_, {}, {}, evaluator));
}

}  // namespace
}  // namespace situ
