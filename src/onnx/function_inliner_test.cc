// Model-local functions.
#include "onnx/test_model.h"

namespace situ::onnx::test {
namespace {

GraphText caller(const std::vector<Bytes>& nodes) {
  GraphText g;
  g.inputs = {value("x", DType::kF32, {"B", "4"})};
  g.outputs = {bare_value("y")};
  g.nodes = nodes;
  return g;
}

FunctionText twice(const std::string& op) {
  FunctionText f;
  f.name = "Twice" + op;
  f.inputs = {"a"};
  f.outputs = {"b"};
  f.nodes = {node(op, {"a"}, {"t"}, {}, "one"), node(op, {"t"}, {"b"})};
  return f;
}

TEST(FunctionInliner, BodiesGetFreshNames) {
  FunctionText f = twice("Relu");
  f.opsets = {{"", 13}};
  const GraphText g =
      caller({node("TwiceRelu", {"x"}, {"t"}, {}, "c", "local"), node("TwiceRelu", {"t"}, {"y"}, {}, "c", "local")});
  const ImportedModel m = import_ok(model(g.bytes(), {f}));
  EXPECT_EQ(listing(m.graph), "Relu(x) -> c/t; Relu(c/t) -> t; Relu(t) -> c_2/t; Relu(c_2/t) -> y");
  EXPECT_EQ(m.graph.nodes[0].name, "c/one");
  EXPECT_EQ(m.graph.nodes[2].name, "c_2/one");
  EXPECT_EQ(m.graph.nodes[0].opset, 13);
}

TEST(FunctionInliner, CallsNest) {
  FunctionText outer;
  outer.name = "Outer";
  outer.inputs = {"a", "unused"};
  outer.outputs = {"b", "c"};
  outer.nodes = {node("TwiceNeg", {"a"}, {"t"}, {}, "in", "local"), node("Add", {"t", "unused"}, {"b"}),
                 node("Abs", {"b"}, {"c"})};
  const GraphText g = caller({node("Outer", {"x"}, {"", "y"}, {}, "o", "local")});
  const ImportedModel m = import_ok(model(g.bytes(), {outer, twice("Neg")}));
  EXPECT_EQ(listing(m.graph), "Neg(x) -> o/in/t; Neg(o/in/t) -> o/t; Add(o/t) -> o/b; Abs(o/b) -> y");
}

TEST(FunctionInliner, AttributesAreHandedDown) {
  FunctionText inner;
  inner.name = "Inner";
  inner.inputs = {"a"};
  inner.outputs = {"b"};
  inner.attributes = {"axis", "left_out"};
  inner.defaults = {int_attribute("keep", 5), ints_attribute("shape", {1, 2})};
  inner.nodes = {node("Op", {"a"}, {"t"},
                      {ref_attribute("axis", "axis", 2), ref_attribute("keepdims", "keep", 2),
                       ref_attribute("gone", "left_out", 2)}),
                 node("Constant", {}, {"s"}, {ref_attribute("value_ints", "shape", 7)}),
                 node("Reshape", {"t", "s"}, {"b"})};
  FunctionText outer;
  outer.name = "Outer";
  outer.inputs = {"a"};
  outer.outputs = {"b"};
  outer.attributes = {"dim"};
  outer.nodes = {
      node("Inner", {"a"}, {"b"}, {ref_attribute("axis", "dim", 2), ints_attribute("shape", {7})}, "", "local")};
  const GraphText g = caller({node("Outer", {"x"}, {"y"}, {int_attribute("dim", -2)}, "o", "local")});
  const ImportedModel m = import_ok(model(g.bytes(), {inner, outer}));
  ASSERT_EQ(m.graph.nodes.size(), 2u);
  EXPECT_EQ(m.graph.nodes[0].attr_int("axis", 0), -2);
  EXPECT_EQ(m.graph.nodes[0].attr_int("keepdims", 0), 5);
  EXPECT_EQ(m.graph.nodes[0].attr("gone"), nullptr);
  EXPECT_EQ(m.graph.value(m.graph.nodes[1].in[1]).constant.to_i64(), (std::vector<int64_t>{7}));
}

TEST(FunctionInliner, SubgraphsInBodiesCaptureTheCallersValues) {
  GraphText branch;
  branch.nodes = {node("Add", {"a", "t"}, {"r"})};
  branch.outputs = {bare_value("r")};
  FunctionText f;
  f.name = "F";
  f.inputs = {"a", "c"};
  f.outputs = {"b"};
  f.nodes = {node("Relu", {"a"}, {"t"}),
             node("If", {"c"}, {"b"},
                  {graph_attribute("then_branch", branch.bytes()), graph_attribute("else_branch", branch.bytes())})};
  GraphText g = caller({node("F", {"x", "cond"}, {"y"}, {}, "call", "local")});
  g.inputs.push_back(value("cond", DType::kBool, {}));
  const ImportedModel m = import_ok(model(g.bytes(), {f}));
  ASSERT_EQ(m.graph.nodes.size(), 2u);
  const Graph& inner = *m.graph.nodes[1].attr("else_branch")->graph;
  ASSERT_EQ(inner.captures.size(), 2u);
  EXPECT_EQ(inner.captures[0].second, m.graph.inputs[0]);
  EXPECT_EQ(m.graph.value(inner.captures[1].second).name, "call/t");
  expect_consistent(m.graph);
}

TEST(FunctionInliner, CallsInBranchesAndConstantsInBodies) {
  // As torch.cond exports: each branch is one call; the function's constant is one tensor however often it is called.
  FunctionText f;
  f.name = "F";
  f.inputs = {"a"};
  f.outputs = {"b"};
  f.nodes = {
      node("Constant", {}, {"k"}, {tensor_attribute("value", raw_tensor("", DType::kF32, {2}, raw<float>({1, 2})))}),
      node("Mul", {"a", "k"}, {"b"})};
  GraphText branch;
  branch.nodes = {node("F", {"x"}, {"r"}, {}, "call", "local")};
  branch.outputs = {bare_value("r")};
  GraphText g =
      caller({node("If", {"cond"}, {"y"},
                   {graph_attribute("then_branch", branch.bytes()), graph_attribute("else_branch", branch.bytes())})});
  g.inputs.push_back(value("cond", DType::kBool, {}));
  const ImportedModel m = import_ok(model(g.bytes(), {f}));
  const Graph& a = *m.graph.nodes[0].attr("then_branch")->graph;
  const Graph& b = *m.graph.nodes[0].attr("else_branch")->graph;
  EXPECT_EQ(listing(a), "Mul(x, call/k) -> r");
  EXPECT_EQ(a.value(a.find("call/k")).constant.view().data, b.value(b.find("call/k")).constant.view().data);
}

TEST(FunctionInliner, OutputsMayBeInputsOrTheSameTwice) {
  FunctionText f;
  f.name = "F";
  f.inputs = {"a"};
  f.outputs = {"a", "t", "t"};
  f.nodes = {node("Relu", {"a"}, {"t"})};
  GraphText g = caller({node("F", {"x"}, {"y", "u", "v"}, {}, "c", "local")});
  g.outputs = {bare_value("y"), bare_value("u"), bare_value("v")};
  EXPECT_EQ(listing(import_ok(model(g.bytes(), {f})).graph), "Relu(x) -> u; Identity(x) -> y; Identity(u) -> v");
}

TEST(FunctionInliner, OverloadsAreTold) {
  FunctionText one = twice("Relu"), two = twice("Neg");
  one.name = two.name = "F";
  one.overload = "one";
  two.overload = "two";
  const GraphText g = caller({node("F", {"x"}, {"y"}, {}, "c", "local", "two")});
  EXPECT_EQ(import_ok(model(g.bytes(), {one, two})).graph.nodes[0].op, "Neg");
  expect_refused(model(g.bytes(), {two, two}), {"'F'", "defined twice"});
}

TEST(FunctionInliner, RefusesRecursion) {
  FunctionText a = twice("B"), b = twice("A");
  a.name = "A";
  a.nodes[0] = node("B", {"a"}, {"t"}, {}, "one", "local");
  b.name = "B";
  b.nodes[0] = node("A", {"a"}, {"t"}, {}, "one", "local");
  const GraphText g = caller({node("A", {"x"}, {"y"}, {}, "c", "local")});
  expect_refused(model(g.bytes(), {a, b}), {"'A'", "calls itself"});
}

// F0 calls F1 twice, F1 calls F2 twice, ...; the last one computes. `name` is that of the first node of each body.
std::vector<FunctionText> doubling(int levels, const std::string& name) {
  std::vector<FunctionText> functions;
  for (int i = 0; i < levels; ++i) {
    const bool last = i + 1 == levels;
    const std::string op = last ? "Relu" : "F" + std::to_string(i + 1);
    FunctionText f = twice(op);
    f.name = "F" + std::to_string(i);
    f.nodes = {node(op, {"a"}, {"t"}, {}, name, last ? "" : "local"),
               node(op, {"t"}, {"b"}, {}, "", last ? "" : "local")};
    functions.push_back(f);
  }
  return functions;
}

TEST(FunctionInliner, ExpansionIsBounded) {
  const GraphText g = caller({node("F0", {"x"}, {"y"}, {}, "c", "local")});
  EXPECT_EQ(import_ok(model(g.bytes(), doubling(8, "n"))).graph.nodes.size(), 256u);
  expect_refused(model(g.bytes(), doubling(40, std::string(10000, 'n'))), {"256 MiB"});
  std::vector<FunctionText> chain = doubling(100, "n");
  for (FunctionText& f : chain) f.nodes[0] = node("Relu", {"a"}, {"t"});
  expect_refused(model(g.bytes(), chain), {"64 levels"});
}

TEST(FunctionInliner, CallsOfEmptyFunctionsCountToo) {
  std::vector<FunctionText> functions = doubling(30, "");
  for (int i = 0; i < 30; ++i) {
    const Bytes call = node("F" + std::to_string(i + 1), {}, {}, {}, std::string(1000, 'n'), "local");
    functions[i].inputs = functions[i].outputs = {};
    functions[i].nodes = {call, call};
  }
  functions.back().nodes.clear();
  expect_refused(model(caller({node("F0", {}, {}, {}, "c", "local")}).bytes(), functions), {"256 MiB"});
}

// A function that has the name of an operator is that operator, with the attributes that the function has by itself.
TEST(FunctionInliner, AnOperatorIsNotWrittenOut) {
  FunctionText f = twice("Relu");
  f.defaults = {int_attribute("keep", 5), int_attribute("given", 6)};
  const GraphText g = caller({node("TwiceRelu", {"x"}, {"y"}, {int_attribute("given", 7)}, "c", "local")});
  const TempFolder folder;
  const std::filesystem::path file = folder.write("model.onnx", model(g.bytes(), {f}));
  const auto imported = [&](IsOperator is_operator) {
    Result<ImportedModel> m = import_onnx(file, nullptr, is_operator);
    EXPECT_TRUE(m.is_ok()) << m.status().message();
    return m.is_ok() ? std::move(m->graph) : Graph{};
  };
  const Graph one = imported([](const Node& n) {
    return n.op == "TwiceRelu" && n.domain == "local" && n.in.size() == 1 && n.out.size() == 1 && n.attrs.size() == 2;
  });
  ASSERT_EQ(listing(one), "TwiceRelu(x) -> y");
  EXPECT_EQ(one.nodes[0].attr_int("keep", 0), 5);
  EXPECT_EQ(one.nodes[0].attr_int("given", 0), 7);
  EXPECT_EQ(imported([](const Node& n) { return n.attrs.empty(); }).nodes.size(), 2u);
}

TEST(FunctionInliner, RefusesCallsThatDoNotFit) {
  FunctionText f = twice("Relu");
  f.name = "F";
  const auto refused = [&](const Bytes& call, const Names& parts) {
    expect_refused(model(caller({call}).bytes(), {f}), parts);
  };
  refused(node("F", {"x", "x"}, {"y"}, {}, "c", "local"), {"local.F 'c'", "2 inputs", "it has 1"});
  refused(node("F", {"x"}, {"y", "z"}, {}, "c", "local"), {"local.F 'c'", "2 outputs", "it has 1"});
  f.outputs = {"nobody"};
  refused(node("F", {"x"}, {"y"}, {}, "c", "local"), {"'F'", "'nobody'"});
  f = twice("Relu");
  f.name = "F";
  f.nodes[0] = node("Relu", {"x"}, {"t"}, {}, "deep");  // functions do not see the caller's names
  refused(node("F", {"x"}, {"y"}, {}, "c", "local"), {"Relu 'c/deep'", "operand 0", "'x'"});
  f.nodes[0] = node("Relu", {"a"}, {"t"}, {ref_attribute("p", "q", 2)}, "deep");
  refused(node("F", {"x"}, {"y"}, {}, "c", "local"), {"Relu 'c/deep'", "'p'", "'q'"});
  refused(node("Relu", {"x"}, {"y"}, {ref_attribute("p", "q", 2)}, "top"), {"Relu 'top'", "'q'", "stands in none"});
}

}  // namespace
}  // namespace situ::onnx::test
