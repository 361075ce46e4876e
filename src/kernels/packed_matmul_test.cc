// packed_matmul with everything it fuses, many rows included, against the formula in double; and emulated ISAs against
// the one they are built on, to the bit.
#include "kernels/packed_layout.h"
#include "kernels/strided_test.h"

namespace situ {
namespace {

constexpr ZeroPoints kZeroPoints[] = {ZeroPoints::kMiddle, ZeroPoints::kIntegers, ZeroPoints::kFloats};

struct Case {
  int64_t m = 1, n = 1, k = 16;
  int bits = 4, block = 32;
  ZeroPoints zeros = ZeroPoints::kMiddle;
  bool half_scales = false;
  int level = 4;
  bool bias = false, residual = false, norm = false, gate = false;
  UnaryKind activation = UnaryKind::kSilu;
  DType type = DType::kF32;  // of x, y, bias, residual, norm
  bool strided = false;
  DigitTable table = DigitTable::kNone;
  bool ordered = false;  // the elements of x stand in another order than those of the weights, with gaps
};

View byte_view(const std::vector<uint8_t>& data) {
  View v;
  v.type = DType::kU8;
  v.rank = 1;
  v.dims[0] = static_cast<int64_t>(data.size());
  v.strides[0] = 1;
  v.data = reinterpret_cast<std::byte*>(const_cast<uint8_t*>(data.data()));
  return v;
}

PackedMatMulParams packed_params(const Case& t) {
  PackedMatMulParams p{t.k, t.n, t.bits, t.block, t.level, t.half_scales, t.zeros, t.activation, t.norm ? 1e-5f : 0.0f};
  p.table = t.table;
  p.high_first = t.table != DigitTable::kNone;
  return p;
}

// Random weights: packed, and what they mean.
struct Weights {
  std::vector<uint8_t> packed;
  std::vector<double> value;  // [n][k]

  explicit Weights(const Case& t) {
    const int64_t blocks = (t.k + t.block - 1) / t.block, zero_row = (blocks * t.bits + 7) / 8,
                  row = blocks * t.block * t.bits / 8;
    std::vector<uint8_t> q(static_cast<size_t>(t.n * row)), z(static_cast<size_t>(t.n * zero_row));
    for (auto* bytes : {&q, &z}) {
      for (uint8_t& byte : *bytes) byte = static_cast<uint8_t>(random_int(0, 255));
    }
    StridedTensor scales(t.half_scales ? DType::kF16 : DType::kF32, {t.n, blocks});
    scales.fill(0.001, 0.01);
    StridedTensor float_zeros(scales.view().type, {t.n, blocks});
    float_zeros.fill(0, 15);
    const auto stored = [&](double offset) {
      return t.half_scales ? half_to_float(half_bits(static_cast<float>(offset))) : offset;
    };
    auto digit = [&](const std::vector<uint8_t>& bytes, int64_t base, int64_t i) {
      return (bytes[static_cast<size_t>(base + i * t.bits / 8)] >> (i * t.bits % 8)) & ((1 << t.bits) - 1);
    };
    for (int64_t n = 0; n < t.n; ++n) {
      for (int64_t k = 0; k < t.k; ++k) {
        const int64_t block = n * blocks + k / t.block;
        const int zero = t.zeros == ZeroPoints::kIntegers ? digit(z, n * zero_row, k / t.block) : 1 << (t.bits - 1);
        const double offset = t.zeros == ZeroPoints::kFloats ? stored(scales.get(block) * float_zeros.get(block))
                                                             : zero * scales.get(block);
        if (t.table != DigitTable::kNone)
          value.push_back(digits_of(t.table)[digit(q, n * row, k ^ 1)] * scales.get(block));
        else
          value.push_back(digit(q, n * row, k) * scales.get(block) - offset);
      }
    }
    const PackedLayout layout = packed_layout(packed_params(t));
    packed.resize(static_cast<size_t>(layout.bytes()));
    const View in[] = {byte_view(q), scales.view(),
                       t.zeros == ZeroPoints::kIntegers ? byte_view(z)
                       : t.zeros == ZeroPoints::kFloats ? float_zeros.view()
                                                        : View{}},
               out = byte_view(packed);
    const PackNBitsParams params{packed_params(t), 0, layout.units()};
    KernelCall call;
    call.in = in;
    call.in_count = 3;
    call.out = &out;
    call.out_count = 1;
    call.params = &params;
    run_kernel(kernels(), &KernelTable::pack_nbits, call, 1);
  }
};

// Where k stands in a row of x: the other way round, but for every seventh, which is 0.
constexpr int64_t kGap = 7;
double element(const Case& t, const StridedTensor& x, int64_t m, int64_t k) {
  if (!t.ordered) return x.get(m * t.k + k);
  return k % kGap == 0 ? 0 : x.get(m * t.k + t.k - 1 - k);
}
View order_of(const Case& t, std::vector<int32_t>* order) {
  for (int64_t k = 0; k < t.k; ++k) order->push_back(k % kGap == 0 ? -1 : static_cast<int32_t>(t.k - 1 - k));
  View v;
  v.type = DType::kI32;
  v.rank = 1;
  v.dims[0] = t.k;
  v.strides[0] = 1;
  v.data = reinterpret_cast<std::byte*>(order->data());
  return v;
}

// A row as the product sees it: normalised, rounded. *step: the largest step of the rounding.
std::vector<double> row_of(const Case& t, const StridedTensor& x, const StridedTensor& norm, int64_t m, double* step) {
  std::vector<double> row;
  double squares = 0;
  for (int64_t k = 0; k < t.k; ++k) {
    row.push_back(element(t, x, m, k));
    squares += row.back() * row.back();
  }
  for (int64_t k = 0; t.norm && k < t.k; ++k)
    row[static_cast<size_t>(k)] *= norm.get(k) / std::sqrt(squares / static_cast<double>(t.k) + 1e-5f);
  *step = 0;
  for (size_t k = 0; t.level == 4 && k < row.size(); k += static_cast<size_t>(t.block)) {
    const size_t end = std::min(row.size(), k + static_cast<size_t>(t.block));
    float largest = 0;
    for (size_t i = k; i < end; ++i) largest = std::max(largest, std::fabs(static_cast<float>(row[i])));
    const float scale = largest / 127.0f, inverse = scale > 0 ? 1.0f / scale : 0.0f;
    for (size_t i = k; i < end; ++i) row[i] = std::nearbyint(static_cast<float>(row[i]) * inverse) * scale;
    *step = std::max(*step, static_cast<double>(scale));
  }
  return row;
}

struct Sum {
  double value = 0, error = 0;
};
// The allowed error: of float sums, and of two digits of a normalised row that are rounded the other way.
Sum dot(const Case& t, const std::vector<double>& row, double step, const Weights& w, int64_t n) {
  Sum sum;
  double size = 0, largest = 0;
  for (size_t k = 0; k < row.size(); ++k) {
    const double weight = w.value[static_cast<size_t>(n * t.k) + k];
    sum.value += row[k] * weight;
    size += std::fabs(row[k] * weight);
    largest = std::max(largest, std::fabs(weight));
  }
  sum.error = 4e-6 * size + 2e-5 + (t.norm ? 2 * step * largest : 0);
  return sum;
}

double activate(UnaryKind kind, double x) {
  if (kind == UnaryKind::kSilu) return x / (1 + std::exp(-x));
  return 0.5 * x * (1 + std::tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)));
}

void check(const Case& t, const std::vector<EmulatedTable>& emulated = emulated_tables()) {
  SCOPED_TRACE("m " + std::to_string(t.m) + " n " + std::to_string(t.n) + " k " + std::to_string(t.k) + " bits " +
               std::to_string(t.bits) + " block " + std::to_string(t.block) + " zeros " +
               std::to_string(static_cast<int>(t.zeros)) + (t.half_scales ? " half scales" : "") + " level " +
               std::to_string(t.level) + (t.bias ? " bias" : "") + (t.residual ? " residual" : "") +
               (t.norm ? " norm" : "") + (t.gate ? " gate" : "") + (t.strided ? " strided" : ""));
  auto tensor = [&](const std::vector<int64_t>& dims) {
    return t.strided ? StridedTensor::random_layout(t.type, dims) : StridedTensor(t.type, dims);
  };
  StridedTensor x = tensor({1, t.m, t.k}), y = tensor({1, t.m, t.n}), residual = tensor({1, t.m, t.n}),
                bias(t.type, {t.n}), norm(t.type, {t.k});
  x.fill();
  residual.fill();
  bias.fill();
  norm.fill(0.5, 1.5);
  const Weights w(t), g(t);
  std::vector<int32_t> order;
  const View in[] = {x.view(),
                     byte_view(w.packed),
                     t.bias ? bias.view() : View{},
                     t.residual ? residual.view() : View{},
                     t.norm ? norm.view() : View{},
                     t.gate ? byte_view(g.packed) : View{},
                     t.ordered ? order_of(t, &order) : View{}};
  const PackedMatMulParams params = packed_params(t);
  KernelCall call;
  call.in = in;
  call.in_count = 7;
  call.out = &y.view();
  call.out_count = 1;
  call.params = &params;
  std::vector<Sum> expected;
  for (int64_t m = 0; m < t.m; ++m) {
    double step = 0;
    const std::vector<double> row = row_of(t, x, norm, m, &step);
    for (int64_t n = 0; n < t.n; ++n) {
      Sum sum = dot(t, row, step, w, n);
      if (t.bias) sum.value += bias.get(n);
      if (t.gate) {
        const Sum gate = dot(t, row, step, g, n);
        const double factor = activate(t.activation, gate.value);
        sum = {factor * sum.value, (std::fabs(factor) + 1.2 * gate.error) * sum.error +
                                       (1.2 * gate.error + 1e-5 * std::fabs(gate.value)) * std::fabs(sum.value)};
      }
      if (t.residual) sum.value += residual.get(m * t.n + n);
      sum.error += rounding(t.type) * std::fabs(sum.value) +
                   1e-7;  // half a step of the smallest half-precision numbers, and more
      expected.push_back(sum);
    }
  }
  std::map<const KernelTable*, std::vector<double>> results;  // with one thread
  for_each_isa(
      [&](const KernelTable& table, int threads) {
        y.reset();
        run_kernel(table, &KernelTable::packed_matmul, call, threads);
        ASSERT_TRUE(y.untouched_outside());
        for (int64_t i = 0; i < t.m * t.n; ++i) {
          const Sum& sum = expected[static_cast<size_t>(i)];
          ASSERT_NEAR(y.get(i), sum.value, sum.error) << "m " << i / t.n << " n " << i % t.n;
          if (threads == 1) results[&table].push_back(y.get(i));
        }
      },
      emulated);
  const KernelTable* bytes = nullptr;  // that adds products of bytes: all that do make the same of floats
  for (const EmulatedTable& e : emulated) {
    if (t.level != 4 && t.table == DigitTable::kNone && bytes == nullptr)
      bytes = e.table;
    else
      ASSERT_EQ(results[e.table], results[bytes != nullptr ? bytes : e.base]) << e.table->isa;
  }
}

TEST(PackedMatMul, BlocksBitsAndZeros) {
  for (int bits : {4, 8}) {
    for (int block : {16, 32, 64, 128, 256}) {
      for (ZeroPoints zeros : kZeroPoints) {
        for (bool half : {false, true}) {
          check({.m = random_int(8, 40),
                 .n = random_int(1, 70),
                 .k = random_int(1, 600),
                 .bits = bits,
                 .block = block,
                 .zeros = zeros,
                 .half_scales = half});
          if (HasFatalFailure()) return;
        }
      }
    }
  }
}

// Around every number of rows at which a kernel changes its way: 6, 8, 16, 32, 256 and the rows that scratch holds.
TEST(PackedMatMul, RowCounts) {
  for (int64_t m :
       {1, 2, 3, 5, 6, 7, 8, 9, 15, 16, 17, 24, 31, 32, 33, 39, 40, 41, 48, 49, 63, 64, 65, 72, 100, 200, 257, 300}) {
    check({.m = m, .n = 49, .k = 96, .bits = m % 2 == 0 ? 4 : 8, .zeros = kZeroPoints[m % 3]});
    if (HasFatalFailure()) return;
  }
  for (int64_t k : {4096, 16384}) check({.m = 100, .n = 17, .k = k});
  check({.m = 20, .n = 5, .k = 65536, .block = 16});
}

TEST(PackedMatMul, Fusions) {
  const DType types[] = {DType::kF32, DType::kF32, DType::kF16, DType::kBF16};
  auto coin = [] { return random_int(0, 1) == 0; };
  for (int i = 0; i < 60; ++i) {
    check({.m = i % 4 == 0 ? random_int(1, 200) : random_int(1, 50),
           .n = random_int(1, 80),
           .k = random_int(1, 500),
           .bits = coin() ? 4 : 8,
           .block = 16 << random_int(0, 4),
           .zeros = kZeroPoints[i % 3],
           .half_scales = coin(),
           .level = i % 5 == 0 ? 0 : 4,
           .bias = coin(),
           .residual = coin(),
           .norm = coin(),
           .gate = coin(),
           .activation = coin() ? UnaryKind::kSilu : UnaryKind::kGeluTanh,
           .type = types[random_int(0, 3)],
           .strided = coin()});
    if (HasFatalFailure()) return;
  }
}

TEST(PackedMatMul, TablesOfDigits) {
  for (const DigitTable table : {DigitTable::kFp4, DigitTable::kNf4})
    for (const int64_t m : {1, 3, 9, 40})
      for (const int block : {16, 64, 256}) {
        check({.m = m,
               .n = random_int(1, 70),
               .k = block * random_int(1, 4),
               .block = block,
               .zeros = ZeroPoints::kTable,
               .half_scales = m == 3,
               .level = 0,
               .bias = true,
               .gate = m == 9,
               .strided = m == 40,
               .table = table});
        if (HasFatalFailure()) return;
      }
}

TEST(PackedMatMul, ElementsInAnotherOrder) {
  for (const int64_t m : {1, 7, 20})
    for (const int level : {0, 4})
      for (const DType type : {DType::kF32, DType::kF16}) {
        check({.m = m,
               .n = 33,
               .k = 96,
               .bits = m == 7 ? 8 : 4,
               .zeros = kZeroPoints[m % 3],
               .level = level,
               .residual = true,
               .type = type,
               .strided = m == 20,
               .ordered = true});
        if (HasFatalFailure()) return;
      }
}

// A row that holds a number which is none gives none, in every column; the other rows are what they are without it.
void check_not_a_number(Case t, int64_t at) {
  SCOPED_TRACE("m " + std::to_string(t.m) + " bits " + std::to_string(t.bits) + " block " + std::to_string(t.block) +
               " zeros " + std::to_string(static_cast<int>(t.zeros)) + " level " + std::to_string(t.level) +
               (t.norm ? " norm" : "") + (t.gate ? " gate" : "") + ", NaN at " + std::to_string(at));
  StridedTensor x(t.type, {t.m, t.k}), y(t.type, {t.m, t.n}), without(t.type, {t.m, t.n}), norm(t.type, {t.k});
  x.fill();
  norm.fill(0.5, 1.5);
  const Weights w(t), g(t);
  const View in[] = {x.view(), byte_view(w.packed),           View{},
                     View{},   t.norm ? norm.view() : View{}, t.gate ? byte_view(g.packed) : View{}};
  const PackedMatMulParams params = packed_params(t);
  KernelCall call;
  call.in = in;
  call.in_count = 6;
  call.out_count = 1;
  call.params = &params;
  const int64_t row = t.m / 2;
  const double before = x.get(row * t.k + at);
  for_each_isa(
      [&](const KernelTable& table, int threads) {
        call.out = &without.view();
        run_kernel(table, &KernelTable::packed_matmul, call, threads);
        x.set(row * t.k + at, std::nan(""));
        call.out = &y.view();
        run_kernel(table, &KernelTable::packed_matmul, call, threads);
        x.set(row * t.k + at, before);
        for (int64_t i = 0; i < t.m * t.n; ++i)
          ASSERT_TRUE(i / t.n == row ? std::isnan(y.get(i)) : y.get(i) == without.get(i))
              << "m " << i / t.n << " n " << i % t.n << ": " << y.get(i) << " for " << without.get(i);
      },
      emulated_tables());
}

TEST(PackedMatMul, ANumberThatIsNoneGivesNone) {
  for (const int64_t m : {1, 5, 7, 40})
    for (const int bits : {4, 8})
      for (const ZeroPoints zeros : kZeroPoints)
        for (const int64_t at : {0, 77, 630, 649}) {  // of the blocks that are rounded together, and the last ones
          check_not_a_number({.m = m, .n = 49, .k = 650, .bits = bits, .zeros = zeros}, at);
          if (HasFatalFailure()) return;
        }
  for (const int block : {16, 128, 256})
    for (const int level : {4, 0})
      for (const DType type : {DType::kF32, DType::kF16, DType::kBF16}) {
        check_not_a_number({.m = 3, .n = 33, .k = 300, .block = block, .level = level, .type = type}, 290);
        check_not_a_number(
            {.m = 9, .n = 33, .k = 300, .block = block, .level = level, .norm = true, .gate = true, .type = type}, 5);
        if (HasFatalFailure()) return;
      }
}

// Floats lose no more than floats do, whatever way they are multiplied: an error of a float of the block's largest
// magnitude in each element, from numbers that are nearly too small to the largest ones.
TEST(PackedMatMul, FloatsStayFloats) {
  for (const double size : {1e-34, 1e-20, 1.0, 1e20}) {
    for (const int64_t m : {1, 2, 5, 33}) {
      for (const int bits : {4, 8}) {
        const Case t{.m = m, .n = 33, .k = 250, .bits = bits, .block = 64, .level = 0};
        const Weights w(t);
        StridedTensor x(DType::kF32, {m, t.k}), y(DType::kF32, {m, t.n});
        for (int64_t i = 0; i < m * t.k; ++i)
          x.set(i,
                size * std::pow(10, -static_cast<double>(random_int(0, 6))) * static_cast<double>(random_int(-9, 9)));
        const PackedMatMulParams params = packed_params(t);
        for_each_isa(
            [&](const KernelTable& table, int threads) {
              run_kernel(table, &KernelTable::packed_matmul, {x.view(), byte_view(w.packed)}, y.view(), &params,
                         threads);
              for (int64_t i = 0; i < m * t.n; ++i) {
                double sum = 0, weights = 0;
                for (int64_t k = 0; k < t.k; ++k) {
                  const double weight = w.value[static_cast<size_t>(i % t.n * t.k + k)];
                  sum += x.get(i / t.n * t.k + k) * weight;
                  weights += std::fabs(weight);
                }
                // Of 9 * size, with the sums' own roundings; and what is left of a plane beside the smallest floats.
                ASSERT_NEAR(y.get(i), sum, (9 * size * 0x1p-22 + 127 * 0x1p-126) * weights)
                    << table.isa << " m " << m << " bits " << bits;
              }
            },
            emulated_tables());
        if (HasFatalFailure()) return;
      }
    }
  }
}

// Each output of packed_projections is what packed_matmul gives for its weights, to the bit.
TEST(PackedProjections, EqualTheirProducts) {
  for (int i = 0; i < 40; ++i) {
    Case t{.m = i % 3 == 0 ? random_int(1, 6) : random_int(7, 150),
           .k = random_int(1, 500),
           .bits = random_int(0, 1) == 0 ? 4 : 8,
           .block = 16 << random_int(0, 4),
           .zeros = kZeroPoints[random_int(0, 2)],
           .level = i % 4 == 0 ? 0 : 4,
           .norm = random_int(0, 1) == 0};
    StridedTensor x = StridedTensor::random_layout(DType::kF32, {1, t.m, t.k}), norm(DType::kF32, {t.k});
    x.fill();
    norm.fill(0.5, 1.5);
    const int count = static_cast<int>(random_int(1, kMaxProjections));
    PackedProjectionsParams params{};
    params.count = count;
    std::vector<Case> cases;
    std::vector<Weights> weights;
    std::vector<StridedTensor> outputs, biases;
    std::vector<View> in{x.view(), t.norm ? norm.view() : View{}}, out;
    for (int j = 0; j < count; ++j) {
      t.n = random_int(1, 90);
      t.half_scales = random_int(0, 1) == 0;
      t.bias = random_int(0, 1) == 0;
      cases.push_back(t);
      weights.emplace_back(t);
      outputs.push_back(StridedTensor::random_layout(j % 2 == 0 ? DType::kF32 : DType::kF16, {1, t.m, t.n}));
      biases.emplace_back(DType::kF32, std::vector<int64_t>{t.n});
      biases.back().fill();
      params.n[j] = t.n;
      params.half_scales[j] = t.half_scales;
    }
    params.shared = packed_params(t);
    for (size_t j = 0; j < cases.size(); ++j) {
      in.push_back(byte_view(weights[j].packed));
      in.push_back(cases[j].bias ? biases[j].view() : View{});
      out.push_back(outputs[j].view());
    }
    KernelCall call;
    call.in = in.data();
    call.in_count = static_cast<int>(in.size());
    call.out = out.data();
    call.out_count = count;
    call.params = &params;
    for_each_isa(
        [&](const KernelTable& table, int threads) {
          for (StridedTensor& y : outputs) y.reset();
          run_kernel(table, &KernelTable::packed_projections, call, threads);
          for (size_t j = 0; j < cases.size(); ++j) {
            ASSERT_TRUE(outputs[j].untouched_outside());
            StridedTensor alone(outputs[j].view().type, {1, cases[j].m, cases[j].n});
            const View one_in[] = {x.view(), byte_view(weights[j].packed), cases[j].bias ? biases[j].view() : View{},
                                   View{}, t.norm ? norm.view() : View{}};
            const PackedMatMulParams one = packed_params(cases[j]);
            KernelCall single;
            single.in = one_in;
            single.in_count = 5;
            single.out = &alone.view();
            single.out_count = 1;
            single.params = &one;
            run_kernel(table, &KernelTable::packed_matmul, single, threads);
            for (int64_t e = 0; e < cases[j].m * cases[j].n; ++e)
              ASSERT_EQ(outputs[j].get(e), alone.get(e))
                  << "product " << j << " of " << count << " element " << e << " m " << cases[j].m;
          }
        },
        emulated_tables());
    if (HasFatalFailure()) return;
  }
}

// The machine code of ISAs that this CPU does not have.
TEST(PackedMatMul, TrappedInstructions) {
  if (trapped_tables().empty()) GTEST_SKIP() << "no table of another ISA can be run on this CPU";
  for (int bits : {4, 8}) {
    for (int block : {16, 32, 64, 128, 256}) {
      for (ZeroPoints zeros : kZeroPoints) {
        check({.m = random_int(8, 50),
               .n = random_int(1, 40),
               .k = block + random_int(1, 40),
               .bits = bits,
               .block = block,
               .zeros = zeros,
               .gate = block == 64},
              trapped_tables());
        if (HasFatalFailure()) return;
      }
    }
  }
  check({.m = 70, .n = 32, .k = 128}, trapped_tables());
}

}  // namespace
}  // namespace situ
