#include "passes/pack/stored_matrix.h"

#include <gtest/gtest.h>

#include <random>

namespace situ {
namespace {

int digit_at(const Tensor& t, int64_t i, int bits) {
  return t.view().as<const uint8_t>()[i * bits / 8] >> (i * bits % 8) & ((1 << bits) - 1);
}

Tensor random_bytes(int64_t count) {
  static std::mt19937 random(3);
  Tensor t = Tensor::allocate(DType::kU8, {count});
  for (int64_t i = 0; i < count; ++i) t.view().as<uint8_t>()[i] = static_cast<uint8_t>(random());
  return t;
}

Tensor numbers(int64_t count) {
  Tensor t = Tensor::allocate(DType::kF32, {count});
  for (int64_t i = 0; i < count; ++i) t.view().as<float>()[i] = static_cast<float>(i) + 0.5f;
  return t;
}

// W [K, N] and [N, K], signed and not, scales by block, by column, one: each digit where MatMulNBits has it.
TEST(StoredMatrix, OfAnyOrderIsLaidOut) {
  for (const int bits : {2, 4, 8})
    for (const bool transposed : {false, true})
      for (const bool is_signed : {false, true})
        for (const int scales : {0, 1, 2}) {
          StoredMatrix w;
          w.form = {40, 72, bits, 16, ZeroPoints::kIntegers};
          const int64_t k = w.form.k, n = w.form.n, blocks = w.form.blocks();
          w.is_signed = is_signed;
          w.digits = {random_bytes(k * n * bits / 8), transposed ? k : 1, transposed ? 1 : n};
          w.scales.column = scales == 0 ? blocks : scales == 1 ? 1 : 0;
          w.scales.place = scales == 0 ? 1 : 0;
          w.scales.data = numbers(scales == 0 ? n * blocks : scales == 1 ? n : 1);
          w.zeros = w.scales;
          w.zeros.data = random_bytes((w.scales.data.count() * bits + 7) / 8);
          const StoredMatrix to = laid_out(w);
          const int flip = is_signed ? 1 << (bits - 1) : 0;
          ASSERT_EQ(to.digits.data.bytes(), n * w.form.column_bytes());
          ASSERT_EQ(to.zeros.data.bytes(), n * w.form.column_zero_bytes());
          for (int64_t c = 0; c < n; ++c) {
            for (int64_t i = 0; i < blocks * 16; ++i)
              ASSERT_EQ(digit_at(to.digits.data, c * blocks * 16 + i, bits),
                        i < k ? digit_at(w.digits.data, transposed ? c * k + i : i * n + c, bits) ^ flip : 0);
            for (int64_t b = 0; b < blocks; ++b) {
              const int64_t at = scales == 0 ? c * blocks + b : scales == 1 ? c : 0;
              ASSERT_EQ(to.scales.data.view().as<float>()[c * blocks + b], static_cast<float>(at) + 0.5f);
              ASSERT_EQ(digit_at(to.zeros.data, c * w.form.column_zero_bytes() * 8 / bits + b, bits),
                        digit_at(w.zeros.data, at, bits) ^ flip);
            }
          }
        }
}

TEST(StoredMatrix, WhatLiesAsItShouldIsNotWrittenAgain) {
  StoredMatrix w = stored_matrix({64, 8, 4, 32, ZeroPoints::kIntegers});
  w.digits.data = random_bytes(8 * 32);
  w.scales.data = numbers(16);
  w.zeros.data = random_bytes(8);
  const StoredMatrix to = laid_out(w);
  EXPECT_EQ(to.digits.data.view().data, w.digits.data.view().data);
  EXPECT_EQ(to.scales.data.view().data, w.scales.data.view().data);
  EXPECT_EQ(to.zeros.data.view().data, w.zeros.data.view().data);
}

// Zero points that are not there are 0, which of signed integers is half of the range; places in an order with gaps;
// several blocks with one scale.
TEST(StoredMatrix, GapsAndWhatIsShared) {
  StoredMatrix w = stored_matrix({16, 3, 4, 16, ZeroPoints::kIntegers, DigitTable::kNone, true});
  std::vector<int32_t> order(16, -1);
  order[0] = 9;
  order[15] = 2;
  w.is_signed = true;
  w.digits = {random_bytes(3 * 8), 16, 1, 1, &order};
  w.scales = {numbers(2), 1, 0, 2};
  const StoredMatrix to = laid_out(w);
  for (int64_t c = 0; c < 3; ++c) {
    EXPECT_EQ(to.scales.data.view().as<float>()[c], static_cast<float>(c / 2) + 0.5f);
    EXPECT_EQ(to.zeros.data.view().as<uint8_t>()[c], 8);
    for (int64_t i = 0; i < 16; ++i) {
      const int32_t from = order[static_cast<size_t>(i)];
      EXPECT_EQ(digit_at(to.digits.data, c * 16 + (i ^ 1), 4),
                from < 0 ? 0 : digit_at(w.digits.data, c * 16 + (from ^ 1), 4) ^ 8);
    }
  }
}

}  // namespace
}  // namespace situ
