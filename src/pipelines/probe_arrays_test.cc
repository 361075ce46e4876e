// Arrays that an encoder is tried with where no file is given: what names of extents in the graph stand for.
#include "pipelines/probe_arrays.h"

#include <gtest/gtest.h>

#include "graph/symbols.h"

namespace situ {
namespace {

// As Speech2Text's encoder takes them: frames by bins, and a number for each frame.
TEST(ProbeArrays, ANameStandsForOneNumber) {
  const ScopedSymbols symbols(StepLimits{64});
  Graph g;
  const Dim frames = Dim::symbol(kSymS);
  for (const auto& [name, type, shape] : {std::tuple{"input_features", DType::kF32, Shape{Dim(1), frames, Dim(20)}},
                                          {"attention_mask", DType::kI64, Shape{Dim(1), frames}}}) {
    const ValueId v = g.add_value(name, type);
    g.values[v].info = {type, true, shape, std::nullopt};
    g.inputs.push_back(v);
  }
  const Result<std::vector<GivenTensor>> arrays = probe_arrays(ModelFolder(), g);
  ASSERT_TRUE(arrays.is_ok()) << arrays.status().message();
  const std::vector<int64_t> features = (*arrays)[0].tensor.dims(), mask = (*arrays)[1].tensor.dims();
  EXPECT_EQ(features[2], 20);
  EXPECT_EQ(mask, (std::vector<int64_t>{1, features[1]}));
}

}  // namespace
}  // namespace situ
