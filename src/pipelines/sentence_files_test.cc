#include "pipelines/sentence_files.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>

#include "pipelines/embedder.h"
#include "pipelines/model_folder.h"
#include "pipelines/safetensors.h"
#include "text/test_models.h"

namespace situ {
namespace {

TEST(StripText, LeavesOutWhatPythonCallsSpace) {
  EXPECT_EQ(strip_text(" \t\r\n\v\f\x1c\x1fword \u00A0\u3000\u2028\u200A\u0085"), "word");
  EXPECT_EQ(strip_text("\u200Bword\u200B"), "\u200Bword\u200B");  // no space to Python
  EXPECT_EQ(strip_text("\u00E5 b"), "\u00E5 b");
  EXPECT_EQ(strip_text(" \u2003 "), "");
  EXPECT_EQ(strip_text(""), "");
}

TEST(Pooling, LeavesOutThePrompt) {
  const std::vector<float> rows{1, 8, 2, 4, 6, 2};  // [3, 2]
  const auto pooled = [&](PoolingMode mode, bool include) {
    Pooling p;
    p.modes = {mode};
    p.include_prompt = include;
    return p.pool(rows, 2, 1);
  };
  using Row = std::vector<float>;
  EXPECT_EQ(pooled(PoolingMode::kCls, false), (Row{1, 8}));
  EXPECT_EQ(pooled(PoolingMode::kMax, true), (Row{6, 8}));
  EXPECT_EQ(pooled(PoolingMode::kMax, false), (Row{6, 4}));
  EXPECT_EQ(pooled(PoolingMode::kMean, true), (Row{3, 14.0f / 3}));
  EXPECT_EQ(pooled(PoolingMode::kMean, false), (Row{4, 3}));
  EXPECT_EQ(pooled(PoolingMode::kMeanSqrtLength, false)[0], static_cast<float>(8 / std::sqrt(2.0)));
  EXPECT_EQ(pooled(PoolingMode::kWeightedMean, false), (Row{22.0f / 5, 14.0f / 5}));
  EXPECT_EQ(pooled(PoolingMode::kLastToken, false), (Row{6, 2}));
}

TEST(Activations, EqualTorch) {
  std::vector<float> row{-1, 0, 2};
  apply_activation(Activation::kSoftmax, row);
  EXPECT_NEAR(row[2], 0.84379, 1e-5);
  row = {-1, 0, 2};
  apply_activation(Activation::kGelu, row);
  EXPECT_NEAR(row[0], -0.158655, 1e-6);
  EXPECT_EQ(row[1], 0);
}

TEST(TextGraph, TellsOutputsByNameAndShape) {
  const auto graph = [](std::initializer_list<std::pair<const char*, Shape>> outputs) {
    Graph g;
    for (const auto& [name, shape] : outputs) {
      const ValueId v = g.add_value(name, DType::kF32);
      g.values[v].info.ranked = true;
      g.values[v].info.shape = shape;
      g.outputs.push_back(v);
    }
    return text_graph(g);
  };
  const Shape rows{Dim(1), Dim::symbol(kSymS), Dim(8)}, row{Dim(1), Dim(8)};
  EXPECT_EQ(graph({{"last_hidden_state", rows}, {"pooler_output", row}}).output, "last_hidden_state");
  EXPECT_EQ(graph({{"pooler_output", row}}).kind, EncoderOutput::kSentence);
  const TextGraph both = graph({{"sentence_embedding", row}, {"token_embeddings", rows}});
  EXPECT_EQ(both.output, "token_embeddings");
  EXPECT_EQ(both.sentence, "sentence_embedding");
  EXPECT_EQ(graph({{"logits", row}}).kind, EncoderOutput::kLabels);
  EXPECT_TRUE(graph({{"logits", rows}}).has_logits);
  EXPECT_EQ(graph({{"logits", rows}}).kind, EncoderOutput::kNone);
  EXPECT_EQ(graph({{"logits", rows}, {"hidden_states", rows}}).kind, EncoderOutput::kTokens);
  EXPECT_EQ(graph({{"last_hidden_state", rows}, {"encoder_last_hidden_state", rows}}).output,
            "encoder_last_hidden_state");
  EXPECT_EQ(graph({{"last_hidden_state", rows}, {"present.0.key", rows}}).output, "last_hidden_state");
}

// Positions may be more than words.
TEST(TextGraph, WordsAreWhatIdsIndex) {
  Graph g;
  std::map<std::string, ValueId> values;
  for (const char* name : {"positions", "input_ids"}) {
    values[name] = g.add_value(name, DType::kI64);
    g.inputs.push_back(values[name]);
  }
  const auto look_up = [&](const std::string& op, const std::vector<ValueId>& in, const std::string& domain = "") {
    Node n;
    n.op = op;
    n.domain = domain;
    n.in = in;
    n.out = {g.add_value("rows" + std::to_string(g.nodes.size()))};
    g.add_node(n);
    g.rebuild_links();
    return n.out[0];
  };
  const ValueId places = g.add_constant("places", Tensor::allocate(DType::kF32, {512, 2})),
                words = g.add_constant("words", Tensor::allocate(DType::kF32, {300, 2}));
  look_up("Gather", {places, values["positions"]});
  EXPECT_EQ(rows_of_tokens(g), 0);
  EXPECT_EQ(text_graph(g).table_rows, 512);
  look_up("Gather", {words, look_up("Cast", {values["input_ids"]})});
  EXPECT_EQ(text_graph(g).table_rows, 300);
  g.nodes.clear();
  look_up("EmbedLayerNormalization", {values["input_ids"], kNoValue, words, places}, "com.microsoft");
  EXPECT_EQ(text_graph(g).table_rows, 300);
}

TEST(Safetensors, ReadsHalves) {
  const auto file = std::filesystem::temp_directory_path() / "situ_sentence_files_test.safetensors";
  const std::string header = R"({"w":{"dtype":"F16","shape":[2],"data_offsets":[0,4]}})";
  std::string bytes(8, '\0');
  bytes[0] = static_cast<char>(header.size());
  std::ofstream(file, std::ios::binary) << bytes << header << std::string("\x00\x3c\x00\xc0", 4);
  const Result<std::vector<float>> w = read_safetensor(file, "w", {2});
  ASSERT_TRUE(w.is_ok()) << w.status().message();
  EXPECT_EQ(*w, (std::vector<float>{1, -2}));
  EXPECT_FALSE(read_safetensor(file, "w", {1, 2}).is_ok());
  EXPECT_FALSE(read_safetensor(file, "v", {2}).is_ok());
  std::filesystem::remove(file);
}

// Early versions of sentence-transformers save the tokenizer and the configuration in a folder of the first module.
TEST(ModelFolder, TheFirstModuleMayHaveAFolder) {
  for (const std::string graphs : {"0_Transformer/onnx/", "0_Transformer/", "onnx/", ""})
    for (const std::string named : {"0_Transformer", "", "..", "1_Other"}) {
      SCOPED_TRACE(graphs + " " + named);
      testing::TempFolder folder;
      folder.write("modules.json",
                   R"([{"path": ")" + named + R"(", "type": "sentence_transformers.models.Transformer"}])");
      folder.write("0_Transformer/config.json", R"({"max_position_embeddings": 40})");
      folder.write(graphs + "model.onnx", "");
      const Result<ModelFolder> opened = open_model_folder(folder.path());
      const bool inside = named == "0_Transformer";
      ASSERT_EQ(opened.is_ok(), inside || graphs.find("0_") == std::string::npos);
      if (!opened.is_ok()) continue;
      EXPECT_EQ(opened->model_file, folder.path() / (graphs + "model.onnx"));
      EXPECT_EQ(opened->folder, inside ? folder.path() / "0_Transformer" : folder.path());
      EXPECT_EQ(opened->modules, folder.path());
      EXPECT_EQ(opened->context_length, inside ? 40 : 0);
      // The tokenizer of an export, where the module's folder has none that is read.
      folder.write("tokenizer.json", "{}");
      EXPECT_EQ(transformer_folder(folder.path()), folder.path());
      folder.write("0_Transformer/tokenizer.json", "{}");
      EXPECT_EQ(transformer_folder(folder.path()), opened->folder);
    }
}

}  // namespace
}  // namespace situ
