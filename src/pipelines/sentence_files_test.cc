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

TEST(Pooling, LeavesOutThePrompt) {
  const std::vector<float> rows{1, 8, 2, 4, 6, 2};  // [3, 2]
  const auto pooled = [&](PoolingMode mode, bool include) {
    Pooling p;
    p.modes = {mode};
    p.include_prompt = include;
    return p.pool(rows, 2, 1);
  };
  using Row = std::vector<float>;
  EXPECT_EQ(pooled(PoolingMode::kCls, true), (Row{1, 8}));
  EXPECT_EQ(pooled(PoolingMode::kCls, false), (Row{2, 4}));
  EXPECT_EQ(pooled(PoolingMode::kMax, true), (Row{6, 8}));
  EXPECT_EQ(pooled(PoolingMode::kMax, false), (Row{6, 4}));
  EXPECT_EQ(pooled(PoolingMode::kMean, true), (Row{3, 14.0f / 3}));
  EXPECT_EQ(pooled(PoolingMode::kMean, false), (Row{4, 3}));
  EXPECT_EQ(pooled(PoolingMode::kMeanSqrtLength, false)[0], static_cast<float>(8 / std::sqrt(2.0)));
  EXPECT_EQ(pooled(PoolingMode::kWeightedMean, false), (Row{22.0f / 5, 14.0f / 5}));
  EXPECT_EQ(pooled(PoolingMode::kLastToken, false), (Row{6, 2}));
}

// Numbers of torch 2 for -1.5, 0, 0.25 and 7.
TEST(Activations, EqualTorch) {
  const std::map<std::string, std::vector<float>> torch{
      {"Tanh", {-0.90514827f, 0, 0.24491866f, 0.99999833f}},
      {"Sigmoid", {0.18242553f, 0.5f, 0.56217653f, 0.999089f}},
      {"ReLU", {0, 0, 0.25f, 7}},
      {"GELU", {-0.10021086f, 0, 0.14967656f, 7}},
      {"Softmax", {0.00020300425f, 0.00090980198f, 0.0011682088f, 0.99771899f}},
      {"ReLU6", {0, 0, 0.25f, 6}},
      {"SiLU", {-0.27363828f, 0, 0.14054413f, 6.9936228f}},
      {"Mish", {-0.29809976f, 0, 0.1695724f, 6.9999886f}},
      {"ELU", {-0.77686983f, 0, 0.25f, 7}},
      {"CELU", {-0.77686983f, 0, 0.25f, 7}},
      {"SELU", {-1.3658143f, 0, 0.26267526f, 7.354907f}},
      {"Softplus", {0.20141329f, 0.69314718f, 0.82593942f, 7.0009117f}},
      {"Softsign", {-0.60000002f, 0, 0.2f, 0.875f}},
      {"Softmin", {0.7157644f, 0.15970863f, 0.12438121f, 0.00014563542f}},
      {"LogSoftmax", {-8.502284f, -7.0022836f, -6.7522836f, -0.0022835864f}},
      {"LogSigmoid", {-1.7014133f, -0.69314718f, -0.57593942f, -0.00091146649f}},
      {"Hardsigmoid", {0.25f, 0.5f, 0.54166669f, 1}},
      {"Hardswish", {-0.375f, 0, 0.13541667f, 7}},
      {"Hardtanh", {-1, 0, 0.25f, 1}},
      {"Hardshrink", {-1.5f, 0, 0, 7}},
      {"Softshrink", {-1, 0, 0, 6.5f}},
      {"Tanhshrink", {-0.59485173f, 0, 0.0050813407f, 6.0000019f}},
      {"LeakyReLU", {-0.015f, 0, 0.25f, 7}},
  };
  for (const auto& [name, want] : torch) {
    SCOPED_TRACE(name);
    const std::optional<Activation> found = activation_by_path("torch.nn.modules.activation." + name);
    ASSERT_TRUE(found);
    std::vector<float> row{-1.5f, 0, 0.25f, 7};
    apply_activation(*found, row);
    for (size_t i = 0; i < row.size(); ++i) EXPECT_NEAR(row[i], want[i], 1e-6 + 1e-6 * std::abs(want[i]));
  }
  EXPECT_EQ(activation_by_path("torch.nn.modules.linear.Identity"), Activation::kIdentity);
  EXPECT_FALSE(activation_by_path("torch.nn.PReLU"));  // has weights
  EXPECT_FALSE(activation_by_path("own.Tanh"));
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
