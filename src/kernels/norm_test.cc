// rms_norm, layer_norm and lp_norm against the formulas in double.
#include "kernels/strided_test.h"

namespace situ {
namespace {

struct Case {
  std::vector<int64_t> dims;
  int axis = -1;
  DType type = DType::kF32, scale_type = DType::kF32;
  std::vector<int64_t> scale_dims;  // default: dims[axis..]
  bool bias = false, statistics = false, random_layouts = false, in_place = false;
};

void check(const Case& t, bool centred) {
  const size_t axis = static_cast<size_t>(t.axis < 0 ? t.axis + static_cast<int>(t.dims.size()) : t.axis);
  SCOPED_TRACE("rank " + std::to_string(t.dims.size()) + " last " + std::to_string(t.dims.back()) + " axis " +
               std::to_string(axis));
  auto layout = [&](DType type, const std::vector<int64_t>& dims) {
    return t.random_layouts ? StridedTensor::random_layout(type, dims)
                            : StridedTensor(type, dims, {}, random_int(0, 2), random_int(0, 2));
  };
  std::vector<int64_t> inner(t.dims.begin() + static_cast<int64_t>(axis), t.dims.end()), rows_dims = t.dims;
  for (size_t i = axis; i < t.dims.size(); ++i) rows_dims[i] = 1;
  int64_t size = 1, rows = 1;
  for (size_t i = 0; i < t.dims.size(); ++i) (i < axis ? rows : size) *= t.dims[i];
  const std::vector<int64_t> scale_dims = t.scale_dims.empty() ? inner : t.scale_dims;
  StridedTensor source = layout(t.type, t.dims), x = layout(t.type, t.dims),
                y = layout(centred ? t.type : t.scale_type, t.dims);
  StridedTensor scale = layout(t.scale_type, scale_dims), bias = layout(t.scale_type, inner);
  StridedTensor mean(DType::kF32, rows_dims), inverse(DType::kF32, rows_dims);
  source.fill(-1, 3);
  scale.fill();
  bias.fill();
  const NormParams params{static_cast<int32_t>(axis), 1e-5f};
  const View in[3] = {x.view(), scale.view(), t.bias ? bias.view() : View{}};
  const View no;
  View out[3] = {t.in_place ? x.view() : y.view(), t.statistics ? (centred ? mean.view() : inverse.view()) : no,
                 t.statistics && centred ? inverse.view() : no};
  KernelCall call;
  call.in = in;
  call.in_count = 3;
  call.out = out;
  call.out_count = 3;
  call.params = &params;
  auto scale_at = [&](const StridedTensor& s, int64_t i) {  // i: within the row
    int64_t at = 0;
    for (size_t d = t.dims.size(); d-- > axis;) {
      const int64_t index = i % t.dims[d];
      i /= t.dims[d];
      const int64_t own = static_cast<int64_t>(d) - static_cast<int64_t>(t.dims.size()) + s.view().rank;
      if (own >= 0 && s.view().dims[own] != 1) at += index * s.view().strides[own];
    }
    return s.element(at);
  };
  for_each_isa([&](const KernelTable& table, int threads) {
    for (int64_t i = 0; i < x.count(); ++i) x.set(i, source.get(i));
    y.reset();
    run_kernel(table, centred ? &KernelTable::layer_norm : &KernelTable::rms_norm, call, threads);
    ASSERT_TRUE(y.untouched_outside());
    const StridedTensor& result = t.in_place ? x : y;
    for (int64_t r = 0; r < rows; ++r) {
      double mu = 0, variance = 0;
      for (int64_t i = 0; centred && i < size; ++i) mu += source.get(r * size + i) / static_cast<double>(size);
      for (int64_t i = 0; i < size; ++i)
        variance += std::pow(source.get(r * size + i) - mu, 2) / static_cast<double>(size);
      const double inv = 1 / std::sqrt(variance + params.epsilon);
      if (t.statistics) {
        ASSERT_NEAR(inverse.get(r), inv, 1e-4 * inv);
      }
      if (t.statistics && centred) {
        ASSERT_NEAR(mean.get(r), mu, 1e-5);
      }
      for (int64_t i = 0; i < size; ++i) {
        double expected = (source.get(r * size + i) - mu) * inv * scale_at(scale, i);
        if (t.bias) expected += scale_at(bias, i);
        ASSERT_NEAR(result.get(r * size + i), expected, 3e-5 + rounding(result.view().type) * std::fabs(expected))
            << r << " " << i;
      }
    }
  });
}

TEST(Norm, Sizes) {
  for (bool centred : {false, true}) {
    for (int64_t n = 1; n <= 40; ++n) check({.dims = {3, n}, .bias = n % 2 == 0}, centred);
    for (int64_t n : {511, 512, 513, 1100}) check({.dims = {2, 2, n}, .statistics = true}, centred);
    check({.dims = {0, 5}}, centred);
    check({.dims = {700, 8}}, centred);
  }
}

TEST(Norm, AxesTypesAndLayouts) {
  const DType types[] = {DType::kF32, DType::kF16, DType::kBF16, DType::kF64};
  for (bool centred : {false, true}) {
    for (int i = 0; i < 40; ++i) {
      Case t;
      for (int64_t d = random_int(1, 4); d > 0; --d) t.dims.push_back(random_int(1, 9));
      t.axis = static_cast<int>(random_int(0, static_cast<int64_t>(t.dims.size()) - 1));
      t.type = types[random_int(0, 3)];
      t.scale_type = t.type == DType::kF64 ? DType::kF64 : random_int(0, 1) == 0 ? t.type : DType::kF32;
      if (random_int(0, 3) == 0) t.scale_dims = {1};
      t.bias = random_int(0, 1) == 0;
      t.statistics = random_int(0, 1) == 0;
      t.random_layouts = random_int(0, 1) == 0;
      t.in_place = (centred || t.scale_type == t.type) && random_int(0, 1) == 0;
      check(t, centred);
      if (HasFatalFailure()) return;
    }
  }
}

TEST(Norm, LpNorm) {
  for (int p : {1, 2}) {
    for (int axis : {0, 1, 2}) {
      for (DType type : {DType::kF32, DType::kF16, DType::kF64}) {
        const std::vector<int64_t> dims = {3, 70, 2};
        StridedTensor x = StridedTensor::random_layout(type, dims), y = StridedTensor::random_layout(type, dims);
        x.fill();
        for (int64_t i = 0; i < 70; ++i) x.set(i * 2, 0);  // x[0, :, 0] is zero
        const LpNormParams params{axis, p};
        KernelCall call;
        call.in = &x.view();
        call.in_count = 1;
        call.out = &y.view();
        call.out_count = 1;
        call.params = &params;
        for_each_isa([&](const KernelTable& table, int threads) {
          y.reset();
          run_kernel(table, &KernelTable::lp_norm, call, threads);
          ASSERT_TRUE(y.untouched_outside());
          for (int64_t i = 0; i < 3; ++i) {
            for (int64_t j = 0; j < 70; ++j) {
              for (int64_t k = 0; k < 2; ++k) {
                std::vector<int64_t> at = {i, j, k};
                double total = 0;
                for (int64_t l = 0; l < dims[static_cast<size_t>(axis)]; ++l) {
                  at[static_cast<size_t>(axis)] = l;
                  total += p == 1 ? std::fabs(x.at(at)) : x.at(at) * x.at(at);
                }
                const double norm = p == 1 ? total : std::sqrt(total), v = x.at({i, j, k});
                ASSERT_NEAR(y.at({i, j, k}), norm == 0 ? 0 : v / norm, 1e-5 + rounding(type));
              }
            }
          }
        });
      }
    }
  }
}

}  // namespace
}  // namespace situ
