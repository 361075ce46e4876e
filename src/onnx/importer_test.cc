// Names, inputs and outputs, nodes, subgraphs, opsets; and every model that is at hand.
#include "onnx/importer.h"

#include <ctime>

#include "onnx/limits.h"
#include "onnx/test_model.h"

namespace situ::onnx::test {
namespace {

const Bytes kInputX = value("x", DType::kF32, {"B", "4"});
const Bytes kOutputY = value("y", DType::kF32, {"B", "4"});

TEST(Importer, ReadsNodesInputsAndOutputs) {
  GraphText g;
  g.inputs = {kInputX, value("mask", DType::kI64, {"B", "past + S", ""})};
  g.outputs = {kOutputY};
  g.initializers = {i64_tensor("axes", {2}, {-1, 7})};
  g.nodes = {
      node("A", {"x", "", "axes", "", ""}, {"t", ""}, {int_attribute("k", -3), string_attribute("s", "str")}, "first"),
      node("Bee", {"t", "mask"}, {"y"}, {ints_attribute("l", {1, 2}), float_attribute("f", 0.5f)}, "",
           "com.microsoft")};
  const ImportedModel m = import_ok(model(g.bytes(), {}, {{"ai.onnx", 17}}));
  EXPECT_EQ(m.producer, "test 1.0");
  EXPECT_EQ(m.opsets.at(""), 17);
  EXPECT_EQ(listing(m.graph), "A(x, -, axes) -> t, -; Bee(t, mask) -> y");
  const Node& a = m.graph.nodes[0];
  EXPECT_EQ(a.name, "first");
  EXPECT_EQ(a.opset, 17);
  EXPECT_EQ(a.attr_int("k", 0), -3);
  EXPECT_EQ(a.attr_string("s", ""), "str");
  const Node& b = m.graph.nodes[1];
  EXPECT_EQ(b.opset, 1);  // used without an import
  EXPECT_EQ(b.label(), "com.microsoft.Bee 'Bee:y'");
  EXPECT_EQ(b.attr_ints("l"), (std::vector<int64_t>{1, 2}));
  EXPECT_EQ(b.attr_float("f", 0), 0.5f);
  ASSERT_EQ(m.graph.inputs.size(), 2u);
  const ValueInfo& mask = m.graph.value(m.graph.inputs[1]).info;
  EXPECT_EQ(mask.type, DType::kI64);
  EXPECT_EQ(shape_str(mask.shape, &m.graph.symbol_names()), "[B, past + S, unk_mask_2]");
  const Value& axes = m.graph.value(m.graph.nodes[0].in[2]);
  ASSERT_TRUE(axes.info.content.has_value());
  EXPECT_EQ((*axes.info.content)[1], Dim(7));
}

TEST(Importer, SameDimNameIsSameSymbol) {
  GraphText g;
  g.inputs = {value("x", DType::kF32, {"B", "S"}), value("z", DType::kF32, {"S", "B"})};
  g.outputs = {value("y", DType::kF32, {"B", ""})};
  g.nodes = {node("Op", {"x", "z"}, {"y"})};
  const ImportedModel m = import_ok(model(g.bytes()));
  EXPECT_EQ(m.graph.value(0).info.shape[1], m.graph.value(1).info.shape[0]);
  EXPECT_EQ(m.graph.symbol_names().size(), kFirstFileSymbol + 2u);
  EXPECT_FALSE(m.graph.value(m.graph.outputs[0]).info.ranked);  // the "" follows from the graph
  EXPECT_EQ(m.graph.value(m.graph.outputs[0]).info.type, DType::kF32);
}

TEST(Importer, ADimNamedByANumberIsThatNumber) {
  GraphText g;
  g.inputs = {value("x", DType::kF32, {"B", "=48", "=-3", "=0", "=3e", "=99999999999999999999"})};
  g.outputs = {value("y", DType::kF32, {"=48"})};
  g.nodes = {node("Op", {"x"}, {"y"})};
  const ImportedModel m = import_ok(model(g.bytes()));
  const Shape& x = m.graph.value(0).info.shape;
  EXPECT_EQ(shape_str(x, &m.graph.symbol_names()), "[B, 48, -3, 0, 3e, 99999999999999999999]");
  EXPECT_EQ(x[1], Dim(48));
  EXPECT_EQ(m.graph.symbol_names().size(), kFirstFileSymbol + 5u);
}

TEST(Importer, RefusesMoreSymbolsThanThereIsRoomFor) {
  GraphText g;
  const std::string room = std::to_string(kMostFileSymbols);
  for (int i = 0; i <= kMostFileSymbols; i += 8) {
    std::vector<std::string> dims;
    for (int d = i; d < i + 8; ++d) dims.push_back("d" + std::to_string(d));
    g.inputs.push_back(value("in" + std::to_string(i), DType::kF32, dims));
  }
  expect_refused(model(g.bytes()), {"input 'in" + room + "'", "dim 0 'd" + room + "'", room});
}

TEST(Importer, RefusesMoreInputsThanPassesCanPair) {
  GraphText g;
  g.outputs = {kOutputY};
  g.nodes = {node("Identity", {"in0"}, {"y"})};
  for (size_t i = 0; i < kMaxInputs; ++i) g.inputs.push_back(value("in" + std::to_string(i), DType::kF32, {"4"}));
  import_ok(model(g.bytes()));
  g.inputs.push_back(value("more", DType::kF32, {"4"}));
  expect_refused(model(g.bytes()), {"input 'more' is one too many: at most 1024 inputs are supported"});
}

TEST(Importer, InitialisersListedAsInputsAreConstants) {
  GraphText g;
  g.inputs = {kInputX, value("w", DType::kF32, {"4"})};
  g.outputs = {kOutputY};
  g.initializers = {raw_tensor("w", DType::kF32, {4}, raw<float>({1, 2, 3, 4}))};
  g.nodes = {node("Add", {"x", "w"}, {"y"})};
  const ImportedModel m = import_ok(model(g.bytes(), {}, {{"", 11}}, 3));
  EXPECT_EQ(m.graph.inputs.size(), 1u);
  EXPECT_TRUE(m.graph.value(m.graph.nodes[0].in[1]).constant.present());
}

TEST(Importer, ConstantNodesBecomeValues) {
  GraphText g;
  g.inputs = {kInputX};
  g.outputs = {kOutputY};
  const auto constant = [](const Bytes& a, const std::string& out) { return node("Constant", {}, {out}, {a}); };
  g.nodes = {constant(tensor_attribute("value", raw_tensor("", DType::kF32, {2}, raw<float>({5, 6}))), "a"),
             constant(int_attribute("value_int", 7), "b"),
             constant(ints_attribute("value_ints", {8, 9}), "c"),
             constant(float_attribute("value_float", 1.5f), "d"),
             constant(attribute("value_floats", 6, [](auto& w) { w.add_float(7, 2.5f); }), "e"),
             constant(string_attribute("value_string", "unused"), "s"),
             node("Op", {"x", "a", "b", "c", "d", "e"}, {"y"})};
  const ImportedModel m = import_ok(model(g.bytes()));
  ASSERT_EQ(m.graph.nodes.size(), 1u);
  const auto in = [&](size_t i) -> const Value& { return m.graph.value(m.graph.nodes[0].in[i]); };
  EXPECT_EQ(in(1).constant.to_f64(), (std::vector<double>{5, 6}));
  EXPECT_EQ(in(2).constant.to_i64(), (std::vector<int64_t>{7}));
  EXPECT_EQ(in(2).constant.rank(), 0);
  EXPECT_EQ((*in(3).info.content)[0], Dim(8));
  EXPECT_EQ(in(4).constant.to_f64(), (std::vector<double>{1.5}));
  EXPECT_EQ(in(5).constant.dims(), (std::vector<int64_t>{1}));
}

TEST(Importer, StringsAreRefusedWhereTheyAreUsed) {
  GraphText g;
  g.inputs = {kInputX};
  g.outputs = {kOutputY};
  g.nodes = {node("Relu", {"x"}, {"y"}), node("Constant", {}, {"words"}, {string_attribute("value_string", "a")})};
  g.initializers = {tensor("names", DType::kString, {3})};
  const ImportedModel m = import_ok(model(g.bytes()));
  EXPECT_EQ(m.graph.value(m.graph.find("names")).info.type, DType::kString);
  g.nodes.push_back(node("Lookup", {"x", "names"}, {"z"}, {}, "look"));
  expect_refused(model(g.bytes()), {"Lookup 'look'", "'names'", "string"});
  g.nodes.back() =
      node("If", {"x"}, {"z"},
           {graph_attribute(
               "then_branch",
               GraphText{{node("Lookup", {"words"}, {"q"}, {}, "look")}, {}, {}, {bare_value("q")}, {}}.bytes())});
  expect_refused(model(g.bytes()), {"Lookup 'look'", "'words'", "string"});
}

TEST(Importer, SortsNodesAndRefusesCycles) {
  GraphText g;
  g.inputs = {kInputX};
  g.outputs = {kOutputY};
  g.nodes = {node("Second", {"t", "c"}, {"y"}), node("First", {"x"}, {"t"}),
             node("Constant", {}, {"c"}, {int_attribute("value_int", 1)})};
  EXPECT_EQ(listing(import_ok(model(g.bytes())).graph), "First(x) -> t; Second(t, c) -> y");
  g.nodes[1] = node("First", {"y"}, {"t"}, {}, "one");
  expect_refused(model(g.bytes()), {"cycle"});
  g.nodes = {node("Self", {"y"}, {"y"})};
  expect_refused(model(g.bytes()), {"cycle", "Self"});
}

TEST(Importer, NodeNamesAreUnique) {
  GraphText g;
  g.inputs = {kInputX};
  g.outputs = {kOutputY};
  g.nodes = {node("A", {"x"}, {"t"}, {}, "n"), node("B", {"t"}, {"u"}, {}, "n"), node("C", {"u"}, {"v"}, {}, "n_2"),
             node("D", {"v"}, {"y"}, {}, "n")};
  const ImportedModel m = import_ok(model(g.bytes()));
  EXPECT_EQ(m.graph.nodes[0].name, "n");
  EXPECT_EQ(m.graph.nodes[1].name, "n_2");
  EXPECT_EQ(m.graph.nodes[2].name, "n_2_2");
  EXPECT_EQ(m.graph.nodes[3].name, "n_3");
}

TEST(Importer, RefusesBrokenNames) {
  GraphText good;
  good.inputs = {kInputX};
  good.outputs = {kOutputY};
  good.nodes = {node("Relu", {"x"}, {"y"}, {}, "one")};
  GraphText g = good;
  g.nodes.push_back(node("Neg", {"x"}, {"y"}, {}, "two"));
  expect_refused(model(g.bytes()), {"'y'", "Relu 'one'", "Neg 'two'"});
  g = good;
  g.nodes.push_back(node("Split", {"x"}, {"z", "z"}, {}, "two"));
  expect_refused(model(g.bytes()), {"'z'", "twice", "Split 'two'"});
  g = good;
  g.nodes.push_back(node("Neg", {"y"}, {"x"}, {}, "two"));
  expect_refused(model(g.bytes()), {"'x'", "input or initialiser", "Neg 'two'"});
  g = good;
  g.nodes.push_back(node("Add", {"y", "nobody"}, {"z"}, {}, "two"));
  expect_refused(model(g.bytes()), {"Add 'two'", "operand 1", "'nobody'"});
  g = good;
  g.outputs.push_back(bare_value("gone"));
  expect_refused(model(g.bytes()), {"output 'gone'"});
  g = good;
  g.inputs.push_back(kInputX);
  expect_refused(model(g.bytes()), {"two inputs", "'x'"});
  g = good;
  g.outputs.push_back(kOutputY);
  expect_refused(model(g.bytes()), {"two outputs", "'y'"});
  g = good;
  g.initializers = {i64_tensor("w", {1}, {1}), i64_tensor("w", {1}, {2})};
  expect_refused(model(g.bytes()), {"two initialisers", "'w'"});
  g = good;
  g.nodes[0] = node("Relu", {"x"}, {"y"}, {int_attribute("a", 1), int_attribute("a", 2)}, "one");
  expect_refused(model(g.bytes()), {"Relu 'one'", "'a'", "twice"});
}

TEST(Importer, RefusesVersionsItCannotRead) {
  GraphText g;
  g.inputs = {kInputX};
  g.outputs = {kOutputY};
  g.nodes = {node("Relu", {"x"}, {"y"})};
  expect_refused(model(g.bytes(), {}, {{"", 18}}, 2), {"IR version 2"});
  expect_refused(model(g.bytes(), {}, {{"com.microsoft", 1}}), {"Relu", "imports no opset"});
  expect_refused(model(g.bytes(), {}, {{"", 0}}), {"opset 0", "ai.onnx"});
  expect_refused(model(g.bytes(), {}, {{"", 6}}), {"opset 6 of ai.onnx", "7 to 28"});
  expect_refused(model(g.bytes(), {}, {{"", 29}}), {"opset 29 of ai.onnx", "7 to 28"});
  expect_refused(model(g.bytes(), {}, {{"", 11}, {"ai.onnx", 12}}), {"imported twice", "11", "12"});
  expect_refused(Bytes(), {"empty"});
  expect_refused(Bytes("version https://git-lfs.github.com/spec/v1\n"), {"git-lfs"});
  expect_refused(import_onnx("/nonexistent/model.onnx"), {"/nonexistent/model.onnx", "No such file"});
  expect_refused(import_onnx("/tmp"), {"not a regular file"});
}

TEST(Importer, SaysWhatOtherFilesAre) {
  const std::string long_text = std::string(5000, 'a') + Bytes(100, '\0');  // what stands behind is not looked at
  const std::vector<std::pair<Bytes, const char*>> files{
      {"# A model\n\nSome words.\n", "a text file, not an ONNX model ("},
      {"\n", "a text file,"},
      {long_text, "a text file,"},
      {std::string(4095, 'a') + "\xc3\xbc", "a text file,"},
      {"Gr\xc3\xbc\xc3\x9f"
       "e\r\n",
       "a text file,"},
      {"\xef\xbb\xbf {\"model_type\": \"llama\"}", "a text file (JSON)"},
      {"[1, 2]", "a text file (JSON)"},
      {"\n<!DOCTYPE html><html>", "a text file (HTML or XML"},
      {Bytes("\xff\xfe"
             "a\0b\0",
             6),
       "a text file (UTF-16)"},
      {Bytes("GGUF\x03\0\0\0", 8), "a GGUF file"},
      {Bytes("PK\x03\x04\0\0", 6), "a ZIP archive"},
      {Bytes("\x10\0\0\0\0\0\0\0{\"a\": 1}", 16), "weights in safetensors"},
      {Bytes("\x1c\0\0\0ORTM", 8), "onnxruntime's own format"}};
  for (const auto& [bytes, says] : files)
    expect_refused(bytes, {says, "not an ONNX model", "give an .onnx file, or the folder that holds it"});
  const Result<ImportedModel> binary = import_bytes(Bytes("\x08\x07\xff\xff", 4));
  expect_refused(binary, {"model"});
  EXPECT_EQ(binary.status().message().find("text"), std::string::npos);
}

TEST(Importer, OperatorsThatDidNotChangeAreReadFromNewerOpsets) {
  GraphText g;
  g.inputs = {kInputX};
  g.outputs = {kOutputY};
  g.nodes = {node("Relu", {"x"}, {"t"}), node("Attention", {"x", "x", "x"}, {"r"}, {}, "attention"),
             node("Cast", {"t"}, {"y"}, {int_attribute("to", 1)}, "cast", "com.microsoft")};
  const auto at = [&](int64_t opset) { return model(g.bytes(), {}, {{"", opset}}); };
  EXPECT_EQ(import_ok(at(24)).graph.nodes[1].opset, 24);
  expect_refused(at(27), {"Attention of opset 27", "changed in 25, 1 node, first 'attention'", "opset 24"});
  // More element types alone are no change, and a Range of integers is what it was.
  g.nodes = {node("Reshape", {"x", "x"}, {"t"}), node("Range", {"t", "x", "x"}, {"y"})};
  EXPECT_EQ(import_ok(at(28)).graph.nodes[0].opset, 28);
  g.nodes = {node("QuantizeLinear", {"x", "x"}, {"t"}), node("QuantizeLinear", {"t", "x"}, {"u"}),
             node("Mod", {"u", "u"}, {"y"}, {}, "mod")};
  EXPECT_EQ(import_ok(at(24)).graph.nodes[0].opset, 24);
  expect_refused(at(28), {"Mod of opset 28 (changed in 28, 1 node, first 'mod')",
                          "QuantizeLinear of opset 28 (changed in 25, 2 nodes, first 'QuantizeLinear:t')"});
  // In a branch, and in a function, whose opset is its own.
  GraphText branch;
  branch.nodes = {node("Mod", {"x", "x"}, {"r"})};
  branch.outputs = {bare_value("r")};
  g.nodes = {node("If", {"x"}, {"y"}, {graph_attribute("then_branch", branch.bytes())}, "if")};
  expect_refused(at(28), {"Mod of opset 28"});
  FunctionText f;
  f.name = "Reshape";
  f.inputs = {"a"};
  f.outputs = {"b"};
  f.nodes = {node("Attention", {"a", "a", "a"}, {"b"}, {}, "attention")};
  f.opsets = {{"", 25}};
  g.nodes = {node("Reshape", {"x"}, {"y"}, {}, "call", "local")};
  expect_refused(model(g.bytes(), {f}, {{"", 18}, {"local", 1}}), {"Attention of opset 25", "first 'call/attention'"});
  f.opsets = {{"", 29}};
  expect_refused(model(g.bytes(), {f}, {{"", 18}, {"local", 1}}), {"opset 29 of ai.onnx in function 'Reshape'"});
}

TEST(Importer, RefusesInputsThatAreNoTensors) {
  Bytes sequence;
  protozero::pbf_writer w(sequence);
  w.add_string(1, "x");
  w.add_message(2, Bytes("\x22\x00", 2));  // type.sequence_type
  GraphText g;
  g.inputs = {sequence};
  expect_refused(model(g.bytes()), {"input 'x'", "sequence"});
  g.inputs = {bare_value("x")};
  expect_refused(model(g.bytes()), {"input 'x'", "element type"});
  g.inputs = {value("x", static_cast<DType>(27), {"1"})};
  expect_refused(model(g.bytes()), {"input 'x'", "27"});
}

TEST(Importer, SubgraphsCaptureThroughLevels) {
  // Both branches produce a value named as the If's output, and capture from two levels up.
  GraphText inner;
  inner.nodes = {node("Add", {"x", "w"}, {"y"}, {}, "n")};
  inner.outputs = {bare_value("y")};
  GraphText middle;
  middle.initializers = {raw_tensor("local", DType::kF32, {1}, raw<float>({3}))};
  middle.nodes = {node("If", {"cond"}, {"y"},
                       {graph_attribute("then_branch", inner.bytes()), graph_attribute("else_branch", inner.bytes())},
                       "n")};
  middle.outputs = {bare_value("y")};
  GraphText g;
  g.inputs = {kInputX, value("cond", DType::kBool, {})};
  g.outputs = {kOutputY};
  g.initializers = {raw_tensor("w", DType::kF32, {1}, raw<float>({2}))};
  GraphText other;
  other.nodes = {node("Neg", {"t"}, {"y"}, {}, "n")};  // t is produced after the If in the file
  other.outputs = {bare_value("y")};
  g.nodes = {node("If", {"cond"}, {"y"},
                  {graph_attribute("then_branch", middle.bytes()), graph_attribute("else_branch", other.bytes())}, "n"),
             node("Relu", {"x"}, {"t"}, {}, "m")};
  const ImportedModel m = import_ok(model(g.bytes()));
  ASSERT_EQ(m.graph.nodes.size(), 2u);
  EXPECT_EQ(m.graph.nodes[0].op, "Relu");
  const Node& branch = m.graph.nodes[1];
  const Graph& then_graph = *branch.attr("then_branch")->graph;
  EXPECT_EQ(then_graph.captures.size(), 3u);  // cond, x, w
  const Graph& deep = *then_graph.nodes[0].attr("else_branch")->graph;
  ASSERT_EQ(deep.captures.size(), 2u);
  EXPECT_EQ(listing(deep), "Add(x, w) -> y");
  const auto outward = [](const Graph& graph, ValueId v) {
    for (const auto& [inside, outside] : graph.captures)
      if (inside == v) return outside;
    return kNoValue;
  };
  const ValueId x = outward(then_graph, outward(deep, deep.nodes[0].in[0]));
  EXPECT_EQ(x, m.graph.inputs[0]);
  EXPECT_EQ(deep.value(deep.nodes[0].in[0]).info.type, DType::kF32);
  const Value& w = deep.value(deep.nodes[0].in[1]);
  EXPECT_EQ(w.constant.view().data, m.graph.value(m.graph.find("w")).constant.view().data);
  const Graph& else_graph = *branch.attr("else_branch")->graph;
  EXPECT_EQ(m.graph.value(else_graph.captures.at(0).second).name, "t");
  expect_consistent(m.graph);
}

TEST(Importer, BranchMayReturnAnOuterValue) {
  GraphText alias;
  alias.outputs = {bare_value("x")};
  GraphText g;
  g.inputs = {kInputX, value("c", DType::kBool, {})};
  g.outputs = {kOutputY};
  g.nodes = {node("If", {"c"}, {"y"},
                  {graph_attribute("then_branch", alias.bytes()), graph_attribute("else_branch", alias.bytes())})};
  const ImportedModel m = import_ok(model(g.bytes()));
  const Graph& branch = *m.graph.nodes[0].attr("then_branch")->graph;
  ASSERT_EQ(branch.captures.size(), 1u);
  EXPECT_EQ(branch.outputs[0], branch.captures[0].first);
  EXPECT_EQ(branch.captures[0].second, m.graph.inputs[0]);
}

TEST(Importer, LargeGraphsAreQuick) {
  GraphText g;
  g.inputs = {kInputX};
  std::string last = "x";
  for (int i = 0; i < 100000; ++i) {
    const std::string next = "v" + std::to_string(i);
    g.nodes.push_back(node("Add", {last, "x"}, {next}, {int_attribute("axis", i)}, "n" + std::to_string(i)));
    last = next;
  }
  g.outputs = {bare_value(last)};
  const Bytes bytes = model(g.bytes());
  const TempFolder folder;
  const auto path = folder.write("model.onnx", bytes);
  const std::clock_t start = std::clock();
  const Result<ImportedModel> m = import_onnx(path);
  const double seconds = static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
  ASSERT_TRUE(m.is_ok()) << m.status().message();
  EXPECT_EQ(m->graph.nodes.size(), 100000u);
  RecordProperty("milliseconds", static_cast<int>(seconds * 1000));
  EXPECT_LT(seconds, 60.0);  // of a processor: 0.2; a quadratic step would take minutes, a sanitizer does not
}

// Models are not part of the repository: SITU_SHARED, or the folder "shared" beside it.
TEST(Importer, ReadsEveryModelAtHand) {
  namespace fs = std::filesystem;
  const char* shared = std::getenv("SITU_SHARED");
  fs::path root = shared ? fs::path(shared) : fs::path(__FILE__).parent_path() / "../../../shared";
  root /= "models";
  if (!fs::is_directory(root)) GTEST_SKIP() << "no models at " << root;
  int models = 0;
  for (const auto& entry : fs::recursive_directory_iterator(root)) {
    if (entry.path().extension() != ".onnx") continue;
    const Result<ImportedModel> m = import_onnx(entry.path());
    ASSERT_TRUE(m.is_ok()) << m.status().message();
    EXPECT_GT(m->graph.nodes.size() + m->graph.inputs.size(), 1u) << entry.path();
    EXPECT_FALSE(m->graph.outputs.empty()) << entry.path();
    EXPECT_LE(m->realigned_bytes, m->weight_bytes) << entry.path();
    int64_t mapped = 0;
    for (const auto& file : m->files) mapped += file->size;
    EXPECT_GT(mapped, 0);
    for (ValueId v : m->graph.inputs) EXPECT_TRUE(m->graph.value(v).info.ranked) << entry.path();
    expect_consistent(m->graph);
    ++models;
  }
  RecordProperty("models", models);
}

}  // namespace
}  // namespace situ::onnx::test
