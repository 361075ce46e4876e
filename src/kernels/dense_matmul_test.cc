// pack_dense and dense_matmul against a plain product in double, from weights at any address.
#include "kernels/strided_test.h"

namespace situ {
namespace {

struct Case {
  int64_t m = 1, n = 1, k = 1;
  DType weights = DType::kF32, type = DType::kF32, packed = weights;
  bool transposed = false, bias = false, strided = false, odd = false;
};

// w [K, N] as pack_dense lays it out, in parts as the store calls it; `odd`: from memory at an odd address.
std::vector<std::byte> pack(const KernelTable& table, const Case& t, const StridedTensor& w) {
  const int64_t size = dtype_bytes(t.weights), packed_size = dtype_bytes(t.packed);
  std::vector<std::byte> source(static_cast<size_t>(t.k * t.n * size + 8));
  View from = w.view();
  from.data = source.data() + (t.odd ? 1 : 0);
  for (int64_t i = 0; i < t.k * t.n * size; ++i) from.data[i] = w.view().data[i];
  const DenseMatMulParams product{t.k, t.n};
  std::vector<std::byte> packed(static_cast<size_t>(product.packed_count() * packed_size) + 64, std::byte{0x7f});
  View to;
  to.type = t.packed;
  to.rank = 1;
  to.dims[0] = product.packed_count();
  to.strides[0] = 1;
  to.data = packed.data();
  KernelCall call;
  call.in = &from;
  call.in_count = 1;
  call.out = &to;
  call.out_count = 1;
  const int64_t panels = (t.n + kDensePanelColumns - 1) / kDensePanelColumns, half = t.k / 2;
  for (const auto& [k0, k1] : {std::pair<int64_t, int64_t>{0, half}, {half, t.k}}) {
    const PackDenseParams part{product, k0, k1, 0, panels};
    call.params = &part;
    run_kernel(table, &KernelTable::pack_dense, call, 2);
  }
  return packed;
}

void check(const Case& t, const std::vector<EmulatedTable>& emulated = emulated_tables()) {
  SCOPED_TRACE("m " + std::to_string(t.m) + " n " + std::to_string(t.n) + " k " + std::to_string(t.k) + " " +
               dtype_name(t.weights) + " " + dtype_name(t.type) + (t.transposed ? " transposed" : "") +
               (t.bias ? " bias" : "") + (t.strided ? " strided" : "") + (t.odd ? " odd" : ""));
  auto tensor = [&](const std::vector<int64_t>& dims) {
    return t.strided ? StridedTensor::random_layout(t.type, dims) : StridedTensor(t.type, dims);
  };
  StridedTensor x = tensor({1, t.m, t.k}), y = tensor({1, t.m, t.n}), bias(t.type, {t.n});
  StridedTensor w(t.weights, {t.k, t.n}, t.transposed ? std::vector<int>{1, 0} : std::vector<int>{0, 1});
  x.fill();
  w.fill();
  if (t.packed != t.weights) {  // what 16 bits hold, small numbers too
    StridedTensor narrow(t.packed, {t.k, t.n});
    narrow.fill();
    for (int64_t i = 0; i < w.count(); ++i) w.set(i, i % 7 == 0 ? std::ldexp(random_int(-1, 1), -24) : narrow.get(i));
  }
  bias.fill();
  const DenseMatMulParams params{t.k, t.n};
  // Read once: a StridedTensor finds each number by its strides.
  std::vector<double> rows, columns, wanted, sizes;
  for (int64_t i = 0; i < t.m * t.k; ++i) rows.push_back(x.get(i));
  for (int64_t n = 0; n < t.n; ++n)
    for (int64_t k = 0; k < t.k; ++k) columns.push_back(w.get(k * t.n + n));
  for (int64_t m = 0; m < t.m; ++m) {
    for (int64_t n = 0; n < t.n; ++n) {
      double sum = t.bias ? bias.get(n) : 0, size = 0;
      const double *row = &rows[static_cast<size_t>(m * t.k)], *column = &columns[static_cast<size_t>(n * t.k)];
      for (int64_t k = 0; k < t.k; ++k) {
        sum += row[k] * column[k];
        size += std::fabs(row[k] * column[k]);
      }
      wanted.push_back(sum);
      sizes.push_back(size);
    }
  }
  for_each_isa(
      [&](const KernelTable& table, int threads) {
        std::vector<std::byte> packed = pack(table, t, w);
        View weights;
        weights.type = t.packed;
        weights.rank = 1;
        weights.dims[0] = params.packed_count();
        weights.strides[0] = 1;
        weights.data = packed.data();
        const View in[] = {x.view(), weights, t.bias ? bias.view() : View{}};
        KernelCall call;
        call.in = in;
        call.in_count = 3;
        call.out = &y.view();
        call.out_count = 1;
        call.params = &params;
        // Tokens, and rows of an encoder: as many, and one less.
        std::vector<double> whole;
        for (const int kind : {0, 1, 2}) {
          call.encodes = kind > 0;
          View fewer[2] = {in[0], y.view()};
          for (View& v : fewer) v.dims[1] -= kind == 2;
          if (fewer[0].dims[1] == 0) break;
          const View shorter[] = {fewer[0], in[1], in[2]};
          call.in = shorter;
          call.out = &fewer[1];
          y.reset();
          run_kernel(table, &KernelTable::dense_matmul, call, threads);
          ASSERT_TRUE(y.untouched_outside());
          for (int64_t i = 0; i < fewer[0].dims[1] * t.n; ++i) {
            const double sum = wanted[static_cast<size_t>(i)], size = sizes[static_cast<size_t>(i)];
            ASSERT_NEAR(y.get(i), sum, 1e-6 * size + 1e-6 + rounding(t.type) * std::fabs(sum))
                << table.isa << " m " << i / t.n << " n " << i % t.n << " kind " << kind;
            if (kind == 1) whole.push_back(y.get(i));
            // Whoever is with it.
            if (kind == 2) {
              ASSERT_EQ(y.get(i), whole[static_cast<size_t>(i)]) << table.isa << " m " << i / t.n;
            }
          }
        }
      },
      emulated);
}

TEST(DenseMatMul, RowCounts) {
  for (int64_t m : {1, 2, 3, 4, 5, 7, 12, 13, 24, 47, 48, 49, 119, 120, 121, 250}) {
    check({.m = m, .n = 45, .k = 70});
    if (HasFatalFailure()) return;
  }
  check({.m = 6, .n = 33, .k = 4097});
  for (DType packed : {DType::kF16, DType::kBF16})
    for (int64_t m : {1, 3, 50})
      check({.m = m, .n = 45, .k = 70, .packed = packed, .transposed = m == 3, .odd = m == 1});
  check({.m = 130, .n = 20, .k = 5000, .strided = true});
  check({.m = 3, .n = 5, .k = 65536, .weights = DType::kF16, .type = DType::kF16});
}

TEST(DenseMatMul, TypesAndLayouts) {
  const DType types[] = {DType::kF32, DType::kF16, DType::kBF16};
  auto coin = [] { return random_int(0, 1) == 0; };
  for (int i = 0; i < 60; ++i) {
    check({.m = random_int(1, 60),
           .n = random_int(1, 100),
           .k = random_int(1, 600),
           .weights = types[random_int(0, 2)],
           .type = types[random_int(0, 2)],
           .transposed = coin(),
           .bias = coin(),
           .strided = coin(),
           .odd = coin()},
          i % 4 == 0 ? emulated_tables() : std::vector<EmulatedTable>{});
    if (HasFatalFailure()) return;
  }
}

}  // namespace
}  // namespace situ
