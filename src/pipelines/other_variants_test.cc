// What is said where a graph is there with weights that are not read, and with others.
#include "pipelines/other_variants.h"

#include <gtest/gtest.h>

#include "pipelines/graph_files.h"
#include "text/test_models.h"

namespace situ {
namespace {

class OtherVariants : public ::testing::Test {
 protected:
  // A graph of this file; `op`: its only node's operator.
  ImportedModel graph(const std::string& file, const char* op = "Nonsense") {
    ImportedModel m;
    Node n;
    n.op = op;
    n.opset = 17;
    m.graph.nodes.push_back(n);
    const auto bytes = std::make_shared<MappedBytes>();
    bytes->path = (folder_.path() / file).string();
    m.files.push_back(bytes);
    return m;
  }
  std::string advice(const ModelFiles& files, const std::vector<std::string>& wanted, bool by_file = false) {
    ModelFolder folder;
    folder.graphs = folder_.path();
    return other_variants(folder, files, wanted, by_file);
  }
  void write(std::initializer_list<const char*> names) {
    for (const char* name : names) folder_.write(name, "");
  }
  testing::TempFolder folder_;
};

TEST_F(OtherVariants, AreNamedAsTheyAreAskedFor) {
  write({"model_bnb4.onnx", "model_fp16.onnx", "model_q4f16.onnx", "other_q4.onnx"});
  ModelFiles files;
  files.decoder = graph("model_bnb4.onnx");
  EXPECT_EQ(advice(files, {"bnb4"}), "there are other variants: take --variant q4f16 (or fp16)");
  EXPECT_EQ(advice(files, {"model=bnb4"}), "there are other variants: take --variant model=q4f16 (or fp16)");
  EXPECT_EQ(advice(files, {}, true), "there are other variants: take model_q4f16.onnx (or fp16)");
  files.decoder = graph("model_bnb4.onnx", "MatMul");
  EXPECT_EQ(advice(files, {"bnb4"}), "");
  files.decoder = graph("other_bnb4.onnx");
  EXPECT_EQ(advice(files, {"bnb4"}), "there are other variants: take --variant q4");
}

TEST_F(OtherVariants, AreChosenByTheSuffixesOfOtherExporters) {
  for (const std::string variant : {"O2", "optimized_quantized", "qint8_avx512_vnni", "quint8_avx2", "q4f16"}) {
    write({"model.onnx", "model_optimized.onnx", "model_int8.onnx", ("model_" + variant + ".onnx").c_str()});
    const Result<VariantChoice> choice = VariantChoice::parse({variant});
    ASSERT_TRUE(choice.is_ok()) << choice.status().message();
    const Result<std::filesystem::path> file = GraphFiles(folder_.path(), *choice).choose("model");
    ASSERT_TRUE(file.is_ok()) << file.status().message();
    EXPECT_EQ(file->filename(), "model_" + variant + ".onnx");
  }
}

TEST_F(OtherVariants, AreThereForAllGraphs) {
  write({"encoder_model_bnb4.onnx", "encoder_model.onnx", "encoder_model_int8.onnx", "decoder_model_merged_bnb4.onnx",
         "decoder_model_merged.onnx", "decoder_model_merged_q4.onnx"});
  ModelFiles files;
  files.decoder = graph("decoder_model_merged_bnb4.onnx", "If");
  const auto branch = std::make_shared<Graph>(graph("").graph);
  files.decoder.graph.nodes[0].attrs["then_branch"].graph = branch;
  files.encoder = graph("encoder_model_bnb4.onnx");
  EXPECT_EQ(advice(files, {"bnb4"}), "there are other variants: take --variant fp32");
  EXPECT_EQ(advice(files, {"bnb4", "encoder_model=bnb4"}),
            "there are other variants: take --variant encoder_model=fp32 --variant fp32");
  files.encoder = graph("encoder_model_int8.onnx", "MatMul");
  EXPECT_EQ(advice(files, {"encoder_model=int8", "decoder_model_merged=bnb4"}),
            "there are other variants: take --variant decoder_model_merged=q4 (or fp32)");
  EXPECT_EQ(advice(files, {}, true), "there are other variants: take decoder_model_merged_q4.onnx (or fp32)");
}

}  // namespace
}  // namespace situ
