// Graphs that make the compiler throw are refused, naively too.
#include "runtime/naive_engine.h"

#include "passes/compile/test_graph.h"

namespace situ {
namespace {

// What loading a decoder of this graph says.
std::string refused(const Graph& graph) {
  ModelFiles files;
  files.decoder.graph = graph;
  files.decoder_name = "model.onnx";
  try {
    EngineOptions options;
    options.pool = std::make_shared<ThreadPool>(1);
    const Result<std::unique_ptr<NaiveEngine>> engine = NaiveEngine::create(files, options);
    return engine.is_ok() ? "" : engine.status().message();
  } catch (const std::exception& e) {
    return std::string("thrown: ") + e.what();
  }
}

TEST(NaiveEngine, ChoiceByMoreExtentsThanAreCounted) {
  test::TestGraph g;
  std::vector<ValueId> parts;
  for (int i = 0; i < 1000; ++i) {
    const Dim extent = Dim::symbol(g.graph_.symbol("extent_" + std::to_string(i)));
    parts.push_back(g.input("ids_" + std::to_string(i), {Dim(1), extent}, DType::kI64));
  }
  const ValueId all = g.op("Concat", parts, {{"axis", 1}});
  const ValueId some = g.op("Greater", {g.op("ReduceMax", {all}, {{"keepdims", 0}}), g.integer(7)});
  g.graph_.outputs.push_back(g.op("If", {some}));
  for (const char* branch : {"then_branch", "else_branch"}) {
    Attribute& a = g.graph_.nodes.back().attrs[branch];
    a.kind = Attribute::Kind::kGraph;
    a.graph = std::make_shared<Graph>();
    a.graph->outputs.push_back(a.graph->add_constant("y", Tensor::vector_i64({branch[0] == 't'})));
  }
  const std::string why = refused(g.graph_);
  EXPECT_NE(why, "");
  EXPECT_EQ(why.find("thrown"), std::string::npos) << why;
}

// A window of fixed extents, of which a table is read behind its end.
TEST(NaiveEngine, ConstantsThatCannotBeComputed) {
  test::TestGraph g;
  const ValueId ids = g.input("input_ids", {Dim(1), Dim(1)}, DType::kI64);
  g.input("attention_mask", {Dim(1), Dim(6)}, DType::kI64);
  const ValueId past = g.input("past_key_values.0.key", {Dim(1), Dim(5), Dim(4)});
  const ValueId row = g.op("Gather", {g.floats_of(std::vector<float>(8 * 4), {8, 4}), ids});
  const ValueId present = g.op("Concat", {past, row}, {{"axis", 1}});
  g.graph_.values[present].name = "present.0.key";
  const ValueId shift = g.op("Gather", {g.floats_of({1, 2, 3, 4}, {4}), g.integer(9)});
  const ValueId logits = g.op("Add", {row, shift});
  g.graph_.values[logits].name = "logits";
  g.graph_.outputs = {logits, present};
  g.graph_.values[present].info = {DType::kF32, true, {Dim(1), Dim(6), Dim(4)}, std::nullopt};
  const std::string why = refused(g.graph_);
  EXPECT_NE(why, "");
  EXPECT_EQ(why.find("thrown"), std::string::npos) << why;
}

}  // namespace
}  // namespace situ
