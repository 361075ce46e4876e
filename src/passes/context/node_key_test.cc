#include "passes/context/node_key.h"

#include <gtest/gtest.h>

namespace situ {
namespace {

Value value_of(float x, const std::vector<int64_t>& dims = {}) {
  Tensor t = Tensor::allocate(DType::kF32, dims);
  t.view().as<float>()[0] = x;
  Value v;
  v.constant = t;
  v.info = {DType::kF32, true, Shape(dims.begin(), dims.end()), std::nullopt};
  return v;
}

std::string key(const Node& n) {
  return node_key(n, [](ValueId v) { return std::to_string(v); });
}

TEST(NodeKey, NumbersToTheLastBit) {
  EXPECT_EQ(numbers_key(value_of(1e-7f)), numbers_key(value_of(1e-7f)));
  EXPECT_NE(numbers_key(value_of(1e-7f)), numbers_key(value_of(4e-7f)));
  EXPECT_NE(numbers_key(value_of(-0.0f)), numbers_key(value_of(0.0f)));
  EXPECT_NE(numbers_key(value_of(1)), numbers_key(value_of(1, {1})));
  EXPECT_EQ(numbers_key(Value{}), "");
}

TEST(NodeKey, AttributesAndOperands) {
  Node a;
  a.op = "X";
  a.in = {1, 2};
  a.set_float("alpha", 1e-7f);
  a.set_ints("perm", {0, 1});
  Node b = a;
  EXPECT_EQ(key(a), key(b));
  b.set_float("alpha", 4e-7f);
  EXPECT_NE(key(a), key(b));
  b = a;
  b.set_ints("perm", {1, 0});
  EXPECT_NE(key(a), key(b));
  b = a;
  b.opset = 11;
  EXPECT_NE(key(a), key(b));
  b = a;
  b.in = {2, 1};
  EXPECT_NE(key(a), key(b));
  b = a;
  b.in = {1, kNoValue, 2};
  EXPECT_NE(key(a), key(b));
}

}  // namespace
}  // namespace situ
