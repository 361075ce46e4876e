// Attention in exports of encoder-decoders: causal over the sequence, bidirectional in the encoder and over its rows,
// with T5's bias as a table, whatever masks of ones stand beside it.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include "passes/pack/pack_store.h"
#include "runtime/compile.h"

namespace situ {
namespace {

namespace fs = std::filesystem;

struct Attentions {
  int causal = 0, both_ways = 0, by_distance = 0, masked = 0, unrecognised = 0, logarithms = 0;
};

Attentions count(const Graph& graph) {
  Attentions found;
  for (const Node& n : graph.nodes) {
    found.unrecognised += n.is("Softmax");
    found.logarithms += n.is("Log");
    if (!n.is("Attention", "situ")) continue;
    ++(n.attr_int("causal", 0) != 0 ? found.causal : found.both_ways);
    found.by_distance += n.has_input(6);
    found.masked += n.has_input(3);
  }
  return found;
}

class EncoderAttention : public testing::TestWithParam<const char*> {};

TEST_P(EncoderAttention, IsRecognised) {
  const char* shared = std::getenv("SITU_SHARED");
  const fs::path folder = fs::path(shared ? shared : SITU_SHARED_DEFAULT) / "models" / GetParam();
  if (!fs::exists(folder)) GTEST_SKIP() << folder << " is not there; set SITU_SHARED";
  Result<ImportedModel> encoder = import_onnx(folder / "encoder_model.onnx"),
                        decoder = import_onnx(folder / "decoder_model_merged.onnx");
  ASSERT_TRUE(encoder.is_ok() && decoder.is_ok());
  ModelFiles files;
  files.encoder = std::move(*encoder);
  files.decoder = std::move(*decoder);
  files.encoder_name = "encoder_model.onnx";
  files.decoder_name = "decoder_model_merged.onnx";
  EngineOptions options;
  options.context_length = options.source_length = 128;
  ThreadPool pool(1);
  PackStore packs(pool);
  const Result<CompiledModule> module = compile_module(files, options, &packs);
  ASSERT_TRUE(module.is_ok()) << module.status().message();
  const bool t5 = std::string(GetParam()).find("t5") != std::string::npos;
  const Attentions decode = count(module->prompt.graph);
  EXPECT_EQ(decode.unrecognised + decode.masked + decode.logarithms, 0);
  EXPECT_EQ(decode.causal, 2);
  EXPECT_EQ(decode.both_ways, 2);
  EXPECT_EQ(decode.by_distance, t5 ? 2 : 0);
  EXPECT_EQ(module->prompt.order.mixing, "");
  EXPECT_EQ(module->prompt.order.one_sequence, "");
  const Result<Compiled> encode = compile_encoder(files, options, &packs, module->prompt, {});
  ASSERT_TRUE(encode.is_ok()) << encode.status().message();
  const Attentions both_ways = count(encode->graph);
  EXPECT_EQ(both_ways.unrecognised + both_ways.masked + both_ways.logarithms + both_ways.causal, 0);
  EXPECT_EQ(both_ways.both_ways, 2);
  EXPECT_EQ(both_ways.by_distance, t5 ? 2 : 0);
}

INSTANTIATE_TEST_SUITE_P(Models, EncoderAttention,
                         testing::Values("tiny/t5", "tiny/bart", "tiny/marian", "styles/ortO3-t5"));

}  // namespace
}  // namespace situ
