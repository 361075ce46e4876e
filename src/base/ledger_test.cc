// move_bytes over random layouts, and the Tensor class.
#include "base/ledger.h"

#include <gtest/gtest.h>

#include <numeric>
#include <random>

#include "base/tensor.h"

namespace situ {
namespace {

TEST(MoveBytes, any_strides_any_rank) {
  std::mt19937 random(7);
  const auto pick = [&](int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(random);
  };
  for (int round = 0; round < 400; ++round) {
    const DType types[] = {DType::kU8, DType::kF16, DType::kF32, DType::kF64, DType::kC128};
    const DType type = types[pick(0, 4)];
    const int rank = static_cast<int>(pick(0, 5));
    View dst, src;
    dst.type = src.type = type;
    dst.rank = src.rank = rank;
    int64_t dst_span = 1, src_span = 1;
    for (int i = rank - 1; i >= 0; --i) {
      dst.dims[i] = src.dims[i] = pick(0, 9) == 0 ? 0 : pick(1, 4);
      dst.strides[i] = dst_span;
      src.strides[i] = pick(0, 4) == 0 ? 0 : src_span;  // 0: an expanded source
      dst_span = (dst_span + (pick(0, 2) == 0 ? 1 : 0)) * std::max<int64_t>(1, dst.dims[i]) + pick(0, 1);
      src_span *= std::max<int64_t>(1, src.dims[i]);
    }
    const int64_t size = dtype_bytes(type);
    std::vector<unsigned char> from(static_cast<size_t>(src_span * size)),
        to(static_cast<size_t>((dst_span + 8) * size * 2), 0xab);
    for (auto& b : from) b = static_cast<unsigned char>(pick(0, 99));
    dst.data = reinterpret_cast<std::byte*>(to.data());
    src.data = reinterpret_cast<std::byte*>(from.data());
    std::vector<unsigned char> want = to;
    for (int64_t i = 0; i < dst.count(); ++i) {
      int64_t rest = i, d = 0, s = 0;
      for (int a = rank - 1; a >= 0; --a) {
        d += rest % dst.dims[a] * dst.strides[a];
        s += rest % dst.dims[a] * src.strides[a];
        rest /= dst.dims[a];
      }
      for (int64_t b = 0; b < size; ++b)
        want[static_cast<size_t>(d * size + b)] = from[static_cast<size_t>(s * size + b)];
    }
    Ledger ledger;
    move_bytes(dst, src, ledger);
    ASSERT_EQ(to, want) << "round " << round;
    ASSERT_EQ(ledger.copied, dst.count() * size);
  }
}

TEST(MoveBytes, reads_backwards_from_a_negative_stride) {
  const int32_t from[] = {1, 2, 3, 4};
  int32_t to[2] = {};
  View src, dst;
  src.type = dst.type = DType::kI32;
  src.rank = dst.rank = 1;
  src.dims[0] = dst.dims[0] = 2;
  src.strides[0] = -2;
  dst.strides[0] = 1;
  src.data = reinterpret_cast<std::byte*>(const_cast<int32_t*>(from + 3));
  dst.data = reinterpret_cast<std::byte*>(to);
  Ledger ledger;
  move_bytes(dst, src, ledger);
  EXPECT_EQ(to[0], 4);
  EXPECT_EQ(to[1], 2);
}

TEST(MoveBytes, packed_types_count_whole_bytes) {
  Tensor a = Tensor::allocate(DType::kU4, {5}), b = Tensor::allocate(DType::kU4, {5});
  a.view().as<uint8_t>()[0] = 0x21;
  a.view().as<uint8_t>()[2] = 0x05;
  Ledger ledger;
  move_bytes(b.view(), a.view(), ledger);
  EXPECT_EQ(ledger.copied, 3);
  EXPECT_EQ(b.to_i64(), (std::vector<int64_t>{1, 2, 0, 0, 5}));
}

TEST(TensorTest, allocates_zeros_and_shares_on_reshape) {
  const Tensor t = Tensor::allocate(DType::kF32, {3, 0, 2});
  EXPECT_EQ(t.count(), 0);
  EXPECT_NE(t.view().data, nullptr);
  const Tensor v = Tensor::vector_i64({4, -5, 6, 7}), r = v.reshaped({2, 2});
  EXPECT_EQ(r.view().data, v.view().data);
  EXPECT_EQ(r.view().strides[0], 2);
  EXPECT_EQ(r.to_i64()[1], -5);
  EXPECT_EQ(Tensor::scalar_i64(9).to_f64()[0], 9);
  EXPECT_FALSE(Tensor().present());
}

TEST(TensorTest, reads_unaligned_and_packed_elements) {
  auto bytes = std::make_shared<std::vector<std::byte>>(17);
  (*bytes)[1] = std::byte{0xfe};
  for (int i = 2; i < 9; ++i) (*bytes)[i] = std::byte{0xff};
  const Tensor t = Tensor::borrow(DType::kI64, {1}, bytes->data() + 1, bytes);
  EXPECT_EQ(t.to_i64()[0], -2);
  const Tensor p = Tensor::borrow(DType::kI4, {3}, bytes->data() + 1, bytes);
  EXPECT_EQ(p.to_i64(), (std::vector<int64_t>{-2, -1, -1}));
}

TEST(Half, known_values) {
  EXPECT_EQ(half_to_float(0x3c00), 1.0f);
  EXPECT_EQ(half_to_float(0x8001), -0x1p-24f);
  EXPECT_EQ(half_to_float(0x7bff), 65504.0f);
  EXPECT_EQ(half_to_float(0x7c00), INFINITY);
  EXPECT_EQ(bfloat_to_float(0xc040), -3.0f);
}

}  // namespace
}  // namespace situ
