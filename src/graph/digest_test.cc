// Digests of graphs: what they tell apart, and what they do not; and the count of visits to nodes.
#include "graph/digest.h"

#include <gtest/gtest.h>

#include "graph/symbols.h"

namespace situ {
namespace {

struct Made {
  std::string input = "x";
  int64_t axis = 1;
  int64_t number = 7;
  DType type = DType::kF32;
  bool swapped = false;  // operands of Sub
  bool turned = false;   // values are numbered, and nodes stand, in another order
};

// Sub(Softmax(x), Mul(x, 7))
Graph made(const Made& m) {
  Graph g;
  ValueId x = kNoValue, seven = kNoValue;
  const auto leaves = [&](bool first) {
    if (first) {
      x = g.add_value(m.input, m.type);
      g.values[x].info = {m.type, true, {Dim::symbol(kSymS), Dim(4)}, std::nullopt};
      g.inputs = {x};
    } else {
      seven = g.add_constant("seven", Tensor::scalar_i64(m.number));
    }
  };
  leaves(!m.turned);
  leaves(m.turned);
  const ValueId a = g.add_value(m.turned ? "a" : "b", m.type), b = g.add_value(m.turned ? "c" : "d", m.type);
  Node softmax{.name = m.turned ? "n" : "", .op = "Softmax", .in = {x}, .out = {a}};
  softmax.set_int("axis", m.axis);
  softmax.set_int("another", 3);
  const Node times{.op = "Mul", .in = {x, seven}, .out = {b}};
  g.add_node(m.turned ? times : softmax);
  g.add_node(m.turned ? softmax : times);
  const ValueId y = g.add_value("y", m.type);
  g.add_node({.op = "Sub", .in = m.swapped ? std::vector{b, a} : std::vector{a, b}, .out = {y}});
  g.outputs = {y};
  return g;
}

uint64_t digest(const Made& m) { return GraphDigest(made(m)).whole(); }

TEST(GraphDigest, CountsWhatIsComputedAndNothingElse) {
  const uint64_t usual = digest({});
  EXPECT_EQ(usual, digest({.turned = true}));
  for (const Made& other : {Made{.input = "z"}, {.axis = 0}, {.number = 8}, {.type = DType::kF16}, {.swapped = true}})
    EXPECT_NE(usual, digest(other));
}

TEST(GraphDigest, ReadsBothEndsOfAConstant) {
  const auto of = [](size_t changed) {
    Graph g;
    std::vector<int64_t> numbers(4096);
    numbers[changed] = 1;
    g.add_constant("c", Tensor::vector_i64(numbers));
    return GraphDigest(g).of(0);
  };
  EXPECT_NE(of(0), of(1));
  EXPECT_NE(of(4095), of(4094));
  EXPECT_EQ(of(2000), of(2001));  // neither is read
}

// An If whose branch takes a value of the graph around it.
TEST(GraphDigest, FollowsSubgraphs) {
  const auto of = [](const char* op, bool other) {
    Graph g = made({});
    auto branch = std::make_shared<Graph>();
    const ValueId inner = branch->add_value("inner", DType::kF32), result = branch->add_value("result", DType::kF32);
    branch->add_node({.op = op, .in = {inner}, .out = {result}});
    branch->outputs = {result};
    branch->captures = {{inner, g.nodes[other].out[0]}};
    Node choice{.op = "If", .in = {g.inputs[0]}, .out = {g.add_value("chosen", DType::kF32)}};
    choice.attrs["then_branch"].kind = Attribute::Kind::kGraph;
    choice.attrs["then_branch"].graph = branch;
    g.add_node(choice);
    return GraphDigest(g).whole();
  };
  EXPECT_EQ(of("Neg", false), of("Neg", false));
  EXPECT_NE(of("Neg", false), of("Abs", false));
  EXPECT_NE(of("Neg", false), of("Neg", true));
}

TEST(NodeList, CountsVisits) {
  Graph g = made({});
  g.rebuild_links();
  const auto visits = [&](const auto& look) {
    const int64_t before = NodeList::visits();
    look();
    return NodeList::visits() - before;
  };
  EXPECT_EQ(visits([&] { EXPECT_EQ(g.nodes.size(), 3u); }), 0);
  EXPECT_EQ(visits([&] { EXPECT_EQ(g.producer(g.outputs[0])->op, "Sub"); }), 1);
  EXPECT_EQ(visits([&] {
              for (const Node& n : g.nodes) EXPECT_FALSE(n.op.empty());
            }),
            3);
  EXPECT_EQ(visits([&] { g.nodes = NodeList(std::vector<Node>(std::exchange(g.nodes, {}))); }), 6);
}

}  // namespace
}  // namespace situ
