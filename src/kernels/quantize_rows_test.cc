// situ.QuantizeRows against its formula, and back.
#include "kernels/strided_test.h"

namespace situ {
namespace {

float scale_of(const StridedTensor& y, int64_t row, int64_t size) {
  float scale;
  for (int64_t i = 0; i < kRowScaleBytes; ++i)
    reinterpret_cast<int8_t*>(&scale)[i] = static_cast<int8_t>(y.get(row * (size + kRowScaleBytes) + size + i));
  return scale;
}

KernelCall make_call(const StridedTensor& x, const StridedTensor& y) {
  KernelCall call;
  call.in = &x.view();
  call.in_count = 1;
  call.out = &y.view();
  call.out_count = 1;
  return call;
}

void check(DType type, int64_t rows, int64_t size, double zero_share) {
  SCOPED_TRACE(std::to_string(rows) + " rows of " + std::to_string(size));
  StridedTensor x = StridedTensor::random_layout(type, {2, rows, size}),
                y = StridedTensor::random_layout(DType::kI8, {2, rows, size + kRowScaleBytes});
  x.fill(-3, 3);
  for (int64_t i = 0; i < 2 * rows * size; ++i)
    if (random_int(0, 999) < zero_share * 1000) x.set(i, 0);
  const KernelCall call = make_call(x, y);
  for_each_isa([&](const KernelTable& table, int threads) {
    y.reset();
    run_kernel(table, &KernelTable::quantize_rows, call, threads);
    ASSERT_TRUE(y.untouched_outside());
    for (int64_t r = 0; r < 2 * rows; ++r) {
      float largest = 0;
      for (int64_t d = 0; d < size; ++d)
        largest = std::max(largest, static_cast<float>(std::fabs(x.get(r * size + d))));
      const float scale = scale_of(y, r, size);
      ASSERT_FLOAT_EQ(scale, largest / 127.0f);
      for (int64_t d = 0; d < size; ++d)
        ASSERT_NEAR(y.get(r * (size + kRowScaleBytes) + d) * scale, x.get(r * size + d), 0.501 * scale)
            << "row " << r << " element " << d;
    }
  });
}

TEST(QuantizeRows, Formula) {
  for (int64_t size : {1, 3, 8, 16, 17, 64, 80, 128, 1024}) {
    for (DType type : {DType::kF32, DType::kF16, DType::kBF16}) check(type, random_int(1, 30), size, 0);
    check(DType::kF32, 3, size, 1);
    if (HasFatalFailure()) return;
  }
  check(DType::kF32, 600, 64, 0.3);
}

TEST(QuantizeRows, WhatIsNotFiniteMakesItsRowNaN) {
  for (float odd : {INFINITY, -INFINITY, NAN}) {
    StridedTensor x(DType::kF32, {1, 3, 20}), y(DType::kI8, {1, 3, 24});
    x.fill();
    x.set(27, odd);
    const KernelCall call = make_call(x, y);
    for_each_isa([&](const KernelTable& table, int threads) {
      run_kernel(table, &KernelTable::quantize_rows, call, threads);
      for (int64_t r = 0; r < 3; ++r) ASSERT_EQ(std::isnan(scale_of(y, r, 20)), r == 1);
    });
  }
}

}  // namespace
}  // namespace situ
