// unary, binary, where, clip and cast against plain formulas in double: all ISAs, element types, odd sizes,
// padded, permuted and broadcast strides, in place.
#include <cmath>
#include <limits>

#include "kernels/strided_test.h"

namespace situ {
namespace {

constexpr DType kReals[] = {DType::kF32, DType::kF64, DType::kF16, DType::kBF16};
constexpr DType kIntegers[] = {DType::kI8, DType::kI16, DType::kI32, DType::kI64,
                               DType::kU8, DType::kU16, DType::kU32, DType::kU64};

std::vector<std::vector<int64_t>> shapes() {
  return {{}, {1}, {0}, {3, 0, 2}, {17}, {255}, {2, 257}, {3, 5, 7}, {1, 4, 1, 6}, {5, 1031}};
}

// Index into a tensor that broadcasts to `dims`, for row-major index i of the result.
int64_t broadcast_index(const StridedTensor& t, const std::vector<int64_t>& dims, int64_t i) {
  int64_t index = 0, scale = 1;
  const View& v = t.view();
  for (int d = static_cast<int>(dims.size()) - 1; d >= 0; --d) {
    const int64_t at = i % dims[d];
    i /= dims[d];
    const int own = d - (static_cast<int>(dims.size()) - v.rank);
    if (own < 0) continue;
    index += (v.dims[own] == 1 ? 0 : at) * scale;
    scale *= v.dims[own];
  }
  return index;
}

struct UnaryCase {
  UnaryKind kind;
  double (*f)(double x, double alpha, double beta);
  double low = -4, high = 4;
  float alpha = 0, beta = 0;
};

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }
double clamp01(double x) { return std::min(1.0, std::max(0.0, x)); }

const UnaryCase kUnaryCases[] = {
    {UnaryKind::kAbs, [](double x, double, double) { return std::fabs(x); }},
    {UnaryKind::kNeg, [](double x, double, double) { return -x; }},
    {UnaryKind::kExp, [](double x, double, double) { return std::exp(x); }, -9, 9},
    {UnaryKind::kLog, [](double x, double, double) { return std::log(x); }, 0.1, 9},
    {UnaryKind::kSqrt, [](double x, double, double) { return std::sqrt(x); }, 0, 9},
    {UnaryKind::kReciprocal, [](double x, double, double) { return 1 / x; }, 0.1, 9},
    {UnaryKind::kErf, [](double x, double, double) { return std::erf(x); }},
    {UnaryKind::kTanh, [](double x, double, double) { return std::tanh(x); }},
    {UnaryKind::kSigmoid, [](double x, double, double) { return sigmoid(x); }, -9, 9},
    {UnaryKind::kSin, [](double x, double, double) { return std::sin(x); }, -99, 99},
    {UnaryKind::kCos, [](double x, double, double) { return std::cos(x); }, -99, 99},
    {UnaryKind::kFloor, [](double x, double, double) { return std::floor(x); }, -9, 9},
    {UnaryKind::kCeil, [](double x, double, double) { return std::ceil(x); }, -9, 9},
    {UnaryKind::kRound, [](double x, double, double) { return std::nearbyint(x); }, -9, 9},
    {UnaryKind::kSign, [](double x, double, double) { return double(x > 0) - (x < 0); }},
    {UnaryKind::kRelu, [](double x, double, double) { return std::max(x, 0.0); }},
    {UnaryKind::kSoftplus, [](double x, double, double) { return std::log1p(std::exp(x)); }},
    {UnaryKind::kGeluErf, [](double x, double, double) { return 0.5 * x * (1 + std::erf(x / std::sqrt(2.0))); }},
    {UnaryKind::kGeluTanh,
     [](double x, double, double) {
       return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
     }},
    {UnaryKind::kSilu, [](double x, double, double) { return x * sigmoid(x); }},
    {UnaryKind::kQuickGelu, [](double x, double a, double) { return x * sigmoid(a * x); }, -4, 4, 1.702f},
    {UnaryKind::kElu, [](double x, double a, double) { return x < 0 ? a * std::expm1(x) : x; }, -4, 4, 1.5f},
    {UnaryKind::kSelu, [](double x, double a, double b) { return b * (x > 0 ? x : a * std::expm1(x)); }, -4, 4, 1.6f,
     1.1f},
    {UnaryKind::kCelu, [](double x, double a, double) { return x < 0 ? a * std::expm1(x / a) : x; }, -4, 4, 2},
    {UnaryKind::kLeakyRelu, [](double x, double a, double) { return x < 0 ? a * x : x; }, -4, 4, 0.1f},
    {UnaryKind::kThresholdedRelu, [](double x, double a, double) { return x > a ? x : 0; }, -4, 4, 1},
    {UnaryKind::kHardSigmoid, [](double x, double a, double b) { return clamp01(a * x + b); }, -4, 4, 0.2f, 0.5f},
    {UnaryKind::kHardSwish, [](double x, double, double) { return x * clamp01(x / 6 + 0.5); }},
    {UnaryKind::kMish, [](double x, double, double) { return x * std::tanh(std::log1p(std::exp(x))); }},
    {UnaryKind::kSoftsign, [](double x, double, double) { return x / (1 + std::fabs(x)); }},
    {UnaryKind::kTan, [](double x, double, double) { return std::tan(x); }, -1, 1},
    {UnaryKind::kAtanh, [](double x, double, double) { return std::atanh(x); }, -0.9, 0.9},
};

TEST(Unary, matches_double) {
  for_each_isa([](const KernelTable& table, int threads) {
    for (const UnaryCase& c : kUnaryCases) {
      for (DType type : kReals) {
        const auto all = shapes();
        const auto& dims = all[random_int(0, static_cast<int64_t>(all.size()) - 1)];
        StridedTensor x = StridedTensor::random_layout(type, dims), y = StridedTensor::random_layout(type, dims);
        x.fill(c.low, c.high);
        const UnaryParams p{c.kind, c.alpha, c.beta};
        run_kernel(table, &KernelTable::unary, {x.view()}, y.view(), &p, threads);
        const double tolerance = type == DType::kF64 ? 1e-7 : 4 * rounding(type);  // alpha, beta are floats
        for (int64_t i = 0; i < x.count(); ++i) {
          const double want = c.f(x.get(i), c.alpha, c.beta);
          ASSERT_NEAR(y.get(i), want, tolerance * std::max(1.0, std::fabs(want)))
              << "kind " << int(c.kind) << " x " << x.get(i) << " " << dtype_name(type);
        }
        ASSERT_TRUE(y.untouched_outside());
      }
    }
  });
}

TEST(Unary, writes_over_its_input) {
  for_each_isa([](const KernelTable& table, int threads) {
    StridedTensor x = StridedTensor(DType::kF32, {3, 5, 333}, {}, 2, 1), copy(DType::kF32, {3, 5, 333});
    x.fill();
    for (int64_t i = 0; i < x.count(); ++i) copy.set(i, x.get(i));
    const UnaryParams p{UnaryKind::kNeg};
    run_kernel(table, &KernelTable::unary, {x.view()}, x.view(), &p, threads);
    for (int64_t i = 0; i < x.count(); ++i) ASSERT_EQ(x.get(i), -copy.get(i));
  });
}

TEST(Unary, special_values) {
  const float inf = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
  const float values[] = {nan, inf, -inf, 0, -0.0f, 200, -200, 1e9f};
  for_each_isa([&](const KernelTable& table, int threads) {
    StridedTensor x(DType::kF32, {8}), y(DType::kF32, {8}), b(DType::kBool, {8});
    for (int i = 0; i < 8; ++i) x.set(i, values[i]);
    for (UnaryKind kind : {UnaryKind::kExp, UnaryKind::kTanh, UnaryKind::kSigmoid, UnaryKind::kErf, UnaryKind::kSin}) {
      const UnaryParams p{kind};
      run_kernel(table, &KernelTable::unary, {x.view()}, y.view(), &p, threads);
      for (int i = 0; i < 8; ++i) {
        const double v = values[i];
        const double want = kind == UnaryKind::kExp       ? std::exp(values[i])
                            : kind == UnaryKind::kTanh    ? std::tanh(v)
                            : kind == UnaryKind::kSigmoid ? sigmoid(v)
                            : kind == UnaryKind::kErf     ? std::erf(v)
                                                          : std::sin(v);
        if (std::isnan(want))
          EXPECT_TRUE(std::isnan(y.get(i)));
        else if (want > 1e38)
          EXPECT_EQ(y.get(i), inf);
        else
          EXPECT_NEAR(y.get(i), want, 1e-6);
      }
    }
    const UnaryParams positive{UnaryKind::kIsInf, 1, 0};
    run_kernel(table, &KernelTable::unary, {x.view()}, b.view(), &positive, threads);
    for (int i = 0; i < 8; ++i) EXPECT_EQ(b.get(i), values[i] == inf);
    const UnaryParams is_nan{UnaryKind::kIsNaN};
    run_kernel(table, &KernelTable::unary, {x.view()}, b.view(), &is_nan, threads);
    for (int i = 0; i < 8; ++i) EXPECT_EQ(b.get(i), i == 0);
  });
}

struct BinaryCase {
  BinaryKind kind;
  double (*f)(double, double);
  double low = -4, high = 4;
};

const BinaryCase kBinaryCases[] = {
    {BinaryKind::kAdd, [](double a, double b) { return a + b; }},
    {BinaryKind::kSub, [](double a, double b) { return a - b; }},
    {BinaryKind::kMul, [](double a, double b) { return a * b; }},
    {BinaryKind::kDiv, [](double a, double b) { return a / b; }, 1, 4},
    {BinaryKind::kPow, [](double a, double b) { return std::pow(a, b); }, 0.5, 3},
    {BinaryKind::kMin, [](double a, double b) { return std::min(a, b); }},
    {BinaryKind::kMax, [](double a, double b) { return std::max(a, b); }},
    {BinaryKind::kPRelu, [](double a, double b) { return a < 0 ? a * b : a; }},
    {BinaryKind::kSiluMul, [](double a, double b) { return a * sigmoid(a) * b; }},
    {BinaryKind::kMean, [](double a, double b) { return (a + b) / 2; }},
};

// Dims of an operand that broadcasts to `dims`: some extents 1, some leading ones missing.
std::vector<int64_t> broadcastable(std::vector<int64_t> dims) {
  for (int64_t& d : dims)
    if (random_int(0, 3) == 0) d = 1;
  const int64_t cut = dims.empty() ? 0 : random_int(-2, static_cast<int64_t>(dims.size()));
  if (cut > 0) dims.erase(dims.begin(), dims.begin() + cut);
  return dims;
}

TEST(Binary, matches_double_with_broadcasting) {
  for_each_isa([](const KernelTable& table, int threads) {
    for (const BinaryCase& c : kBinaryCases) {
      for (DType type : kReals) {
        const auto all = shapes();
        const auto dims = all[random_int(0, static_cast<int64_t>(all.size()) - 1)];
        StridedTensor a = StridedTensor::random_layout(type, broadcastable(dims)),
                      b = StridedTensor::random_layout(type, broadcastable(dims)),
                      y = StridedTensor::random_layout(type, dims);
        a.fill(c.low, c.high);
        b.fill(c.low, c.high);
        const BinaryParams p{c.kind};
        run_kernel(table, &KernelTable::binary, {a.view(), b.view()}, y.view(), &p, threads);
        for (int64_t i = 0; i < y.count(); ++i) {
          const double want = c.f(a.get(broadcast_index(a, dims, i)), b.get(broadcast_index(b, dims, i)));
          ASSERT_NEAR(y.get(i), want, 4 * rounding(type) * std::max(1.0, std::fabs(want))) << "kind " << int(c.kind);
        }
        ASSERT_TRUE(y.untouched_outside());
      }
    }
  });
}

TEST(Binary, integers_and_comparisons) {
  for_each_isa([](const KernelTable& table, int threads) {
    for (DType type : kIntegers) {
      const std::vector<int64_t> dims = {3, 171};
      StridedTensor a = StridedTensor::random_layout(type, dims), b = StridedTensor::random_layout(type, {171});
      StridedTensor y = StridedTensor::random_layout(type, dims), q = StridedTensor::random_layout(DType::kBool, dims);
      a.fill_integers(0, 11);
      b.fill_integers(1, 9);
      const auto check = [&](BinaryKind kind, StridedTensor& out, auto f) {
        const BinaryParams p{kind};
        const RunResult r = run_kernel(table, &KernelTable::binary, {a.view(), b.view()}, out.view(), &p, threads);
        ASSERT_EQ(r.fault.what, nullptr);
        for (int64_t i = 0; i < out.count(); ++i) {
          ASSERT_EQ(out.get(i), double(f(int64_t(a.get(i)), int64_t(b.get(broadcast_index(b, dims, i)))))) << int(kind);
        }
      };
      check(BinaryKind::kAdd, y, [](int64_t p, int64_t r) { return p + r; });
      check(BinaryKind::kMul, y, [](int64_t p, int64_t r) { return p * r; });
      check(BinaryKind::kDiv, y, [](int64_t p, int64_t r) { return p / r; });
      check(BinaryKind::kMod, y, [](int64_t p, int64_t r) { return p % r; });
      check(BinaryKind::kMin, y, [](int64_t p, int64_t r) { return std::min(p, r); });
      check(BinaryKind::kBitwiseXor, y, [](int64_t p, int64_t r) { return p ^ r; });
      check(BinaryKind::kShiftRight, y, [](int64_t p, int64_t r) { return r > 7 ? p >> r : p >> r; });
      check(BinaryKind::kLess, q, [](int64_t p, int64_t r) { return p < r; });
      check(BinaryKind::kGreaterOrEqual, q, [](int64_t p, int64_t r) { return p >= r; });
      check(BinaryKind::kEqual, q, [](int64_t p, int64_t r) { return p == r; });
    }
  });
}

TEST(Binary, integer_division_by_zero_is_reported) {
  for_each_isa([](const KernelTable& table, int threads) {
    StridedTensor a(DType::kI64, {3}), b(DType::kI64, {3}), y(DType::kI64, {3});
    a.fill_integers(5, 5);
    b.fill_integers(2, 2).set(1, 0);
    b.set(2, -1);
    *(a.view().as<int64_t>() + 2) = INT64_MIN;
    for (BinaryKind kind : {BinaryKind::kDiv, BinaryKind::kMod, BinaryKind::kFmod}) {
      const BinaryParams p{kind};
      EXPECT_NE(run_kernel(table, &KernelTable::binary, {a.view(), b.view()}, y.view(), &p, threads).fault.what,
                nullptr);
      EXPECT_EQ(y.get(1), 0);
    }
  });
}

TEST(Binary, takes_many_operands_over_one_of_them) {
  for_each_isa([](const KernelTable& table, int threads) {
    const std::vector<int64_t> dims = {4, 600};
    StridedTensor a(DType::kF16, dims), b(DType::kF16, {600}), c(DType::kF16, dims), d(DType::kF16, {4, 1});
    for (StridedTensor* t : {&a, &b, &c, &d}) t->fill();
    std::vector<double> want;
    for (int64_t i = 0; i < a.count(); ++i) want.push_back((a.get(i) + b.get(i % 600) + c.get(i) + d.get(i / 600)) / 4);
    const BinaryParams p{BinaryKind::kMean};
    run_kernel(table, &KernelTable::binary, {a.view(), b.view(), c.view(), d.view()}, c.view(), &p, threads);
    for (int64_t i = 0; i < a.count(); ++i) ASSERT_NEAR(c.get(i), want[i], 1e-3);
  });
}

TEST(Where, chooses_elements_of_every_width) {
  for_each_isa([](const KernelTable& table, int threads) {
    for (DType type : {DType::kU8, DType::kF16, DType::kF32, DType::kI64}) {
      for (const auto& dims : shapes()) {
        StridedTensor c = StridedTensor::random_layout(DType::kBool, broadcastable(dims)),
                      a = StridedTensor::random_layout(type, broadcastable(dims)),
                      b = StridedTensor::random_layout(type, broadcastable(dims)),
                      y = StridedTensor::random_layout(type, dims);
        c.fill_integers(0, 1);
        a.fill_integers(0, 90);
        b.fill_integers(0, 90);
        run_kernel(table, &KernelTable::where, {c.view(), a.view(), b.view()}, y.view(), nullptr, threads);
        for (int64_t i = 0; i < y.count(); ++i) {
          const StridedTensor& from = c.get(broadcast_index(c, dims, i)) != 0 ? a : b;
          ASSERT_EQ(y.get(i), from.get(broadcast_index(from, dims, i)));
        }
        ASSERT_TRUE(y.untouched_outside());
      }
    }
  });
}

TEST(Clip, holds_within_bounds) {
  for_each_isa([](const KernelTable& table, int threads) {
    for (DType type : {DType::kF32, DType::kF16, DType::kI8, DType::kI64}) {
      StridedTensor x = StridedTensor::random_layout(type, {3, 301}), y = StridedTensor::random_layout(type, {3, 301});
      StridedTensor low(type, {}), high(type, {});
      x.fill_integers(-9, 9);
      low.set(0, -3);
      high.set(0, 4);
      const double inf = std::numeric_limits<double>::infinity();
      const ClipParams none{-inf, inf}, some{-2, 2};
      run_kernel(table, &KernelTable::clip, {x.view(), low.view(), high.view()}, y.view(), &none, threads);
      for (int64_t i = 0; i < x.count(); ++i) ASSERT_EQ(y.get(i), std::min(4.0, std::max(-3.0, x.get(i))));
      run_kernel(table, &KernelTable::clip, {x.view(), View(), high.view()}, y.view(), &none, threads);
      for (int64_t i = 0; i < x.count(); ++i) ASSERT_EQ(y.get(i), std::min(4.0, x.get(i)));
      run_kernel(table, &KernelTable::clip, {x.view()}, y.view(), &some, threads);
      for (int64_t i = 0; i < x.count(); ++i) ASSERT_EQ(y.get(i), std::min(2.0, std::max(-2.0, x.get(i))));
    }
  });
}

TEST(Cast, between_all_whole_types) {
  std::vector<DType> types(std::begin(kReals), std::end(kReals));
  types.insert(types.end(), std::begin(kIntegers), std::end(kIntegers));
  for_each_isa([&](const KernelTable& table, int threads) {
    for (DType from : types) {
      for (DType to : types) {
        StridedTensor x = StridedTensor::random_layout(from, {2, 259}), y = StridedTensor::random_layout(to, {2, 259});
        if (dtype_is_float(from))
          x.fill(0, 100);
        else
          x.fill_integers(0, 100);
        run_kernel(table, &KernelTable::cast, {x.view()}, y.view(), nullptr, threads);
        for (int64_t i = 0; i < x.count(); ++i) {
          const double want = dtype_is_float(to) ? x.get(i) : std::trunc(x.get(i));
          ASSERT_NEAR(y.get(i), want, dtype_is_float(to) && to != DType::kF64 ? want * rounding(to) : 0)
              << dtype_name(from) << " to " << dtype_name(to);
        }
        ASSERT_TRUE(y.untouched_outside());
      }
    }
  });
}

TEST(Cast, packed_integers_and_small_floats_round_trip) {
  for_each_isa([](const KernelTable& table, int threads) {
    for (DType type : {DType::kU4, DType::kI4, DType::kU2, DType::kI2, DType::kF8E4M3FN, DType::kF8E4M3FNUZ,
                       DType::kF8E5M2, DType::kF8E5M2FNUZ, DType::kF4E2M1}) {
      const int bits = dtype_bits(type);
      const int64_t count = 5001 * 8 / bits - 1;  // an odd end
      Tensor packed = Tensor::allocate(type, {count}), back = Tensor::allocate(type, {count});
      for (int64_t i = 0; i < packed.bytes(); ++i)
        packed.view().data[i] = static_cast<std::byte>(random_int(0, 0x6f) & 0x77);
      StridedTensor x(DType::kF32, {count});
      run_kernel(table, &KernelTable::cast, {packed.view()}, x.view(), nullptr, threads);
      run_kernel(table, &KernelTable::cast, {x.view()}, back.view(), nullptr, threads);
      for (int64_t i = 0; i + 1 < packed.bytes(); ++i)
        ASSERT_EQ(packed.view().data[i], back.view().data[i]) << dtype_name(type);
    }
  });
}

}  // namespace
}  // namespace situ
