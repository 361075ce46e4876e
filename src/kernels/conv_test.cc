#include <gtest/gtest.h>

#include "kernels/strided_test.h"

namespace situ {
namespace {

struct Case {
  std::vector<int64_t> x, w;
  int64_t groups, stride, dilation, pad;
};

// All sums in double, by the formula of the operator.
TEST(Conv, IsTheSumOverChannelsAndTaps) {
  const Case cases[] = {{{1, 3, 9}, {5, 3, 3}, 1, 1, 1, 1},       {{2, 4, 17}, {6, 2, 4}, 2, 3, 2, 0},
                        {{1, 1, 1}, {1, 1, 1}, 1, 1, 1, 0},       {{1, 3, 8, 6}, {7, 3, 2, 2}, 1, 2, 1, 0},
                        {{2, 4, 5, 7}, {4, 1, 3, 3}, 4, 1, 1, 1}, {{1, 2, 4, 5, 6}, {3, 2, 2, 3, 2}, 1, 1, 1, 1}};
  for (const Case& c : cases) {
    const int axes = static_cast<int>(c.x.size()) - 2;
    std::vector<int64_t> dims{c.x[0], c.w[0]};
    for (int a = 0; a < axes; ++a) {
      const size_t i = static_cast<size_t>(2 + a);
      dims.push_back((c.x[i] + 2 * c.pad - c.dilation * (c.w[i] - 1) - 1) / c.stride + 1);
    }
    for (const bool strided : {false, true}) {
      StridedTensor x(DType::kF32, c.x, {}, strided ? 3 : 0, strided ? 1 : 0), w(DType::kF32, c.w, {}, strided ? 2 : 0),
          b(DType::kF32, {c.w[0]}), y(DType::kF32, dims, {}, strided ? 1 : 0);
      for (StridedTensor* t : {&x, &w, &b}) t->fill();
      const ConvParams p{
          axes, c.groups, {c.stride, c.stride, c.stride}, {c.dilation, c.dilation, c.dilation}, {c.pad, c.pad, c.pad}};
      for_each_isa([&](const KernelTable& table, int threads) {
        run_kernel(table, &KernelTable::conv, {x.view(), w.view(), b.view()}, {y.view()}, &p, threads);
        EXPECT_TRUE(y.untouched_outside());
        std::vector<int64_t> o(dims.size(), 0);
        const int64_t rows = c.w[0] / c.groups;
        int64_t count = 1;
        for (const int64_t d : dims) count *= d;
        for (int64_t n = 0; n < count; ++n) {
          int64_t rest = n;
          for (size_t i = dims.size(); i-- > 0;) {
            o[i] = rest % dims[i];
            rest /= dims[i];
          }
          double sum = b.at({o[1]});
          int64_t taps = 1;
          for (int a = 0; a < axes; ++a) taps *= c.w[static_cast<size_t>(2 + a)];
          for (int64_t ch = 0; ch < c.w[1]; ++ch)
            for (int64_t t = 0; t < taps; ++t) {
              std::vector<int64_t> at{o[0], o[1] / rows * c.w[1] + ch}, tap{o[1], ch};
              at.resize(dims.size());
              tap.resize(dims.size());
              bool inside = true;
              int64_t k = t;
              for (size_t i = dims.size(); i-- > 2;) {
                tap[i] = k % c.w[i];
                k /= c.w[i];
                at[i] = o[i] * c.stride + tap[i] * c.dilation - c.pad;
                inside = inside && at[i] >= 0 && at[i] < c.x[i];
              }
              if (inside) sum += x.at(at) * w.at(tap);
            }
          ASSERT_NEAR(y.at(o), sum, 1e-4) << n;
        }
      });
    }
  }
}

}  // namespace
}  // namespace situ
