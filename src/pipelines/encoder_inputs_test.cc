#include "pipelines/encoder_inputs.h"

#include <gtest/gtest.h>

#include "base/test_npy.h"
#include "text/test_models.h"

namespace situ {
namespace {

using test_npy::header;
using test_npy::kFloats;
using test_npy::npy;

const std::vector<GraphInput> kInputs{{"encoder", "input_features", DType::kF32, {1, 2, -1}},
                                      {"encoder", "mask", DType::kI64, {-1}},
                                      {"decoder", "mask", DType::kI64, {-1}},
                                      {"decoder", "past.0.key", DType::kF32, {1, 3}}};

GivenTensor named(const std::string& name, DType type, const std::vector<int64_t>& dims) {
  return {name, Tensor::allocate(type, dims), "f.npy"};
}

TEST(EncoderInputs, FindTheirInputs) {
  const GivenTensor tensors[] = {named("input_features", DType::kF32, {1, 2, 9}),
                                 named("decoder.mask", DType::kI64, {4}), named("past.0.key", DType::kF32, {1, 3})};
  EXPECT_EQ(match_encoder_inputs(tensors, kInputs).value(), (std::vector<size_t>{0, 2, 3}));
  const std::pair<GivenTensor, const char*> wrong[] = {
      {named("nothing", DType::kF32, {1}), "there is no such input; there are encoder.input_features, encoder.mask,"},
      {named("mask", DType::kI64, {1}), "say encoder.mask or decoder.mask"},
      {named("input_features", DType::kF16, {1, 2, 9}), "should be float32[1, 2, ?], is float16[1, 2, 9]"},
      {named("input_features", DType::kF32, {1, 3, 9}), "should be float32[1, 2, ?], is float32[1, 3, 9]"},
      {named("input_features", DType::kF32, {2, 9}), "is float32[2, 9]"},
      {named("encoder.mask", DType::kI64, {0}), "should be int64[?], is int64[0]"}};
  for (const auto& [tensor, words] : wrong) {
    const Status refused = match_encoder_inputs({&tensor, 1}, kInputs).status();
    EXPECT_NE(refused.message().find("encoder input '" + tensor.name + "' (f.npy): "), std::string::npos);
    EXPECT_NE(refused.message().find(words), std::string::npos) << refused.message();
  }
  const GivenTensor twice[] = {named("encoder.input_features", DType::kF32, {1, 2, 9}),
                               named("input_features", DType::kF32, {1, 2, 9})};
  EXPECT_NE(match_encoder_inputs(twice, kInputs).status().message().find("is given twice"), std::string::npos);
  EXPECT_NE(match_encoder_inputs({twice, 1}, {}).status().message().find("none can be given"), std::string::npos);
}

TEST(EncoderInputs, AreReadFromTheCommandLine) {
  testing::TempFolder folder;
  folder.write("a=b.npy", npy(header("'<f4'", "(2, 3)"), kFloats));
  const std::string file = (folder.path() / "a=b.npy").string();
  const std::vector<std::string> good{"encoder.x.y=" + file, "z=" + file};
  const std::vector<GivenTensor> tensors = read_encoder_inputs(good).value();
  EXPECT_EQ(tensors[0].name, "encoder.x.y");
  EXPECT_EQ(tensors[0].source, file);
  EXPECT_EQ(tensors[1].tensor.count(), 6);
  const std::pair<std::vector<std::string>, const char*> wrong[] = {
      {{"x"}, "'x' should be NAME=FILE.npy"},
      {{"=" + file}, "should be NAME=FILE.npy"},
      {{"x="}, "should be NAME=FILE.npy"},
      {{"x=" + file, "x=" + file}, "gives 'x' twice"},
      {{"x=/nothing/there.npy"}, "--encoder-input 'x': /nothing/there.npy: "}};
  for (const auto& [texts, words] : wrong)
    EXPECT_NE(read_encoder_inputs(texts).status().message().find(words), std::string::npos) << words;
}

}  // namespace
}  // namespace situ
