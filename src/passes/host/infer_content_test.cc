// Extents that are known before a step runs, in the spellings of exporters.
#include <gtest/gtest.h>

#include <functional>
#include <memory>

#include "graph/fingerprint.h"
#include "passes/compile/test_graph.h"
#include "passes/context/binding.h"
#include "passes/host/infer.h"

namespace situ {
namespace {

using test::P;
using test::S;

// arange(n, dtype=float) as torch.onnx writes it: all three operands are floats.
ValueId float_range(test::TestGraph& g, ValueId n) {
  return g.op("Range", {g.number(0), g.cast(g.op("Add", {n, g.integer(0)}), DType::kF32), g.number(1)});
}

TEST(InferContent, ARangeIsAsLongAsWhatItsLastNumbersSay) {
  test::TestGraph g;
  const ValueId positions = g.range(P(), P() + S());
  const ValueId rows = g.unsqueeze(positions, 0);
  const ValueId last = g.op("Gather", {positions, g.integer(-1)}), first = g.op("Gather", {positions, g.integer(0)}),
                most = g.op("ReduceMax", {rows}, {{"keepdims", 0}}),
                least = g.op("ReduceMin", {rows}, {{"keepdims", 0}});
  const std::vector<std::pair<ValueId, Dim>> cases{
      {last, P() + S()}, {first, P() + Dim(1)}, {most, P() + S()}, {least, P() + Dim(1)}};
  for (const auto& [number, extent] : cases)
    g.graph_.outputs.push_back(float_range(g, g.op("Add", {number, g.integer(1)})));
  test::TestContext at(g.graph_, 64);
  g.infer(at.context);
  for (size_t i = 0; i < cases.size(); ++i) {
    const ValueInfo& info = g.graph_.values[g.graph_.outputs[i]].info;
    EXPECT_EQ(info.type, DType::kF32);
    EXPECT_EQ(info.shape, Shape{cases[i].second}) << shape_str(info.shape);
  }
}

TEST(InferContent, PositionsBeginBehindThePast) {
  test::TestGraph g;
  const ValueId row = g.input("cache_position", {S()}, DType::kI64),
                rows = g.input("position_ids", {Dim(1), S()}, DType::kI64),
                other = g.input("other", {S()}, DType::kI64),
                pictures = g.input("places", {Dim(3), Dim(1), S()}, DType::kI64);
  const auto part = [&](ValueId x, int64_t begin, int64_t end) {
    return g.op("Slice", {x, g.integers({begin}), g.integers({end}), g.integers({0})});
  };
  const ValueId of_rows = g.op("Gather", {rows, g.integer(0)});
  const std::vector<std::pair<ValueId, std::optional<Dim>>> cases{
      {part(row, 0, 1), P()},
      {part(row, -1, INT64_MAX), P() + S() - Dim(1)},
      {part(g.op("Reshape", {rows, g.integers({-1})}), 0, 1), P()},
      {g.op("Gather", {of_rows, g.integer(-1)}), P() + S() - Dim(1)},
      {g.op("ReduceMax", {rows}, {{"keepdims", 0}}), P() + S() - Dim(1)},
      {g.op("ReduceMax", {pictures}, {{"keepdims", 0}}), std::nullopt},
      {part(other, 0, 1), std::nullopt},
      {part(row, 1, 2), std::nullopt}};
  for (const auto& [number, known] : cases) g.graph_.outputs.push_back(number);
  test::TestContext at(g.graph_, 64);
  for (const ValueId v : {row, rows, pictures}) at.binding.inputs[v] = InputRole::kPositions;
  g.infer(at.context);
  for (size_t i = 0; i < cases.size(); ++i) {
    const auto& content = g.graph_.values[cases[i].first].info.content;
    EXPECT_EQ(content, cases[i].second ? std::optional(Shape{*cases[i].second}) : std::nullopt) << i;
  }
}

TEST(InferContent, ARangeOfFractionsIsCounted) {
  test::TestGraph g;
  g.graph_.outputs = {g.op("Range", {g.number(0), g.number(2.5f), g.number(1)})};
  test::TestContext at(g.graph_, 64);
  g.infer(at.context);
  EXPECT_EQ(g.graph_.values[g.graph_.outputs[0]].info.shape, Shape{Dim(3)});
}

// A graph with each kind of thing that a fingerprint is of.
Graph of_every_kind() {
  test::TestGraph g;
  const ValueId x = g.input("x", {S(), Dim(4)});
  g.graph_.outputs = {g.op("Reshape", {x, g.graph_.add_shape("dims", {S(), Dim(2), Dim(2)})}, {{"allowzero", 0}})};
  g.graph_.captures = {{0, 1}};
  Attribute& branch = g.graph_.nodes[0].attrs["branch"];
  branch.kind = Attribute::Kind::kGraph;
  branch.graph = std::make_shared<Graph>();
  branch.graph->add_constant("y", Tensor::scalar_i64(1));
  g.constant(Tensor::scalar_i64(7));
  return g.graph_;
}

TEST(InferShapes, AFingerprintIsOfAllButNames) {
  const std::vector<std::function<void(Graph&)>> changes{
      [](Graph& g) { g.add_value("more"); },
      [](Graph& g) { g.values[0].info.type = DType::kF16; },
      [](Graph& g) { g.values[0].info.ranked = false; },
      [](Graph& g) { g.values[0].info.shape[0] = S() + Dim(1); },
      [](Graph& g) { g.values[0].info.shape[0] = S() + S(); },
      [](Graph& g) { g.values[0].info.shape.pop_back(); },
      [](Graph& g) { g.values[0].info.content.emplace(); },
      [](Graph& g) { (*g.values[1].info.content)[1] = Dim(1); },
      [](Graph& g) { g.values.back().constant = Tensor::scalar_i64(7); },
      [](Graph& g) { g.values.back().constant = g.values.back().constant.reshaped({1}); },
      [](Graph& g) { g.values.back().constant = Tensor(); },
      [](Graph& g) { g.values[0].producer = 0; },
      [](Graph& g) { g.nodes.push_back(g.nodes[0]); },
      [](Graph& g) { g.nodes[0].op = "Expand"; },
      [](Graph& g) { g.nodes[0].domain = "situ"; },
      [](Graph& g) { g.nodes[0].opset = 18; },
      [](Graph& g) { g.nodes[0].in[0] = kNoValue; },
      [](Graph& g) { g.nodes[0].out.push_back(kNoValue); },
      [](Graph& g) { g.nodes[0].def = find_op("", "Cast", 13); },
      [](Graph& g) { g.nodes[0].mixed_floats = true; },
      [](Graph& g) { g.nodes[0].computed_in_place = true; },
      [](Graph& g) { g.nodes[0].attribute_error = "wrong"; },
      [](Graph& g) { g.nodes[0].set_int("other", 0); },
      [](Graph& g) { g.nodes[0].set_int("allowzero", 1); },
      [](Graph& g) { g.nodes[0].set_float("allowzero", 0); },
      [](Graph& g) { g.nodes[0].attrs["allowzero"].f = 1; },
      [](Graph& g) { g.nodes[0].attrs["allowzero"].s = "1"; },
      [](Graph& g) { g.nodes[0].attrs["allowzero"].ints = {0}; },
      [](Graph& g) { g.nodes[0].attrs["allowzero"].floats = {0}; },
      [](Graph& g) { g.nodes[0].attrs["allowzero"].strings = {""}; },
      [](Graph& g) { g.nodes[0].attrs["allowzero"].tensor = Tensor::scalar_i64(0); },
      [](Graph& g) { g.nodes[0].attrs["branch"].graph = std::make_shared<Graph>(*g.nodes[0].attrs["branch"].graph); },
      [](Graph& g) { g.nodes[0].attrs["branch"].graph->values[0].constant = Tensor(); },
      [](Graph& g) { g.inputs.clear(); },
      [](Graph& g) { g.outputs.push_back(0); },
      [](Graph& g) { g.captures[0].second = 0; },
  };
  for (size_t i = 0; i < changes.size(); ++i) {
    Graph g = of_every_kind();
    const uint64_t before = fingerprint(g);
    g.values[0].name = g.nodes[0].name = g.name = "other";
    EXPECT_EQ(fingerprint(g), before);
    changes[i](g);
    EXPECT_NE(fingerprint(g), before) << "change " << i;
  }
}

// Weights that are interleaved by views alone are put in order once; those that strides can say stay as they are
// stored.
TEST(InferShapes, WeightsAreReorderedOnce) {
  test::TestGraph g;
  const ValueId w = g.floats_of(std::vector<float>(4096, 1), {4, 16, 64}), x = g.input("x", {Dim(4), S(), Dim(64)}),
                halves = g.op("Reshape", {w, g.integers({4, 2, 8, 64})}),
                turned = g.op("Transpose", {halves}, {}, {0, 2, 1, 3}),
                mixed = g.op("Reshape", {turned, g.integers({4, 16, 64})}),
                apart = g.op("Reshape", {turned, g.integers({4, 8, 1, 2, 64})});
  g.graph_.outputs = {g.op("MatMul", {x, g.op("Transpose", {mixed}, {}, {0, 2, 1})}), g.op("Mul", {x, x}), apart};
  test::TestContext at(g.graph_, 64);
  g.infer(at.context);
  const Node* product = g.graph_.producer(g.graph_.outputs[0], "MatMul");
  ASSERT_TRUE(product);
  EXPECT_TRUE(g.graph_.values[static_cast<size_t>(product->in[1])].constant.present());
  EXPECT_FALSE(g.graph_.values[static_cast<size_t>(apart)].constant.present());
}

// stored_bytes is counted again where all shapes are.
TEST(InferShapes, AreInferredAgainWhereSomethingChanged) {
  test::TestGraph g;
  const ValueId x = g.input("x", {S(), Dim(4)});
  g.graph_.outputs = {g.op("Unsqueeze", {x, g.integers({0})})};
  test::TestContext at(g.graph_, 64);
  const auto inferred = [&] {
    at.context.stored_bytes = 0;
    EXPECT_TRUE(infer_shapes(at.context).is_ok());
    return at.context.stored_bytes != 0;
  };
  g.infer(at.context);
  EXPECT_TRUE(inferred()) << "the first time all of it changed";
  EXPECT_FALSE(inferred());
  g.graph_.values[x].info.shape[1] = Dim(5);
  EXPECT_TRUE(inferred());
  EXPECT_EQ(g.graph_.values[g.graph_.outputs[0]].info.shape, (Shape{Dim(1), S(), Dim(5)}));
  EXPECT_TRUE(inferred());
  EXPECT_FALSE(inferred());
  at.context.weights_as_stored = !at.context.weights_as_stored;
  EXPECT_TRUE(inferred());
  EXPECT_FALSE(inferred());
  at.context.before_infer = [](Node&) {};
  EXPECT_TRUE(inferred());
  EXPECT_TRUE(inferred());
}

}  // namespace
}  // namespace situ
