// Rows of keys and values are what their nodes say, whatever bytes they are.
#include "ops/state_encoding.h"

#include <gtest/gtest.h>

namespace situ {
namespace {

const Dim kTokens = Dim::symbol(kSymS);

ValueInfo rows_of(int64_t stored, DType type) { return {type, true, {Dim(1), Dim(2), kTokens, Dim(stored)}, {}}; }

// The shape of what attends with rows of 20 numbers to such keys and values, or the error.
std::string attended(const ValueInfo& k, const ValueInfo& v, const StateEncoding& keys, const StateEncoding& values) {
  Node n;
  n.op = "Attention";
  n.domain = "situ";
  n.opset = 1;
  n.in = {0, 1, 2};
  n.out = {3};
  n.def = find_op(n.domain, n.op, n.opset);
  set_state_encoding(&n, 1, keys);
  set_state_encoding(&n, 2, values);
  const ValueInfo q = rows_of(20, DType::kF32);
  std::vector<ValueInfo> out(1);
  InferContext c{n, {&q, &k, &v}, {nullptr, nullptr, nullptr}, out};
  const Status inferred = n.def->infer(c);
  return inferred.is_ok() ? out[0].shape.back().str() : inferred.message();
}

TEST(StateEncodingTest, OfAttention) {
  const StateEncoding by_row{20, 8, ScaleOf::kRow}, bytes{20, 8, ScaleOf::kTensor}, digits{20, 4, ScaleOf::kChannel},
      odd{15, 4, ScaleOf::kTensor}, longer{24, 8, ScaleOf::kHead};
  const ValueInfo floats = rows_of(20, DType::kF16), of_20 = rows_of(20, DType::kI8), of_24 = rows_of(24, DType::kI8);
  EXPECT_EQ(attended(floats, floats, {}, {}), "20");
  EXPECT_EQ(attended(of_24, of_24, by_row, by_row), "20");
  EXPECT_EQ(attended(of_20, of_24, bytes, longer), "24");  // as wide as rows of 20 with their scale
  EXPECT_EQ(attended(of_20, of_24, bytes, by_row), "20");
  EXPECT_EQ(attended(rows_of(10, DType::kU8), rows_of(8, DType::kU8), digits, odd), "15");
  EXPECT_NE(attended(of_20, floats, {}, {}).find("k is int8, and its rows are said to be floats"), std::string::npos);
  EXPECT_NE(attended(of_24, of_24, {}, by_row).find("k is int8"), std::string::npos);
  EXPECT_NE(
      attended(floats, floats, by_row, {}).find("k is float16, and its rows are said to be 8 bits, scale per row"),
      std::string::npos);
  EXPECT_NE(attended(of_20, of_24, by_row, by_row).find("size of rows of k, 8 bits, scale per row: 20 and 24 differ"),
            std::string::npos);
}

TEST(StateEncodingTest, IsWhatWasWritten) {
  Node n;
  for (const StateEncoding& e :
       {StateEncoding{}, StateEncoding{17, 4, ScaleOf::kChannel}, StateEncoding{8, 8, ScaleOf::kRow}}) {
    set_state_encoding(&n, 1, e);
    EXPECT_EQ(state_encoding(n, 1), e);
    EXPECT_TRUE(state_encoding(n, 2).plain());
  }
}

}  // namespace
}  // namespace situ
