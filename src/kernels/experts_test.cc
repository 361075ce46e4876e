// Products of experts on weights as a file has them and on packed ones, against the formula in double; and a row's
// bits, which may depend neither on the rows beside it nor on threads.
#include <cstring>

#include "kernels/packed_layout.h"
#include "kernels/strided_test.h"

namespace situ {
namespace {

constexpr int64_t kExperts = 5;

struct Case {
  int64_t rows = 1, choices = 2, n = 32, k = 32;
  int bits = 0;       // 0: floats
  int64_t block = 0;  // 0: a scale for each column
  bool zeros = false, bias = true, own_rows = false, transposed = true, strided = false;
  int level = 0;
  DType weights = DType::kF32;
};

View bytes_view(std::vector<uint8_t>& data) {
  View v;
  v.type = DType::kU8;
  v.rank = 1;
  v.dims[0] = static_cast<int64_t>(data.size());
  v.strides[0] = 1;
  v.data = reinterpret_cast<std::byte*>(data.data());
  return v;
}

// Weights of all experts, as a file has them and by number.
struct Weights {
  StridedTensor floats, scales;
  std::vector<uint8_t> digits, zeros;
  std::vector<double> value;  // [experts][n][k]

  explicit Weights(const Case& t)
      : floats(t.weights, t.bits > 0     ? std::vector<int64_t>{1}
                          : t.transposed ? std::vector<int64_t>{kExperts, t.n, t.k}
                                         : std::vector<int64_t>{kExperts, t.k, t.n}),
        scales(DType::kF32, {kExperts, t.n, t.block > 0 ? (t.k + t.block - 1) / t.block : 1}) {
    floats.fill();
    scales.fill(0.01, 0.1);
    if (t.bits == 0) {
      for (int64_t e = 0; e < kExperts; ++e)
        for (int64_t n = 0; n < t.n; ++n)
          for (int64_t k = 0; k < t.k; ++k) value.push_back(t.transposed ? floats.at({e, n, k}) : floats.at({e, k, n}));
      return;
    }
    const ExpertMatMulParams p{kExperts, t.k, t.n, true, t.bits, static_cast<int32_t>(t.block)};
    digits.resize(static_cast<size_t>(kExperts * t.n * p.column_bytes()));
    zeros.resize(static_cast<size_t>(kExperts * p.zero_bytes()));
    for (auto* list : {&digits, &zeros})
      for (uint8_t& b : *list) b = static_cast<uint8_t>(random_int(0, 255));
    const auto digit = [&](const std::vector<uint8_t>& from, int64_t base, int64_t i) {
      return from[static_cast<size_t>(base + i * t.bits / 8)] >> (i * t.bits % 8) & ((1 << t.bits) - 1);
    };
    for (int64_t e = 0; e < kExperts; ++e)
      for (int64_t n = 0; n < t.n; ++n)
        for (int64_t k = 0; k < t.k; ++k) {
          const int64_t b = t.block > 0 ? k / t.block : 0;
          int zero = 1 << (t.bits - 1);
          if (t.zeros)
            zero = t.block > 0 ? digit(zeros, e * p.zero_bytes() + n * ((p.blocks() * t.bits + 7) / 8), b)
                               : digit(zeros, e * p.zero_bytes(), n);
          value.push_back((digit(digits, (e * t.n + n) * p.column_bytes(), k) - zero) * scales.at({e, n, b}));
        }
  }
};

struct Problem {
  Case t;
  StridedTensor x, index, bias;

  explicit Problem(const Case& c)
      : t(c),
        x(layout(c, c.own_rows ? std::vector<int64_t>{c.rows, c.choices, c.k} : std::vector<int64_t>{c.rows, c.k})),
        index(DType::kI64, {c.rows, c.choices}),
        bias(DType::kF32, {kExperts, c.n}) {
    x.fill();
    index.fill_integers(0, kExperts - 1);
    bias.fill();
  }
  static StridedTensor layout(const Case& c, const std::vector<int64_t>& dims) {
    return c.strided ? StridedTensor::random_layout(DType::kF32, dims) : StridedTensor(DType::kF32, dims);
  }

  double expected(const Weights& w, int64_t r, int64_t j, int64_t n, double* size) const {
    const int64_t e = static_cast<int64_t>(index.at({r, j}));
    double sum = t.bias ? bias.at({e, n}) : 0;
    *size = std::fabs(sum);
    for (int64_t k = 0; k < t.k; ++k) {
      const double product =
          (t.own_rows ? x.at({r, j, k}) : x.at({r, k})) * w.value[static_cast<size_t>((e * t.n + n) * t.k + k)];
      sum += product;
      *size += std::fabs(product);
    }
    return sum;
  }

  // Rows [first, first + count) of y: tokens, pieces of prompts, or rows of an encoder.
  enum class Kind { kTokens, kPieces, kEncoded };
  std::vector<float> run(const KernelTable& table, int threads, KernelFn KernelTable::* kernel, const void* params,
                         const std::vector<View>& weights, int64_t first, int64_t count, Kind kind) const {
    StridedTensor y = layout(t, {count, t.choices, t.n});
    std::vector<View> in{x.view(), index.view(), t.bias ? bias.view() : View{}};
    for (size_t i = 0; i < 2; ++i) {
      in[i].data += first * in[i].strides[0] * dtype_bytes(in[i].type);
      in[i].dims[0] = count;
    }
    in.insert(in.end(), weights.begin(), weights.end());
    KernelCall call;
    call.in = in.data();
    call.in_count = static_cast<int>(in.size());
    call.out = &y.view();
    call.out_count = 1;
    call.params = params;
    call.prompt_rows = kind == Kind::kPieces ? count : 0;
    call.encodes = kind == Kind::kEncoded;
    run_kernel(table, kernel, call, threads);
    EXPECT_TRUE(y.untouched_outside());
    std::vector<float> all;
    for (int64_t i = 0; i < y.count(); ++i) all.push_back(static_cast<float>(y.get(i)));
    return all;
  }

  void check(KernelFn KernelTable::* kernel, const void* params, const std::vector<View>& weights, const Weights& w,
             double tolerance) const {
    std::vector<double> want, sizes;
    for (int64_t r = 0; r < t.rows; ++r)
      for (int64_t j = 0; j < t.choices; ++j)
        for (int64_t n = 0; n < t.n; ++n) {
          sizes.push_back(0);
          want.push_back(expected(w, r, j, n, &sizes.back()));
        }
    const auto body = [&](const KernelTable& table, int threads) {
      for (const Kind kind : {Kind::kTokens, Kind::kPieces, Kind::kEncoded}) {
        const std::vector<float> y = run(table, threads, kernel, params, weights, 0, t.rows, kind);
        for (size_t i = 0; i < y.size(); ++i)
          ASSERT_NEAR(y[i], want[i], tolerance * (sizes[i] + 1)) << table.isa << " element " << i;
        const int64_t row = random_int(0, t.rows - 1);
        const std::vector<float> alone = run(table, 1, kernel, params, weights, row, 1, kind);
        ASSERT_EQ(0, std::memcmp(alone.data(), y.data() + row * t.choices * t.n, alone.size() * sizeof(float)))
            << table.isa << " row " << row << " of " << t.rows << " alone, kind " << static_cast<int>(kind);
      }
    };
    if (kernel == &KernelTable::expert_matmul)
      for_each_isa(body);
    else  // what ISAs with products of bytes and with tiles have of their own
      for_each_isa(body, emulated_tables());
  }
};

void check_as_stored(const Case& t) {
  SCOPED_TRACE("bits " + std::to_string(t.bits) + " block " + std::to_string(t.block));
  Weights w(t);
  const Problem problem(t);
  const ExpertMatMulParams params{kExperts, t.k, t.n, t.transposed, t.bits, static_cast<int32_t>(t.block)};
  std::vector<View> in{t.bits > 0 ? bytes_view(w.digits) : w.floats.view()};
  if (t.bits > 0) in.push_back(w.scales.view());
  if (t.zeros) in.push_back(bytes_view(w.zeros));
  problem.check(&KernelTable::expert_matmul, &params, in, w, 1e-6);
}

TEST(Experts, WeightsAsStored) {
  check_as_stored({.rows = 1, .choices = 1, .n = 3, .k = 5});
  check_as_stored({.rows = 9, .n = 17, .k = 33, .own_rows = true, .strided = true});
  check_as_stored({.rows = 7, .n = 20, .k = 19, .transposed = false});
  check_as_stored({.rows = 7, .n = 20, .k = 19, .bias = false, .weights = DType::kF16});
  for (const int bits : {2, 4, 8}) {
    check_as_stored({.rows = 6, .n = 10, .k = 48, .bits = bits, .block = 16, .zeros = true});
    check_as_stored({.rows = 6, .n = 10, .k = 48, .bits = bits, .zeros = true});
    check_as_stored({.rows = 6, .n = 9, .k = 40, .bits = bits, .block = 32});
  }
}

void check_packed(const Case& t, bool half_scales = false) {
  SCOPED_TRACE("rows " + std::to_string(t.rows) + " bits " + std::to_string(t.bits) + " level " +
               std::to_string(t.level));
  Weights w(t);
  const Problem problem(t);
  PackedMatMulParams one{t.k,
                         t.n,
                         t.bits,
                         static_cast<int32_t>(t.block),
                         t.level,
                         half_scales,
                         t.zeros ? ZeroPoints::kIntegers : ZeroPoints::kMiddle};
  PackedMatMulParams all = one;
  all.n *= kExperts;
  const PackedLayout layout = packed_layout(all);
  std::vector<uint8_t> packed(static_cast<size_t>(layout.bytes()));
  const View from[] = {bytes_view(w.digits), w.scales.view(), t.zeros ? bytes_view(w.zeros) : View{}},
             to = bytes_view(packed);
  const PackNBitsParams params{all, 0, layout.units()};
  KernelCall call;
  call.in = from;
  call.in_count = 3;
  call.out = &to;
  call.out_count = 1;
  call.params = &params;
  run_kernel(kernels(), &KernelTable::pack_nbits, call, 1);
  const PackedExpertsParams experts{kExperts, one};
  problem.check(&KernelTable::packed_experts, &experts, {to}, w, t.level == 4 ? 6e-3 : 2e-6);
}

TEST(Experts, PackedDigits) {
  for (const int level : {0, 4})
    for (const int64_t rows : {1, 30}) {
      check_packed({.rows = rows, .n = 64, .k = 96, .bits = 4, .block = 32, .level = level});
      check_packed({.rows = rows,
                    .choices = 3,
                    .n = 32,
                    .k = 80,
                    .bits = 8,
                    .block = 16,
                    .zeros = true,
                    .own_rows = true,
                    .strided = true,
                    .level = level});
    }
  check_packed(
      {.rows = 120, .choices = 3, .n = 32, .k = 64, .bits = 4, .block = 64, .zeros = true, .bias = false, .level = 4});
}

void check_dense(const Case& t) {
  SCOPED_TRACE("rows " + std::to_string(t.rows) + " " + dtype_name(t.weights));
  Weights w(t);
  const Problem problem(t);
  const DenseMatMulParams all{t.k, t.n * kExperts};
  View from = w.floats.view(), to;
  from.rank = 2;  // [experts * N, K], its columns first
  from.dims[0] = t.k;
  from.dims[1] = kExperts * t.n;
  from.strides[0] = 1;
  from.strides[1] = t.k;
  std::vector<std::byte> packed(static_cast<size_t>(all.packed_count() * dtype_bytes(t.weights)));
  to.type = t.weights;
  to.rank = 1;
  to.dims[0] = all.packed_count();
  to.strides[0] = 1;
  to.data = packed.data();
  const PackDenseParams params{all, 0, t.k, 0, all.n / kDensePanelColumns};
  KernelCall call;
  call.in = &from;
  call.in_count = 1;
  call.out = &to;
  call.out_count = 1;
  call.params = &params;
  run_kernel(kernels(), &KernelTable::pack_dense, call, 1);
  const DenseExpertsParams experts{kExperts, {t.k, t.n}};
  problem.check(&KernelTable::dense_experts, &experts, {to}, w, 2e-6);
}

TEST(Experts, PackedFloats) {
  for (const int64_t rows : {1, 40}) {
    check_dense({.rows = rows, .n = 64, .k = 70});
    check_dense({.rows = rows,
                 .choices = 1,
                 .n = 32,
                 .k = 300,
                 .bias = false,
                 .own_rows = true,
                 .strided = true,
                 .weights = DType::kF16});
  }
}

TEST(Experts, OutOfRange) {
  Case t{.rows = 3, .n = 4, .k = 8};
  Weights w(t);
  Problem problem(t);
  problem.index.set(3, kExperts);
  const ExpertMatMulParams params{kExperts, t.k, t.n, true, 0, 0};
  const View in[] = {problem.x.view(), problem.index.view(), problem.bias.view(), w.floats.view()};
  StridedTensor y(DType::kF32, {t.rows, t.choices, t.n});
  const RunResult result = run_kernel(kernels(), &KernelTable::expert_matmul, {in, in + 4}, {y.view()}, &params, 2);
  ASSERT_NE(result.fault.what, nullptr);
  EXPECT_EQ(result.fault.value, kExperts);
}

}  // namespace
}  // namespace situ
