// matmul_nbits, and packed_matmul after pack_nbits, against dequantised weights in double; the int8 mode against the
// same with activations rounded.
#include "kernels/packed_layout.h"
#include "kernels/strided_test.h"

namespace situ {
namespace {

enum class Zeros { kNone, kPacked, kFloat };

struct Case {
  int64_t m = 1, n = 1, k = 16;
  int bits = 4, block = 32;
  Zeros zeros = Zeros::kNone;
  int accuracy_level = 0;
  DType type = DType::kF32;  // of a, y, bias
  DType scales = DType::kF32;
  bool bias = false;
  bool strided = false;
};

// The weights of one case and what they mean.
struct Weights {
  std::vector<uint8_t> q, zeros;
  std::vector<double> value;  // [n][k]
};

Weights make_weights(const Case& t, StridedTensor& scales, StridedTensor& float_zeros) {
  const int64_t blocks = (t.k + t.block - 1) / t.block, row = blocks * t.block * t.bits / 8;
  const int64_t zero_row = (blocks * t.bits + 7) / 8;
  Weights w;
  for (int64_t i = 0; i < t.n * row; ++i) w.q.push_back(static_cast<uint8_t>(random_int(0, 255)));
  for (int64_t i = 0; i < t.n * zero_row; ++i) w.zeros.push_back(static_cast<uint8_t>(random_int(0, 255)));
  auto digit = [&](const std::vector<uint8_t>& bytes, int64_t base, int64_t i) {
    const int64_t bit = i * t.bits;
    return (bytes[static_cast<size_t>(base + bit / 8)] >> (bit % 8)) & ((1 << t.bits) - 1);
  };
  for (int64_t n = 0; n < t.n; ++n) {
    for (int64_t k = 0; k < t.k; ++k) {
      const int64_t b = k / t.block;
      double zero = 1 << (t.bits - 1);
      if (t.zeros == Zeros::kPacked) zero = digit(w.zeros, n * zero_row, b);
      if (t.zeros == Zeros::kFloat) zero = float_zeros.get(n * blocks + b);
      w.value.push_back((digit(w.q, n * row, k) - zero) * scales.get(n * blocks + b));
    }
  }
  return w;
}

// Row of activations as the int8 mode sees them.
std::vector<double> rounded_row(const StridedTensor& a, int64_t m, const Case& t) {
  std::vector<double> x;
  for (int64_t k = 0; k < t.k; ++k) x.push_back(a.get(m * t.k + k));
  for (int64_t k = 0; k < t.k; k += t.block) {
    const int64_t end = std::min<int64_t>(t.k, k + t.block);
    float amax = 0;
    for (int64_t i = k; i < end; ++i) amax = std::max(amax, static_cast<float>(std::fabs(x[static_cast<size_t>(i)])));
    const float scale = amax / 127.0f, inverse = scale > 0 ? 1.0f / scale : 0.0f;
    for (int64_t i = k; i < end; ++i) {
      double& v = x[static_cast<size_t>(i)];
      const float scaled = static_cast<float>(v) * inverse;  // rounded to float before it is rounded to an integer
      v = std::nearbyint(scaled) * scale;
    }
  }
  return x;
}

View bytes(const std::vector<uint8_t>& data) {
  View v;
  v.type = DType::kU8;
  v.rank = 1;
  v.dims[0] = static_cast<int64_t>(data.size());
  v.strides[0] = 1;
  v.data = reinterpret_cast<std::byte*>(const_cast<uint8_t*>(data.data()));
  return v;
}

// Digits of a table, and groups in any order: the definition.
TEST(MatMulNBits, TablesAndGroups) {
  constexpr int64_t kRows = 3, kColumns = 5, kDepth = 40, kBlocks = 3;
  for (const bool table : {false, true}) {
    StridedTensor a(DType::kF32, {kRows, kDepth}), y(DType::kF32, {kRows, kColumns}),
        scales(DType::kF32, {kColumns, kBlocks}), groups(DType::kI32, {kDepth});
    a.fill();
    scales.fill(0.01, 0.1);
    groups.fill_integers(0, kBlocks - 1);
    std::vector<uint8_t> q(kColumns * kBlocks * 8);
    for (uint8_t& byte : q) byte = static_cast<uint8_t>(random_int(0, 255));
    const View in[5] = {a.view(), bytes(q), scales.view(), View{}, table ? View{} : groups.view()};
    MatMulNBitsParams params{kDepth, kColumns, 4, 16, 4, false};
    params.table = table ? DigitTable::kNf4 : DigitTable::kNone;
    params.high_first = table;
    KernelCall call;
    call.in = in;
    call.in_count = 5;
    call.out = &y.view();
    call.out_count = 1;
    call.params = &params;
    for_each_isa([&](const KernelTable& kernels, int threads) {
      run_kernel(kernels, &KernelTable::matmul_nbits, call, threads);
      for (int64_t i = 0; i < kRows * kColumns; ++i) {
        const int64_t n = i % kColumns;
        double sum = 0;
        for (int64_t k = 0; k < kDepth; ++k) {
          const int64_t at = n * kBlocks * 16 + (table ? k ^ 1 : k),
                        b = table ? k / 16 : static_cast<int64_t>(groups.get(k));
          const int digit = q[static_cast<size_t>(at / 2)] >> (at % 2 * 4) & 15;
          sum +=
              a.get(i / kColumns * kDepth + k) * (table ? kNf4Digits[digit] : digit - 8) * scales.get(n * kBlocks + b);
        }
        ASSERT_NEAR(y.get(i), sum, 1e-5);
      }
    });
  }
}

void check(const Case& t) {
  SCOPED_TRACE("m " + std::to_string(t.m) + " n " + std::to_string(t.n) + " k " + std::to_string(t.k) + " bits " +
               std::to_string(t.bits) + " block " + std::to_string(t.block) + " zeros " +
               std::to_string(static_cast<int>(t.zeros)) + " level " + std::to_string(t.accuracy_level));
  const int64_t blocks = (t.k + t.block - 1) / t.block;
  StridedTensor scales(t.scales, {t.n, blocks}), float_zeros(t.scales, {t.n, blocks}), bias(t.type, {t.n});
  scales.fill(0.01, 0.1);
  float_zeros.fill(0, 10);
  bias.fill();
  const Weights w = make_weights(t, scales, float_zeros);
  StridedTensor a =
      t.strided ? StridedTensor::random_layout(t.type, {1, t.m, t.k}) : StridedTensor(t.type, {1, t.m, t.k});
  StridedTensor y =
      t.strided ? StridedTensor::random_layout(t.type, {1, t.m, t.n}) : StridedTensor(t.type, {1, t.m, t.n});
  a.fill();
  View in[6] = {a.view(), bytes(w.q), scales.view(), View{}, View{}, t.bias ? bias.view() : View{}};
  if (t.zeros == Zeros::kPacked) in[3] = bytes(w.zeros);
  if (t.zeros == Zeros::kFloat) in[3] = float_zeros.view();
  MatMulNBitsParams params{t.k, t.n, t.bits, t.block, t.accuracy_level, t.zeros == Zeros::kFloat};
  KernelCall call;
  call.in = in;
  call.in_count = 6;
  call.out = &y.view();
  call.out_count = 1;
  call.params = &params;
  const bool int8 = t.accuracy_level == 4 && (t.bits != 2 || (t.block >= 32 && t.block <= 128));
  auto verify = [&](const char* what) {
    ASSERT_TRUE(y.untouched_outside()) << what;
    for (int64_t m = 0; m < t.m; ++m) {
      std::vector<double> x;
      if (int8)
        x = rounded_row(a, m, t);
      else
        for (int64_t k = 0; k < t.k; ++k) x.push_back(a.get(m * t.k + k));
      for (int64_t n = 0; n < t.n; ++n) {
        double sum = 0, size = 0;
        for (int64_t k = 0; k < t.k; ++k) {
          const double p = x[static_cast<size_t>(k)] * w.value[static_cast<size_t>(n * t.k + k)];
          sum += p;
          size += std::fabs(p);
        }
        if (t.bias) sum += bias.get(n);
        ASSERT_NEAR(y.get(m * t.n + n), sum, 4e-6 * size + rounding(t.type) * std::fabs(sum) + 2e-5)
            << what << " m " << m << " n " << n;
      }
    }
  };
  for_each_isa(
      [&](const KernelTable& table, int threads) {
        if (!std::any_of(emulated_tables().begin(), emulated_tables().end(),
                         [&](const EmulatedTable& e) { return e.table == &table; })) {
          y.reset();
          run_kernel(table, &KernelTable::matmul_nbits, call, threads);
          verify("as stored");
          // A row alone has the same sums.
          StridedTensor one(t.type, {1, 1, t.n});
          View rows[6];
          std::copy(in, in + 6, rows);
          rows[0].data += (t.m - 1) * rows[0].strides[1] * dtype_bytes(t.type);
          rows[0].dims[1] = 1;
          KernelCall alone = call;
          alone.in = rows;
          alone.out = &one.view();
          if (t.m > 0) run_kernel(table, &KernelTable::matmul_nbits, alone, threads);
          for (int64_t n = 0; t.m > 0 && n < t.n; ++n)
            ASSERT_EQ(one.get(n), y.get((t.m - 1) * t.n + n)) << table.isa << " n " << n << " of " << t.m << " rows";
        }
        if (t.bits == 2 || t.k > 65536) return;
        const PackedMatMulParams packing{t.k,
                                         t.n,
                                         t.bits,
                                         t.block,
                                         t.accuracy_level,
                                         t.scales == DType::kF16 && t.zeros != Zeros::kFloat,
                                         static_cast<ZeroPoints>(t.zeros)};
        const PackedLayout layout(t.n, t.k, t.bits, t.block, packing.half_scales, packing.zeros);
        StridedTensor packed(DType::kU8, {layout.bytes()});
        KernelCall pack = call, product = call;
        pack.in = in + 1;
        pack.in_count = 3;
        pack.out = &packed.view();
        product.params = &packing;
        // In two parts, as a large matrix is packed.
        for (const auto& [first, last] :
             {std::pair<int64_t, int64_t>{0, layout.units() / 2}, {layout.units() / 2, layout.units()}}) {
          const PackNBitsParams part{packing, first, last};
          pack.params = &part;
          run_kernel(table, &KernelTable::pack_nbits, pack, threads);
        }
        ASSERT_TRUE(packed.untouched_outside());
        y.reset();
        const View operands[] = {a.view(), packed.view(), in[5]};
        product.in = operands;
        product.in_count = 3;
        run_kernel(table, &KernelTable::packed_matmul, product, threads);
        verify("packed");
      },
      emulated_tables());
}

TEST(MatMulNBits, BitsBlocksAndZeros) {
  for (int bits : {2, 4, 8}) {
    for (int block : {16, 32, 64, 128, 256}) {
      for (Zeros zeros : {Zeros::kNone, Zeros::kPacked, Zeros::kFloat}) {
        for (int level : {0, 4}) {
          check({.m = random_int(1, 3),
                 .n = random_int(1, 9),
                 .k = random_int(1, 600),
                 .bits = bits,
                 .block = block,
                 .zeros = zeros,
                 .accuracy_level = level});
          check(
              {.m = 9, .n = 5, .k = 2 * block, .bits = bits, .block = block, .zeros = zeros, .accuracy_level = level});
          if (HasFatalFailure()) return;
        }
      }
    }
  }
}

// Not in the other rows.
TEST(MatMulNBits, ANumberThatIsNoneGivesNone) {
  for (const int bits : {2, 4, 8})
    for (const int block : {32, 256})
      for (const Zeros zeros : {Zeros::kNone, Zeros::kPacked, Zeros::kFloat})
        for (const int64_t at : {3, 290}) {
          const Case t{.m = 5, .n = 6, .k = 300, .bits = bits, .block = block, .zeros = zeros, .accuracy_level = 4};
          StridedTensor scales(DType::kF32, {t.n, (t.k + block - 1) / block}),
              float_zeros(scales.view().type, {t.n, (t.k + block - 1) / block}), a(t.type, {t.m, t.k}),
              y(t.type, {t.m, t.n});
          scales.fill(0.01, 0.1);
          float_zeros.fill(0, 10);
          a.fill();
          a.set(2 * t.k + at, std::nan(""));
          const Weights w = make_weights(t, scales, float_zeros);
          const std::vector<View> in{a.view(), bytes(w.q), scales.view(),
                                     zeros == Zeros::kPacked  ? bytes(w.zeros)
                                     : zeros == Zeros::kFloat ? float_zeros.view()
                                                              : View{}};
          const MatMulNBitsParams params{t.k, t.n, bits, block, 4, zeros == Zeros::kFloat};
          for_each_isa([&](const KernelTable& table, int threads) {
            run_kernel(table, &KernelTable::matmul_nbits, in, y.view(), &params, threads);
            for (int64_t i = 0; i < t.m * t.n; ++i)
              ASSERT_EQ(std::isnan(y.get(i)), i / t.n == 2) << bits << " bits, block " << block << ", " << i;
          });
          if (HasFatalFailure()) return;
        }
}

TEST(MatMulNBits, RowCounts) {
  for (int64_t m : {0, 1, 2, 3, 4, 5, 8, 11, 33}) {
    for (int level : {0, 4})
      check({.m = m, .n = 37, .k = 100, .zeros = Zeros::kPacked, .accuracy_level = level, .bias = true});
  }
}

TEST(MatMulNBits, EveryShortDepth) {
  for (int64_t k = 1; k <= 70; ++k) {
    for (int level : {0, 4})
      check({.m = 1, .n = 3, .k = k, .block = 16, .zeros = Zeros::kPacked, .accuracy_level = level});
  }
}

TEST(MatMulNBits, TypesAndLayouts) {
  const DType types[] = {DType::kF32, DType::kF16, DType::kBF16};
  for (int i = 0; i < 40; ++i) {
    check({.m = random_int(1, 9),
           .n = random_int(1, 40),
           .k = random_int(1, 300),
           .bits = 1 << random_int(1, 3),
           .block = 16 << random_int(0, 3),
           .zeros = static_cast<Zeros>(random_int(0, 2)),
           .accuracy_level = random_int(0, 1) == 0 ? 4 : 1,
           .type = types[random_int(0, 2)],
           .scales = types[random_int(0, 2)],
           .bias = random_int(0, 1) == 0,
           .strided = true});
    if (HasFatalFailure()) return;
  }
}

// More rows than the scratch holds, and a row that it cannot hold at all.
TEST(MatMulNBits, ScratchLimits) {
  for (int level : {0, 4}) check({.m = 70, .n = 3, .k = 4000, .accuracy_level = level});
  check({.m = 1, .n = 2, .k = 300000});
}

}  // namespace
}  // namespace situ
