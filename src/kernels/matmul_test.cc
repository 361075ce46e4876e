// The matmul kernel against a plain product in double.
#include "kernels/strided_test.h"

namespace situ {
namespace {

struct Case {
  DType a_type = DType::kF32, b_type = DType::kF32, y_type = DType::kF32;
  std::vector<int64_t> a_batch, b_batch;
  int64_t m = 1, n = 1, k = 1;
  bool b_transposed = false;  // layout: unit stride along k
  bool random_layouts = false;
  bool with_c = false;
  MatMulParams params;
};

std::vector<int64_t> broadcast_dims(const std::vector<int64_t>& a, const std::vector<int64_t>& b) {
  std::vector<int64_t> r(std::max(a.size(), b.size()), 1);
  for (size_t i = 0; i < r.size(); ++i) {
    const int64_t x = i + a.size() < r.size() ? 1 : a[i + a.size() - r.size()];
    const int64_t y = i + b.size() < r.size() ? 1 : b[i + b.size() - r.size()];
    r[i] = x == 1 ? y : x;
  }
  return r;
}

std::vector<int64_t> with(std::vector<int64_t> dims, int64_t a, int64_t b) {
  dims.push_back(a);
  dims.push_back(b);
  return dims;
}

// Offset of batch `index` (over `full`) in a tensor whose leading dims are `own`.
int64_t batch_offset(const View& v, size_t own, const std::vector<int64_t>& full, int64_t index) {
  int64_t at = 0;
  for (size_t i = full.size(); i-- > 0;) {
    const int64_t at_i = index % full[i];
    index /= full[i];
    if (i + own < full.size()) continue;
    const size_t d = i + own - full.size();
    if (v.dims[d] != 1) at += at_i * v.strides[d];
  }
  return at;
}

void check(const Case& t) {
  SCOPED_TRACE("m " + std::to_string(t.m) + " n " + std::to_string(t.n) + " k " + std::to_string(t.k) +
               (t.b_transposed ? " b transposed" : "") + (t.random_layouts ? " random layouts" : ""));
  const bool ta = t.params.transpose_a, tb = t.params.transpose_b;
  const auto a_dims = with(t.a_batch, ta ? t.k : t.m, ta ? t.m : t.k);
  const auto b_dims = with(t.b_batch, tb ? t.n : t.k, tb ? t.k : t.n);
  const auto batch = broadcast_dims(t.a_batch, t.b_batch);
  const auto y_dims = with(batch, t.m, t.n);
  auto layout = [&](DType type, const std::vector<int64_t>& dims) {
    return t.random_layouts ? StridedTensor::random_layout(type, dims)
                            : StridedTensor(type, dims, {}, random_int(0, 2), random_int(0, 2));
  };
  StridedTensor a = layout(t.a_type, a_dims), y = layout(t.y_type, y_dims), c = layout(t.y_type, {t.n});
  std::vector<int> order(b_dims.size());
  std::iota(order.begin(), order.end(), 0);
  if (t.b_transposed) std::swap(order[order.size() - 1], order[order.size() - 2]);
  StridedTensor b = t.random_layouts ? layout(t.b_type, b_dims)
                                     : StridedTensor(t.b_type, b_dims, order, random_int(0, 2), random_int(0, 2));
  a.fill();
  b.fill();
  c.fill();
  const std::vector<View> in{a.view(), b.view(), t.with_c ? c.view() : View{}};
  int64_t batches = 1;
  for (int64_t d : batch) batches *= d;
  for_each_isa([&](const KernelTable& table, int threads) {
    y.reset();
    run_kernel(table, &KernelTable::matmul, in, y.view(), &t.params, threads);
    ASSERT_TRUE(y.untouched_outside());
    for (int64_t i = 0; i < batches; ++i) {
      const int64_t a0 = batch_offset(a.view(), t.a_batch.size(), batch, i),
                    b0 = batch_offset(b.view(), t.b_batch.size(), batch, i);
      const size_t ar = t.a_batch.size(), br = t.b_batch.size();
      for (int64_t m = 0; m < t.m; ++m) {
        for (int64_t n = 0; n < t.n; ++n) {
          double sum = 0, size = 0;
          for (int64_t k = 0; k < t.k; ++k) {
            const int64_t ai = a0 + m * a.view().strides[ar + (ta ? 1 : 0)] + k * a.view().strides[ar + (ta ? 0 : 1)];
            const int64_t bi = b0 + k * b.view().strides[br + (tb ? 1 : 0)] + n * b.view().strides[br + (tb ? 0 : 1)];
            const double p = a.element(ai) * b.element(bi);
            sum += p;
            size += std::fabs(p);
          }
          sum *= t.params.alpha;
          if (t.with_c) sum += t.params.beta * c.get(n);
          const double tolerance = 1e-6 * size * std::fabs(t.params.alpha) + rounding(t.y_type) * std::fabs(sum) + 1e-6;
          ASSERT_NEAR(y.get((i * t.m + m) * t.n + n), sum, tolerance) << "batch " << i << " m " << m << " n " << n;
        }
      }
    }
  });
}

TEST(MatMul, RowMajor) {
  for (int64_t m : {0, 1, 2, 3, 4, 5, 13, 33}) {
    for (int64_t n : {0, 1, 7, 16, 33, 65}) {
      for (int64_t k : {0, 1, 9, 34}) check({.m = m, .n = n, .k = k});
    }
  }
}

TEST(MatMul, Transposed) {
  for (int64_t m : {1, 2, 3, 4, 5, 33}) {
    for (int64_t n : {1, 6, 33, 65}) {
      for (int64_t k : {0, 1, 15, 33, 130}) check({.m = m, .n = n, .k = k, .b_transposed = true});
    }
  }
}

TEST(MatMul, SizesBeyondOneBlock) {
  check({.m = 1, .n = 1100, .k = 530});
  check({.m = 4, .n = 1030, .k = 520});
  check({.m = 2, .n = 70, .k = 4200, .b_transposed = true});
  check({.m = 530, .n = 33, .k = 7});
  check({.m = 14, .n = 35, .k = 1030});
}

TEST(MatMul, RandomLayoutsTypesAndBatches) {
  const DType types[] = {DType::kF32, DType::kF16, DType::kBF16};
  for (int i = 0; i < 60; ++i) {
    Case t;
    t.a_type = types[random_int(0, 2)];
    t.b_type = types[random_int(0, 2)];
    t.y_type = types[random_int(0, 2)];
    t.m = random_int(0, 20);
    t.n = random_int(0, 70);
    t.k = random_int(0, 150);
    if (random_int(0, 1) == 0) t.a_batch = {random_int(1, 3)};
    if (random_int(0, 1) == 0) t.b_batch = {2, t.a_batch.empty() ? random_int(1, 3) : t.a_batch[0]};
    t.random_layouts = random_int(0, 1) == 0;
    t.b_transposed = random_int(0, 1) == 0;
    t.with_c = random_int(0, 1) == 0;
    t.params.alpha = random_int(0, 1) == 0 ? 1.0f : -0.5f;
    t.params.beta = random_int(0, 1) == 0 ? 1.0f : 2.0f;
    t.params.transpose_a = random_int(0, 3) == 0;
    t.params.transpose_b = random_int(0, 3) == 0;
    check(t);
    if (HasFatalFailure()) return;
  }
}

TEST(MatMul, Doubles) {
  check({.a_type = DType::kF64,
         .b_type = DType::kF64,
         .y_type = DType::kF64,
         .a_batch = {2},
         .m = 3,
         .n = 70,
         .k = 5,
         .with_c = true});
}

TEST(MatMul, IntegersWrap) {
  StridedTensor a(DType::kI32, {1, 2}), b(DType::kI32, {2, 1}), y(DType::kI32, {1, 1});
  a.set(0, 2147483647);
  a.set(1, -5);
  b.set(0, 2);
  b.set(1, 3);
  const std::vector<View> in{a.view(), b.view()};
  const MatMulParams params;
  for_each_isa([&](const KernelTable& table, int threads) {
    y.reset();
    run_kernel(table, &KernelTable::matmul, in, y.view(), &params, threads);
    ASSERT_EQ(y.get(0), -2 - 15);
  });
}

TEST(MatMul, Vectors) {
  StridedTensor a(DType::kF32, {5}), b(DType::kF32, {2, 5, 3}), y(DType::kF32, {2, 3});
  a.fill();
  b.fill();
  const std::vector<View> in{a.view(), b.view()};
  const MatMulParams params;
  for_each_isa([&](const KernelTable& table, int threads) {
    y.reset();
    run_kernel(table, &KernelTable::matmul, in, y.view(), &params, threads);
    for (int64_t i = 0; i < 2; ++i) {
      for (int64_t n = 0; n < 3; ++n) {
        double sum = 0;
        for (int64_t k = 0; k < 5; ++k) sum += a.get(k) * b.at({i, k, n});
        ASSERT_NEAR(y.at({i, n}), sum, 1e-5);
      }
    }
  });
}

// y [B, S, H, D] in a layout [B, H, S, D] with room between heads, as in a KV state.
void check_projection(int64_t batch, int64_t tokens, int64_t heads, int64_t size, int64_t k, bool split_weight) {
  StridedTensor x(DType::kF32, {batch, tokens, k}), bias(DType::kF32, {heads, size});
  StridedTensor w = split_weight
                        ? StridedTensor(DType::kF32, {k, heads, size}, {1, 0, 2}, 3)
                        : StridedTensor(DType::kF32, {k, heads, size},
                                        random_int(0, 1) == 0 ? std::vector<int>{0, 1, 2} : std::vector<int>{1, 2, 0});
  StridedTensor y(DType::kF32, {batch, tokens, heads, size}, {0, 2, 1, 3}, 5, 1);
  x.fill();
  w.fill();
  bias.fill();
  const std::vector<View> in{x.view(), w.view(), bias.view()};
  MatMulParams params;
  params.project = true;
  for_each_isa([&](const KernelTable& table, int threads) {
    y.reset();
    run_kernel(table, &KernelTable::matmul, in, y.view(), &params, threads);
    ASSERT_TRUE(y.untouched_outside());
    for (int64_t b = 0; b < batch; ++b) {
      for (int64_t s = 0; s < tokens; ++s) {
        for (int64_t h = 0; h < heads; ++h) {
          for (int64_t d = 0; d < size; ++d) {
            double sum = bias.at({h, d});
            for (int64_t i = 0; i < k; ++i) sum += x.at({b, s, i}) * w.at({i, h, d});
            ASSERT_NEAR(y.at({b, s, h, d}), sum, 1e-4) << b << " " << s << " " << h << " " << d;
          }
        }
      }
    }
  });
}

TEST(MatMul, ProjectionIntoHeads) {
  for (bool split : {false, true}) {
    check_projection(1, 1, 3, 16, 40, split);
    check_projection(1, 7, 2, 20, 33, split);
    check_projection(2, 3, 3, 5, 140, split);
    check_projection(1, 30, 1, 64, 8, split);
  }
}

}  // namespace
}  // namespace situ
