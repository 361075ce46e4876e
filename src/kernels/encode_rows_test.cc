// situ.EncodeRows, with a scale for each row, against its formula, and back.
#include "kernels/params.h"
#include "kernels/strided_test.h"

namespace situ {
namespace {

float scale_of(const StridedTensor& y, int64_t row, int64_t size) {
  float scale;
  for (int64_t i = 0; i < kRowScaleBytes; ++i)
    reinterpret_cast<int8_t*>(&scale)[i] = static_cast<int8_t>(y.get(row * (size + kRowScaleBytes) + size + i));
  return scale;
}

constexpr EncodeRowsParams kByRow{RowEncoding::kRowScale};
KernelCall make_call(const StridedTensor& x, const StridedTensor& y) {
  KernelCall call;
  call.params = &kByRow;
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
    run_kernel(table, &KernelTable::encode_rows, call, threads);
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

TEST(EncodeRows, ScaleOfEachRow) {
  for (int64_t size : {1, 3, 8, 16, 17, 64, 80, 128, 1024}) {
    for (DType type : {DType::kF32, DType::kF16, DType::kBF16}) check(type, random_int(1, 30), size, 0);
    check(DType::kF32, 3, size, 1);
    if (HasFatalFailure()) return;
  }
  check(DType::kF32, 600, 64, 0.3);
}

TEST(EncodeRows, WhatIsNotFiniteMakesItsRowNaN) {
  for (float odd : {INFINITY, -INFINITY, NAN}) {
    StridedTensor x(DType::kF32, {1, 3, 20}), y(DType::kI8, {1, 3, 24});
    x.fill();
    x.set(27, odd);
    const KernelCall call = make_call(x, y);
    for_each_isa([&](const KernelTable& table, int threads) {
      run_kernel(table, &KernelTable::encode_rows, call, threads);
      for (int64_t r = 0; r < 3; ++r) ASSERT_EQ(std::isnan(scale_of(y, r, 20)), r == 1);
    });
  }
}

// With factors.
void check_encoded(DType type, int bits, int64_t heads, int64_t rows, int64_t size, bool by_channel) {
  const bool digits = bits == 4;
  SCOPED_TRACE(std::to_string(heads) + " heads of " + std::to_string(rows) + " rows of " + std::to_string(size));
  StridedTensor x = StridedTensor::random_layout(type, {1, heads, rows, size}),
                y = StridedTensor::random_layout(digits ? DType::kU8 : DType::kI8,
                                                 {1, heads, rows, digits ? (size + 1) / 2 : size});
  StridedTensor factors(DType::kF32, {by_channel ? heads : 1, by_channel ? size : 1});
  x.fill(-3, 3);
  factors.fill(digits ? 1 : 20, digits ? 4 : 60);  // a few are beyond what there is
  const View in[2] = {x.view(), factors.view()};
  const EncodeRowsParams params{digits ? RowEncoding::kDigits : RowEncoding::kBytes};
  KernelCall call;
  call.params = &params;
  call.in = in;
  call.in_count = 2;
  call.out = &y.view();
  call.out_count = 1;
  const auto expected = [&](int64_t h, int64_t r, int64_t d) -> int64_t {
    if (d >= size) return 0;
    const auto factor = static_cast<float>(by_channel ? factors.at({h, d}) : factors.get(0));
    const float rounded = std::nearbyint(static_cast<float>(x.at({0, h, r, d})) * factor);
    return static_cast<int64_t>(digits ? std::clamp(rounded, -8.0f, 7.0f) : std::clamp(rounded, -128.0f, 127.0f));
  };
  for_each_isa([&](const KernelTable& table, int threads) {
    y.reset();
    run_kernel(table, &KernelTable::encode_rows, call, threads);
    ASSERT_TRUE(y.untouched_outside());
    for (int64_t h = 0; h < heads; ++h)
      for (int64_t r = 0; r < rows; ++r)
        for (int64_t d = 0; d < y.view().dims[3]; ++d) {
          const auto found = static_cast<int64_t>(y.at({0, h, r, d}));
          const int64_t wanted =
              digits ? (expected(h, r, 2 * d) + 8) | (expected(h, r, 2 * d + 1) + 8) << 4 : expected(h, r, d);
          ASSERT_EQ(found, wanted) << "head " << h << " row " << r << " element " << d;
        }
  });
}

TEST(EncodeRows, Formula) {
  for (const int bits : {8, 4})
    for (const int64_t size : {1, 2, 3, 8, 16, 17, 64, 80, 1024})
      for (const bool by_channel : {false, true}) {
        check_encoded(DType::kF32, bits, 2, random_int(1, 9), size, by_channel);
        check_encoded(DType::kF16, bits, 1, 3, size, by_channel);
        if (HasFatalFailure()) return;
      }
}

}  // namespace
}  // namespace situ
