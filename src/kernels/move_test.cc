// move, move_tile, move_pad, fill, range, trilu, eye_like, one_hot, nonzero and shape.
#include "kernels/strided_test.h"

namespace situ {
namespace {

TEST(Move, books_every_byte_between_any_layouts) {
  for_each_isa([](const KernelTable& table, int threads) {
    for (DType type : {DType::kU8, DType::kF16, DType::kF32, DType::kF64}) {
      for (const std::vector<int64_t>& dims :
           std::vector<std::vector<int64_t>>{{}, {0, 3}, {7}, {5, 1, 300}, {70, 80}}) {
        StridedTensor x = StridedTensor::random_layout(type, dims), y = StridedTensor::random_layout(type, dims);
        x.fill_integers(0, 99);
        const RunResult r = run_kernel(table, &KernelTable::move, {x.view()}, y.view(), nullptr, threads);
        for (int64_t i = 0; i < x.count(); ++i) ASSERT_EQ(y.get(i), x.get(i));
        ASSERT_EQ(r.ledger.copied, x.count() * dtype_bytes(type));
        ASSERT_TRUE(y.untouched_outside());
        ASSERT_EQ(run_kernel(table, &KernelTable::move, {x.view()}, x.view(), nullptr, threads).ledger.copied, 0);
      }
    }
  });
}

TEST(Move, reshapes_and_expands) {
  for_each_isa([](const KernelTable& table, int threads) {
    StridedTensor x = StridedTensor::random_layout(DType::kF32, {6, 70, 12}),
                  y = StridedTensor::random_layout(DType::kF32, {35, 144});
    x.fill();
    run_kernel(table, &KernelTable::move, {x.view()}, y.view(), nullptr, threads);
    for (int64_t i = 0; i < x.count(); ++i) ASSERT_EQ(y.get(i), x.get(i));
    StridedTensor row = StridedTensor::random_layout(DType::kF32, {5, 1}),
                  wide = StridedTensor::random_layout(DType::kF32, {3, 5, 4});
    row.fill();
    run_kernel(table, &KernelTable::move, {row.view()}, wide.view(), nullptr, threads);
    for (int64_t i = 0; i < wide.count(); ++i) ASSERT_EQ(wide.get(i), row.get(i / 4 % 5));
  });
}

TEST(MoveTile, repeats) {
  for_each_isa([](const KernelTable& table, int threads) {
    StridedTensor x = StridedTensor::random_layout(DType::kI32, {2, 5, 30}),
                  y = StridedTensor::random_layout(DType::kI32, {6, 5, 240});
    x.fill_integers(0, 999);
    run_kernel(table, &KernelTable::move_tile, {x.view()}, y.view(), nullptr, threads);
    for (int64_t i = 0; i < 6; ++i)
      for (int64_t j = 0; j < 5; ++j)
        for (int64_t k = 0; k < 240; ++k) ASSERT_EQ(y.at({i, j, k}), x.at({i % 2, j, k % 30}));
    ASSERT_TRUE(y.untouched_outside());
  });
}

// Source coordinate of output coordinate i, or -1.
int64_t pad_reference(int64_t i, int64_t n, int mode) {
  while (i < 0 || i >= n) {
    if (mode == 0) return -1;
    if (mode == 2) return i < 0 ? 0 : n - 1;
    if (mode == 3)
      i += i < 0 ? n : -n;
    else
      i = i < 0 ? -i : 2 * (n - 1) - i;
  }
  return i;
}

TEST(MovePad, all_modes_and_crops) {
  for_each_isa([](const KernelTable& table, int threads) {
    for (int32_t mode = 0; mode < 4; ++mode) {
      const int64_t before[] = {random_int(-2, 7), random_int(-2, 7)},
                    after[] = {random_int(-2, 7), random_int(-2, 90)};
      StridedTensor x = StridedTensor::random_layout(DType::kF32, {5, 70}), pads(DType::kI64, {4}),
                    value(DType::kF32, {});
      StridedTensor y =
          StridedTensor::random_layout(DType::kF32, {5 + before[0] + after[0], 70 + before[1] + after[1]});
      x.fill();
      for (int i = 0; i < 2; ++i) {
        pads.set(i, static_cast<double>(before[i]));
        pads.set(i + 2, static_cast<double>(after[i]));
      }
      value.set(0, 7.5);
      PadParams p{};
      p.mode = mode;
      run_kernel(table, &KernelTable::move_pad, {x.view(), pads.view(), value.view()}, y.view(), &p, threads);
      for (int64_t i = 0; i < y.view().dims[0]; ++i) {
        for (int64_t j = 0; j < y.view().dims[1]; ++j) {
          const int64_t a = pad_reference(i - before[0], 5, mode), b = pad_reference(j - before[1], 70, mode);
          ASSERT_EQ(y.at({i, j}), a < 0 || b < 0 ? 7.5 : x.at({a, b})) << "mode " << mode;
        }
      }
      ASSERT_TRUE(y.untouched_outside());
    }
  });
}

TEST(ReadStream, ReadsWholeParts) {
  for_each_isa([](const KernelTable& table, int threads) {
    StridedTensor x(DType::kI32, {4096 * 7}), y(DType::kI32, {8});
    x.fill_integers(0, 1 << 20);
    int64_t expected = 0, sum = 0;
    for (int64_t i = 0; i < x.count(); ++i) expected ^= static_cast<int64_t>(x.get(i));
    run_kernel(table, &KernelTable::read_stream, {x.view()}, y.view(), nullptr, threads);
    for (int t = 0; t < threads; ++t) sum ^= static_cast<int64_t>(y.get(t));
    ASSERT_EQ(sum, expected);
  });
}

TEST(Generate, fill_range_trilu_eye_one_hot_shape) {
  for_each_isa([](const KernelTable& table, int threads) {
    StridedTensor y = StridedTensor::random_layout(DType::kI64, {80, 90});
    FillParams fill{DType::kI64, {}};
    *reinterpret_cast<int64_t*>(fill.value) = -3;
    run_kernel(table, &KernelTable::fill, {}, y.view(), &fill, threads);
    for (int64_t i = 0; i < y.count(); ++i) ASSERT_EQ(y.get(i), -3);

    StridedTensor start(DType::kI32, {}), delta(DType::kI32, {}), r = StridedTensor::random_layout(DType::kI32, {5001});
    start.set(0, 9);
    delta.set(0, -2);
    run_kernel(table, &KernelTable::range, {start.view(), start.view(), delta.view()}, r.view(), nullptr, threads);
    for (int64_t i = 0; i < r.count(); ++i) ASSERT_EQ(r.get(i), 9.0 - 2.0 * static_cast<double>(i));

    StridedTensor x = StridedTensor::random_layout(DType::kF16, {2, 70, 60}),
                  t = StridedTensor::random_layout(DType::kF16, {2, 70, 60}), k(DType::kI64, {1});
    x.fill(1, 2);
    k.set(0, -4);
    for (bool upper : {false, true}) {
      const TriluParams p{upper};
      run_kernel(table, &KernelTable::trilu, {x.view(), k.view()}, t.view(), &p, threads);
      for (int64_t i = 0; i < 70; ++i)
        for (int64_t j = 0; j < 60; ++j)
          ASSERT_EQ(t.at({1, i, j}), (upper ? j >= i - 4 : j <= i - 4) ? x.at({1, i, j}) : 0);
    }

    StridedTensor eye = StridedTensor::random_layout(DType::kF32, {70, 80});
    const EyeLikeParams e{3};
    run_kernel(table, &KernelTable::eye_like, {}, eye.view(), &e, threads);
    for (int64_t i = 0; i < eye.count(); ++i) ASSERT_EQ(eye.get(i), i % 80 - i / 80 == 3);

    StridedTensor index = StridedTensor::random_layout(DType::kI32, {40, 6}), depth(DType::kI64, {}),
                  values(DType::kF32, {2});
    StridedTensor hot = StridedTensor::random_layout(DType::kF32, {40, 20, 6});
    index.fill_integers(-21, 21);
    values.set(0, -1);
    values.set(1, 5);
    const AxisParams one{1};
    run_kernel(table, &KernelTable::one_hot, {index.view(), depth.view(), values.view()}, hot.view(), &one, threads);
    for (int64_t i = 0; i < 40; ++i)
      for (int64_t d = 0; d < 20; ++d)
        for (int64_t j = 0; j < 6; ++j) {
          const double at = index.at({i, j}), chosen = at < 0 ? at + 20 : at;
          ASSERT_EQ(hot.at({i, d, j}), chosen == static_cast<double>(d) ? 5 : -1);
        }

    StridedTensor sparse = StridedTensor::random_layout(DType::kF16, {5, 4, 7});
    sparse.fill_integers(0, 3);
    std::vector<std::vector<int64_t>> expected;
    for (int64_t i = 0; i < sparse.count(); ++i)
      if (sparse.get(i) != 0) expected.push_back({i / 28, i / 7 % 4, i % 7});
    StridedTensor found = StridedTensor::random_layout(DType::kI64, {3, static_cast<int64_t>(expected.size())});
    run_kernel(table, &KernelTable::nonzero, {sparse.view()}, found.view(), nullptr, threads);
    for (int64_t d = 0; d < 3; ++d)
      for (size_t i = 0; i < expected.size(); ++i)
        ASSERT_EQ(found.at({d, static_cast<int64_t>(i)}), static_cast<double>(expected[i][static_cast<size_t>(d)]));
    ASSERT_TRUE(found.untouched_outside());

    StridedTensor dims(DType::kI64, {2});
    const ShapeParams s{1, 3, false};
    run_kernel(table, &KernelTable::shape, {hot.view()}, dims.view(), &s, threads);
    EXPECT_EQ(dims.get(0), 20);
    EXPECT_EQ(dims.get(1), 6);
  });
}

}  // namespace
}  // namespace situ
