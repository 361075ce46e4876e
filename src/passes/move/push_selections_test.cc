// Parts of a product are products of parts of its matrix.
#include <gtest/gtest.h>

#include <numeric>

#include "kernels/integer_layout.h"
#include "passes/compile/test_graph.h"
#include "passes/move/passes.h"

namespace situ {
namespace {

// Matrices of any size: what is too large to be folded is split all the same.
TEST(PushSelections, OfBytes) {
  constexpr int64_t kDepth = 64, kColumns = 128;
  test::TestGraph g;
  Tensor w = Tensor::allocate(DType::kI8, {kDepth, kColumns}), scales = Tensor::allocate(DType::kF32, {kColumns});
  for (int64_t i = 0; i < w.count(); ++i) w.view().as<int8_t>()[i] = static_cast<int8_t>(i * 7 % 251);
  std::iota(scales.view().as<float>(), scales.view().as<float>() + kColumns, 1.0f);
  const ValueId rows =
      g.input("rows", {Dim(1), test::S(), Dim(IntegerLayout{kDepth, kColumns}.row_bytes())}, DType::kU8);
  const ValueId y = g.op("IntegerMatMul", {rows, g.constant(w), g.constant(scales)},
                         {{"K", kDepth}, {"N", kColumns}, {"signed_weights", 1}});
  g.graph_.nodes.back().domain = "situ";
  g.graph_.nodes.back().opset = 1;
  const std::vector<std::pair<int64_t, int64_t>> parts{{0, 48}, {48, kColumns}};
  for (const auto& [begin, end] : parts)
    g.graph_.outputs.push_back(g.op("Slice", {y, g.integers({begin}), g.integers({end}), g.integers({2})}));
  test::TestContext at(g.graph_, 16);
  g.infer(at.context);
  const Status pushed = push_selections(at.context);
  ASSERT_TRUE(pushed.is_ok()) << pushed.message();
  std::vector<const Node*> products;
  for (const Node& n : g.graph_.nodes)
    if (n.is("IntegerMatMul", "situ")) products.push_back(&n);
  ASSERT_EQ(products.size(), parts.size());
  for (const Node* n : products) {
    const auto part = n->attr_int("N", 0) == 48 ? parts[0] : parts[1];
    const Tensor &own = g.graph_.values[n->in[1]].constant, &by = g.graph_.values[n->in[2]].constant;
    ASSERT_EQ(own.dims(), (std::vector<int64_t>{kDepth, part.second - part.first}));
    ASSERT_EQ(by.dims(), (std::vector<int64_t>{part.second - part.first}));
    for (int64_t i = 0; i < own.count(); ++i)
      ASSERT_EQ(own.view().as<int8_t>()[i],
                w.view().as<int8_t>()[i / own.dims()[1] * kColumns + part.first + i % own.dims()[1]]);
    EXPECT_EQ(by.view().as<float>()[0], static_cast<float>(part.first + 1));
  }
}

}  // namespace
}  // namespace situ
