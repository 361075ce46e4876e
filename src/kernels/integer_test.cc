// DynamicQuantizeLinear, MatMulInteger, ConvInteger, and the rows and products of bytes that passes make of them:
// against their formulas, sums exactly.
#include "kernels/integer_layout.h"
#include "kernels/strided_test.h"

namespace situ {
namespace {

struct Range {
  float scale = 1;
  int64_t zero = 0;
};

Range range_of(const StridedTensor& x) {
  float low = 0, high = 0;
  for (int64_t i = 0; i < x.count(); ++i) {
    low = std::min(low, static_cast<float>(x.get(i)));
    high = std::max(high, static_cast<float>(x.get(i)));
  }
  Range r;
  if (high > low) r.scale = (high - low) / 255.0f;
  r.zero = static_cast<int64_t>(std::nearbyint(std::min(255.0f, std::max(0.0f, -low / r.scale))));
  return r;
}
int64_t byte_of(float x, const Range& r) {
  return std::clamp<int64_t>(static_cast<int64_t>(std::nearbyint(x / r.scale)) + r.zero, 0, 255);
}

TEST(DynamicQuantizeLinear, RoundsInTheRangeOfAllNumbers) {
  const std::pair<double, double> ranges[] = {{-3, 3}, {0.5, 4}, {-9, -2}, {0, 0}, {-1e-30, 1e-30}};
  for (const std::vector<int64_t>& dims : std::vector<std::vector<int64_t>>{{1}, {3, 17}, {1, 5, 64}, {2, 70, 40}})
    for (const auto& [low, high] : ranges) {
      StridedTensor x = StridedTensor::random_layout(DType::kF32, dims),
                    y = StridedTensor::random_layout(DType::kU8, dims), scale(DType::kF32, {}), zero(DType::kU8, {});
      x.fill(low, high);
      if (high == 3)  // ties, which go to the even number
        for (int64_t i = 0; i < x.count(); ++i)
          x.set(i, i == 0 ? -127.5 : i == 1 ? 127.5 : static_cast<double>(i) - 2.5);
      const Range r = range_of(x);
      for_each_isa([&](const KernelTable& table, int threads) {
        y.reset();
        run_kernel(table, &KernelTable::dynamic_quantize_linear, {x.view()}, {y.view(), scale.view(), zero.view()},
                   nullptr, threads);
        ASSERT_TRUE(y.untouched_outside());
        ASSERT_EQ(scale.get(0), r.scale);
        ASSERT_EQ(zero.get(0), static_cast<double>(r.zero));
        for (int64_t i = 0; i < x.count(); ++i)
          ASSERT_EQ(y.get(i), static_cast<double>(byte_of(static_cast<float>(x.get(i)), r))) << i;
      });
    }
}

TEST(DynamicQuantizeLinear, WhatIsNotFiniteMakesTheScaleNaN) {
  for (const float odd : {INFINITY, -INFINITY, NAN}) {
    StridedTensor x(DType::kF32, {2, 33}), y(DType::kU8, {2, 33}), scale(DType::kF32, {}), zero(DType::kU8, {});
    x.fill().set(40, odd);
    for_each_isa([&](const KernelTable& table, int threads) {
      run_kernel(table, &KernelTable::dynamic_quantize_linear, {x.view()}, {y.view(), scale.view(), zero.view()},
                 nullptr, threads);
      ASSERT_TRUE(std::isnan(scale.get(0)));
    });
  }
}

void fill_bytes(StridedTensor* t, DType type) {
  t->fill_integers(type == DType::kI8 ? -128 : 0, type == DType::kI8 ? 127 : 255);
}

TEST(MatMulInteger, IsExact) {
  for (const DType a_type : {DType::kU8, DType::kI8})
    for (const DType b_type : {DType::kU8, DType::kI8})
      for (const auto& [m, k, n] :
           std::vector<std::array<int64_t, 3>>{{1, 1, 1}, {3, 20, 7}, {6, 33, 530}, {9, 64, 64}})
        for (const int64_t batch : {1, 2})
          for (const int zeros : {0, 1, 2}) {  // none, one, one for each row and column
            StridedTensor a = StridedTensor::random_layout(a_type, {batch, m, k}),
                          b = StridedTensor::random_layout(
                              b_type, batch == 1 ? std::vector<int64_t>{k, n} : std::vector<int64_t>{batch, k, n}),
                          y = StridedTensor::random_layout(DType::kI32, {batch, m, n});
            StridedTensor za(a_type, zeros == 1 ? std::vector<int64_t>{} : std::vector<int64_t>{1, m, 1}),
                zb(b_type, zeros == 1 ? std::vector<int64_t>{1} : std::vector<int64_t>{n});
            fill_bytes(&a, a_type);
            fill_bytes(&b, b_type);
            fill_bytes(&za, a_type);
            fill_bytes(&zb, b_type);
            std::vector<View> in{a.view(), b.view()};
            if (zeros > 0) {
              in.push_back(za.view());
              in.push_back(zb.view());
            }
            std::vector<double> sums;
            for (int64_t i = 0; i < batch * m * n; ++i) {
              const int64_t at = i / (m * n), row = i / n % m, column = i % n;
              const double zero_a = zeros == 0 ? 0 : za.get(zeros == 1 ? 0 : row),
                           zero_b = zeros == 0 ? 0 : zb.get(zeros == 1 ? 0 : column);
              double sum = 0;
              for (int64_t j = 0; j < k; ++j)
                sum +=
                    (a.at({at, row, j}) - zero_a) * ((batch == 1 ? b.at({j, column}) : b.at({at, j, column})) - zero_b);
              sums.push_back(sum);
            }
            for_each_isa([&](const KernelTable& table, int threads) {
              y.reset();
              run_kernel(table, &KernelTable::matmul_integer, in, y.view(), nullptr, threads);
              ASSERT_TRUE(y.untouched_outside());
              for (int64_t i = 0; i < batch * m * n; ++i) ASSERT_EQ(y.get(i), sums[static_cast<size_t>(i)]) << i;
            });
          }
}

TEST(ConvInteger, PaddingCountsAsTheZeroPoint) {
  for (const DType w_type : {DType::kU8, DType::kI8})
    for (const int64_t groups : {1, 2}) {
      const int64_t channels = 4 / groups, extent = 11, taps = 3, stride = 2, out = (extent + 2 - taps) / stride + 1;
      StridedTensor x = StridedTensor::random_layout(DType::kU8, {2, 4, extent}),
                    w = StridedTensor::random_layout(w_type, {6, channels, taps}), zx(DType::kU8, {}), zw(w_type, {6}),
                    y = StridedTensor::random_layout(DType::kI32, {2, 6, out});
      fill_bytes(&x, DType::kU8);
      fill_bytes(&w, w_type);
      fill_bytes(&zx, DType::kU8);
      fill_bytes(&zw, w_type);
      const ConvParams p{1, groups, {stride, 1, 1}, {1, 1, 1}, {1, 0, 0}};
      for_each_isa([&](const KernelTable& table, int threads) {
        run_kernel(table, &KernelTable::conv_integer, {x.view(), w.view(), zx.view(), zw.view()}, y.view(), &p,
                   threads);
        ASSERT_TRUE(y.untouched_outside());
        for (int64_t i = 0; i < y.count(); ++i) {
          const int64_t b = i / (6 * out), row = i / out % 6, o = i % out;
          double sum = 0;
          for (int64_t c = 0; c < channels; ++c)
            for (int64_t t = 0; t < taps; ++t) {
              const int64_t at = o * stride + t - 1;
              if (at < 0 || at >= extent) continue;
              sum += (x.at({b, row / (6 / groups) * channels + c, at}) - zx.get(0)) * (w.at({row, c, t}) - zw.get(row));
            }
          ASSERT_EQ(y.get(i), sum) << i;
        }
      });
    }
}

// -- rows of bytes and their products

struct ProductCase {
  int64_t m, k, n;
  DType weights = DType::kU8;
  bool bias = false, gelu = false, residual = false, each = false;  // each: scales and zero points of every column
  DType to = DType::kF32;
  bool extreme = false;  // bytes at the ends of their range, where 16 bits would saturate
};

class IntegerProduct {
 public:
  explicit IntegerProduct(const ProductCase& c)
      : c_(c),
        layout_{c.k, c.n},
        x_(StridedTensor::random_layout(DType::kF32, {1, c.m, c.k})),
        w_(StridedTensor::random_layout(c.weights, {c.k, c.n})),
        scale_(DType::kF32, {c.each ? c.n : 1}),
        zero_(c.weights, {c.each ? c.n : 1}),
        bias_(DType::kF32, {c.n}),
        residual_(StridedTensor::random_layout(DType::kF32, {1, c.m, c.n})),
        y_(StridedTensor::random_layout(c.to, {1, c.m, c.n})) {
    x_.fill(-2, 3);
    fill_bytes(&w_, c.weights);
    scale_.fill(0.001, 0.01);
    fill_bytes(&zero_, c.weights);
    bias_.fill();
    residual_.fill();
    if (!c.extreme) return;
    for (int64_t i = 0; i < x_.count(); ++i) x_.set(i, i % 7 == 0 ? -2 : 3);
    for (int64_t i = 0; i < w_.count(); ++i) w_.set(i, c.weights == DType::kI8 ? (i % 3 == 0 ? 127 : -128) : 255);
  }

  void check(const KernelTable& table, int threads) {
    const Range range = range_of(x_);
    StridedTensor rows(DType::kU8, {1, c_.m, layout_.row_bytes()}, {}, random_int(0, 1) * 64),
        packed(DType::kU8, {layout_.bytes()});
    run_kernel(table, &KernelTable::round_rows, {x_.view()}, rows.view(), nullptr, threads);
    const PackIntegerParams all{layout_, 0, layout_.units()};
    run_kernel(table, &KernelTable::pack_integer, {w_.view()}, packed.view(), &all, threads);
    ASSERT_TRUE(packed.untouched_outside());
    for (int64_t r = 0; r < c_.m; ++r)
      for (int64_t k = 0; k < layout_.depth(); ++k)
        ASSERT_EQ(static_cast<int8_t>(static_cast<uint8_t>(rows.get(r * layout_.row_bytes() + k))),
                  k < c_.k ? byte_of(static_cast<float>(x_.get(r * c_.k + k)), range) - 128 : 0);
    const IntegerMatMulParams params{layout_, c_.weights == DType::kI8, c_.gelu};
    std::vector<View> in{rows.view(),   packed.view(),
                         scale_.view(), c_.residual ? residual_.view() : View{},
                         zero_.view(),  c_.bias ? bias_.view() : View{}};
    y_.reset();
    run_kernel(table, &KernelTable::integer_matmul, in, y_.view(), &params, threads);
    ASSERT_TRUE(y_.untouched_outside());
    for (int64_t i = 0; i < c_.m * c_.n; ++i) expect(i, range);
  }

 private:
  void expect(int64_t i, const Range& range) {
    const int64_t row = i / c_.n, n = i % c_.n, column = c_.each ? n : 0;
    int64_t sum = 0;
    for (int64_t k = 0; k < c_.k; ++k)
      sum += (byte_of(static_cast<float>(x_.get(row * c_.k + k)), range) - range.zero) *
             static_cast<int64_t>(w_.at({k, n}) - zero_.get(column));
    double y = static_cast<double>(static_cast<float>(sum) * (static_cast<float>(scale_.get(column)) * range.scale));
    if (c_.bias) y += bias_.get(n);
    if (c_.gelu) y = 0.5 * y * (1 + std::erf(y / std::sqrt(2.0)));
    if (c_.residual) y += residual_.get(i);
    ASSERT_NEAR(y_.get(i), y, (std::fabs(y) + 1) * rounding(c_.to)) << "row " << row << " column " << n;
  }

  ProductCase c_;
  IntegerLayout layout_;
  StridedTensor x_, w_, scale_, zero_, bias_, residual_, y_;
};

TEST(IntegerMatMul, IsExactInItsSums) {
  std::vector<ProductCase> cases;
  for (const int64_t m : {1, 2, 3, 4, 5, 7, 11, 12, 13, 16, 31, 48, 70}) cases.push_back({m, 96, 40});
  for (const int64_t k : {1, 3, 5, 63, 64, 65, 200}) cases.push_back({3, k, 33, DType::kI8});
  for (const int64_t n : {1, 15, 16, 17, 31, 32, 64, 100}) cases.push_back({5, 64, n, DType::kI8});
  for (const DType type : {DType::kU8, DType::kI8}) {
    for (const int64_t m : {1, 20}) {
      cases.push_back({m, 72, 48, type, true, false, false, true});
      cases.push_back({m, 72, 48, type, true, true, false, true});
      cases.push_back({m, 72, 50, type, true, false, true, false, DType::kF16});
      cases.push_back({m, 72, 50, type, false, true, true, true, DType::kBF16});
      cases.push_back({m, 1024, 34, type, false, false, false, false, DType::kF32, true});
    }
  }
  for (const ProductCase& c : cases) {
    SCOPED_TRACE(std::to_string(c.m) + " rows, K " + std::to_string(c.k) + ", N " + std::to_string(c.n));
    IntegerProduct product(c);
    for_each_isa([&](const KernelTable& table, int threads) { product.check(table, threads); }, emulated_tables());
    if (HasFatalFailure()) return;
  }
}

// The machine code of AMX, on CPUs without it.
TEST(IntegerMatMul, TilesThatAreTrapped) {
  if (trapped_tables().empty()) GTEST_SKIP() << "no table of another ISA can be run on this CPU";
  IntegerProduct product({35, 128, 40, DType::kI8, true});
  for (const EmulatedTable& e : trapped_tables()) product.check(*e.table, 1);
}

// The same bytes whoever computes them: a row alone, beside others, on one thread or more.
TEST(IntegerMatMul, RowsDoNotDependOnOthers) {
  constexpr int64_t kRows = 50, kColumns = 70;
  const IntegerLayout layout{80, kColumns};
  StridedTensor x(DType::kF32, {kRows, 80}), w(DType::kI8, {80, kColumns}), scale(DType::kF32, {1}),
      rows(DType::kU8, {kRows, layout.row_bytes()}), packed(DType::kU8, {layout.bytes()}),
      all(DType::kF32, {kRows, kColumns}), one(DType::kF32, {1, kColumns});
  x.fill();
  fill_bytes(&w, DType::kI8);
  scale.fill(0.01, 0.02);
  for_each_isa(
      [&](const KernelTable& table, int threads) {
        const PackIntegerParams units{layout, 0, layout.units()};
        const IntegerMatMulParams params{layout, true, true};
        run_kernel(table, &KernelTable::round_rows, {x.view()}, rows.view(), nullptr, threads);
        run_kernel(table, &KernelTable::pack_integer, {w.view()}, packed.view(), &units, threads);
        run_kernel(table, &KernelTable::integer_matmul, {rows.view(), packed.view(), scale.view()}, all.view(), &params,
                   threads);
        for (int64_t r = 0; r < kRows; ++r) {
          View row = rows.view();
          row.dims[0] = 1;
          row.data += r * layout.row_bytes();
          run_kernel(table, &KernelTable::integer_matmul, {row, packed.view(), scale.view()}, one.view(), &params, 1);
          for (int64_t n = 0; n < kColumns; ++n) ASSERT_EQ(one.get(n), all.get(r * kColumns + n)) << r;
        }
      },
      emulated_tables());
}

}  // namespace
}  // namespace situ
