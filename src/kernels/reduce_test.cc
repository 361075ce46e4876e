// reduce, arg_reduce, softmax, cumsum and top_k against plain loops in double.
#include <algorithm>
#include <cmath>

#include "kernels/strided_test.h"

namespace situ {
namespace {

double reference(ReduceKind kind, const std::vector<double>& v) {
  double sum = 0, square = 0, l1 = 0, prod = 1, low = INFINITY, high = -INFINITY, exps = 0;
  for (double x : v) {
    sum += x;
    square += x * x;
    l1 += std::fabs(x);
    prod *= x;
    low = std::min(low, x);
    high = std::max(high, x);
    exps += std::exp(x);
  }
  switch (kind) {
    case ReduceKind::kSum:
      return sum;
    case ReduceKind::kMean:
      return sum / static_cast<double>(v.size());
    case ReduceKind::kMax:
      return high;
    case ReduceKind::kMin:
      return low;
    case ReduceKind::kProd:
      return prod;
    case ReduceKind::kL1:
      return l1;
    case ReduceKind::kL2:
      return std::sqrt(square);
    case ReduceKind::kSumSquare:
      return square;
    case ReduceKind::kLogSum:
      return std::log(sum);
    default:
      return std::log(exps);
  }
}

constexpr ReduceKind kKinds[] = {ReduceKind::kSum,    ReduceKind::kMean,     ReduceKind::kMax, ReduceKind::kMin,
                                 ReduceKind::kProd,   ReduceKind::kL1,       ReduceKind::kL2,  ReduceKind::kSumSquare,
                                 ReduceKind::kLogSum, ReduceKind::kLogSumExp};

// Dims after reducing `axes`, and for each element of x the element of y that it belongs to.
std::vector<int64_t> reduced_dims(const std::vector<int64_t>& dims, uint32_t axes, bool keep,
                                  std::vector<int64_t>* group) {
  std::vector<int64_t> result;
  int64_t count = 1;
  for (size_t i = 0; i < dims.size(); ++i) {
    count *= dims[i];
    if ((axes >> i & 1) == 0)
      result.push_back(dims[i]);
    else if (keep)
      result.push_back(1);
  }
  for (int64_t i = 0; i < count; ++i) {
    int64_t rest = i, at = 0, scale = 1;
    for (int d = static_cast<int>(dims.size()) - 1; d >= 0; --d) {
      if ((axes >> d & 1) == 0) {
        at += rest % dims[d] * scale;
        scale *= dims[d];
      }
      rest /= dims[d];
    }
    group->push_back(at);
  }
  return result;
}

TEST(Reduce, matches_double) {
  const std::vector<std::vector<int64_t>> shapes = {{},        {7},          {3, 301},  {301, 3},
                                                    {4, 5, 6}, {2, 3, 4, 5}, {2, 0, 3}, {1, 37, 1, 40}};
  for_each_isa([&](const KernelTable& table, int threads) {
    for (ReduceKind kind : kKinds) {
      for (DType type : {DType::kF32, DType::kF64, DType::kF16, DType::kBF16}) {
        const auto& dims = shapes[random_int(0, static_cast<int64_t>(shapes.size()) - 1)];
        const uint32_t axes = static_cast<uint32_t>(random_int(0, (1 << dims.size()) - 1));
        const bool keep = random_int(0, 1) != 0;
        std::vector<int64_t> group;
        const auto out_dims = reduced_dims(dims, axes, keep, &group);
        StridedTensor x = StridedTensor::random_layout(type, dims), y = StridedTensor::random_layout(type, out_dims);
        if (kind == ReduceKind::kProd)
          x.fill(0.95, 1.05);
        else
          x.fill(0.1, 1);
        const ReduceParams p{kind, axes, keep};
        run_kernel(table, &KernelTable::reduce, {x.view()}, {y.view()}, &p, threads);
        std::vector<std::vector<double>> members(static_cast<size_t>(y.count()));
        for (size_t i = 0; i < group.size(); ++i)
          members[static_cast<size_t>(group[i])].push_back(x.get(static_cast<int64_t>(i)));
        for (int64_t i = 0; i < y.count(); ++i) {
          const double want = reference(kind, members[static_cast<size_t>(i)]);
          if (std::isnan(want) || std::isinf(want))
            ASSERT_EQ(std::isnan(want), std::isnan(y.get(i)));
          else
            ASSERT_NEAR(y.get(i), want, 4 * rounding(type) * std::max(1.0, std::fabs(want)))
                << int(kind) << " axes " << axes;
        }
        ASSERT_TRUE(y.untouched_outside());
      }
    }
  });
}

TEST(Reduce, log_sum_exp_of_large_values) {
  for_each_isa([](const KernelTable& table, int threads) {
    StridedTensor x(DType::kF32, {3}), y(DType::kF32, {});
    x.fill(500, 500);
    const ReduceParams p{ReduceKind::kLogSumExp, 1, false};
    run_kernel(table, &KernelTable::reduce, {x.view()}, {y.view()}, &p, threads);
    EXPECT_NEAR(y.get(0), 500 + std::log(3), 1e-3);
  });
}

TEST(ArgReduce, first_or_last_of_equals) {
  for_each_isa([](const KernelTable& table, int threads) {
    for (DType type : {DType::kF32, DType::kF16, DType::kI64, DType::kU8}) {
      for (int axis = 0; axis < 3; ++axis) {
        const std::vector<int64_t> dims = {3, 41, 40};
        std::vector<int64_t> group;
        const auto out_dims = reduced_dims(dims, 1u << axis, false, &group);
        StridedTensor x = StridedTensor::random_layout(type, dims),
                      y = StridedTensor::random_layout(DType::kI64, out_dims);
        x.fill_integers(0, 5);
        const ArgReduceParams p{axis, random_int(0, 1) != 0, random_int(0, 1) != 0, false};
        run_kernel(table, &KernelTable::arg_reduce, {x.view()}, {y.view()}, &p, threads);
        std::vector<std::vector<double>> members(static_cast<size_t>(y.count()));
        for (size_t i = 0; i < group.size(); ++i)
          members[static_cast<size_t>(group[i])].push_back(x.get(static_cast<int64_t>(i)));
        for (int64_t i = 0; i < y.count(); ++i) {
          const auto& m = members[static_cast<size_t>(i)];
          const double best = p.max ? *std::max_element(m.begin(), m.end()) : *std::min_element(m.begin(), m.end());
          int64_t want = std::find(m.begin(), m.end(), best) - m.begin();
          if (p.last) want = static_cast<int64_t>(m.size()) - 1 - (std::find(m.rbegin(), m.rend(), best) - m.rbegin());
          ASSERT_EQ(y.get(i), static_cast<double>(want));
        }
      }
    }
  });
}

TEST(Softmax, sums_to_one_and_matches_double) {
  const std::vector<std::vector<int64_t>> shapes = {{1}, {5, 17}, {2, 3, 257}, {4, 1031}, {3, 0}, {2, 700, 3}};
  for_each_isa([&](const KernelTable& table, int threads) {
    for (DType type : {DType::kF32, DType::kF64, DType::kF16}) {
      for (const auto& dims : shapes) {
        const int axis = static_cast<int>(random_int(0, static_cast<int64_t>(dims.size()) - 1));
        const SoftmaxParams p{axis, random_int(0, 1) != 0, random_int(0, 1) != 0};
        uint32_t axes = 1u << axis;
        if (p.flattened) axes = ((1u << dims.size()) - 1) & ~((1u << axis) - 1);
        std::vector<int64_t> group;
        reduced_dims(dims, axes, false, &group);
        StridedTensor x = StridedTensor::random_layout(type, dims);
        x.fill(-5, 5);
        std::vector<double> values;
        for (int64_t i = 0; i < x.count(); ++i) values.push_back(x.get(i));
        // Into another tensor, or over itself.
        StridedTensor other = StridedTensor::random_layout(type, dims);
        StridedTensor& y = random_int(0, 1) != 0 ? x : other;
        run_kernel(table, &KernelTable::softmax, {x.view()}, {y.view()}, &p, threads);
        std::vector<double> sums(values.size() + 1, 0.0);
        for (size_t i = 0; i < values.size(); ++i) sums[static_cast<size_t>(group[i])] += std::exp(values[i]);
        for (size_t i = 0; i < values.size(); ++i) {
          const double e = std::exp(values[i]) / sums[static_cast<size_t>(group[i])];
          const double want = p.log ? std::log(e) : e;
          ASSERT_NEAR(y.get(static_cast<int64_t>(i)), want, 4 * rounding(type) * std::max(1.0, std::fabs(want)));
        }
        ASSERT_TRUE(y.untouched_outside());
      }
    }
  });
}

TEST(CumSum, all_directions) {
  for_each_isa([](const KernelTable& table, int threads) {
    for (DType type : {DType::kF32, DType::kI64, DType::kI32, DType::kF64}) {
      const std::vector<int64_t> dims = {3, 301, 5};
      const int64_t axis = random_int(0, 2);
      StridedTensor x = StridedTensor::random_layout(type, dims), y = StridedTensor::random_layout(type, dims),
                    a(DType::kI64, {});
      x.fill_integers(-3, 9);
      a.set(0, static_cast<double>(axis - 3));
      const CumSumParams p{random_int(0, 1) != 0, random_int(0, 1) != 0};
      run_kernel(table, &KernelTable::cumsum, {x.view(), a.view()}, {y.view()}, &p, threads);
      for (int64_t i = 0; i < 3; ++i) {
        for (int64_t j = 0; j < 301; ++j) {
          for (int64_t k = 0; k < 5; ++k) {
            const int64_t here[] = {i, j, k};
            double want = 0;
            for (int64_t s = 0; s < dims[axis]; ++s) {
              const bool before = p.reverse ? s > here[axis] : s < here[axis];
              std::vector<int64_t> at = {i, j, k};
              at[axis] = s;
              if (before || (s == here[axis] && !p.exclusive)) want += x.at(at);
            }
            ASSERT_EQ(y.at({i, j, k}), want);
          }
        }
      }
    }
  });
}

TEST(TopK, sorted_with_lower_index_first) {
  for_each_isa([](const KernelTable& table, int threads) {
    for (DType type : {DType::kF32, DType::kF16, DType::kI64, DType::kU8}) {
      const int64_t n = 311, k = random_int(0, n);
      StridedTensor x = StridedTensor::random_layout(type, {3, n}), v = StridedTensor::random_layout(type, {3, k}),
                    at = StridedTensor::random_layout(DType::kI64, {3, k});
      x.fill_integers(0, 50);
      const TopKParams p{1, random_int(0, 1) != 0, true};
      run_kernel(table, &KernelTable::top_k, {x.view()}, {v.view(), at.view()}, &p, threads);
      for (int64_t row = 0; row < 3; ++row) {
        std::vector<int64_t> order(static_cast<size_t>(n));
        std::iota(order.begin(), order.end(), 0);
        std::stable_sort(order.begin(), order.end(), [&](int64_t i, int64_t j) {
          return p.largest ? x.at({row, i}) > x.at({row, j}) : x.at({row, i}) < x.at({row, j});
        });
        for (int64_t i = 0; i < k; ++i) {
          ASSERT_EQ(at.at({row, i}), static_cast<double>(order[static_cast<size_t>(i)]));
          ASSERT_EQ(v.at({row, i}), x.at({row, order[static_cast<size_t>(i)]}));
        }
      }
      ASSERT_TRUE(v.untouched_outside() && at.untouched_outside());
    }
  });
}

}  // namespace
}  // namespace situ
