#include <gtest/gtest.h>

#include <cmath>

#include "kernels/strided_test.h"

namespace situ {
namespace {

struct Case {
  int64_t kernel, stride, dilation, begin, end;
};

// Of pictures [2, 3, 7, 5], by the formula of the operator.
TEST(Pool, IsTheLargestOrTheMeanOfWhatLiesWithin) {
  const int64_t extents[] = {7, 5};
  for (const Case& c : {Case{1, 1, 1, 0, 0}, {2, 2, 1, 0, 0}, {3, 1, 1, 1, 1}, {2, 1, 2, 1, 0}, {3, 2, 1, 0, 2}})
    for (const bool average : {false, true})
      for (const bool count_pad : {false, true}) {
        std::vector<int64_t> dims{2, 3};
        for (const int64_t e : extents)
          dims.push_back((e + c.begin + c.end - c.dilation * (c.kernel - 1) - 1) / c.stride + 1);
        StridedTensor x(DType::kF32, {2, 3, 7, 5}, {}, 2, 1), y(DType::kF32, dims, {}, 1);
        x.fill();
        const PoolParams p{2,
                           {c.kernel, c.kernel, 1},
                           {c.stride, c.stride, 1},
                           {c.dilation, c.dilation, 1},
                           {c.begin, c.begin, 0},
                           {c.end, c.end, 0},
                           average,
                           count_pad};
        for_each_isa([&](const KernelTable& table, int threads) {
          run_kernel(table, &KernelTable::pool, {x.view()}, {y.view()}, &p, threads);
          EXPECT_TRUE(y.untouched_outside());
          for (int64_t n = 0; n < dims[0] * dims[1]; ++n)
            for (int64_t i = 0; i < dims[2]; ++i)
              for (int64_t j = 0; j < dims[3]; ++j) {
                double largest = -INFINITY, sum = 0, count = 0;
                for (int64_t a = 0; a < c.kernel; ++a)
                  for (int64_t b = 0; b < c.kernel; ++b) {
                    const int64_t row = i * c.stride + a * c.dilation - c.begin,
                                  column = j * c.stride + b * c.dilation - c.begin;
                    const bool inside = row >= 0 && row < 7 && column >= 0 && column < 5;
                    count += inside || (count_pad && row < 7 + c.end && column < 5 + c.end);
                    if (!inside) continue;
                    const double v = x.at({n / 3, n % 3, row, column});
                    largest = std::max(largest, v);
                    sum += v;
                  }
                EXPECT_NEAR(y.at({n / 3, n % 3, i, j}), average ? sum / std::max(1.0, count) : largest, 1e-5);
              }
        });
      }
}

}  // namespace
}  // namespace situ
