// gather, gather_nd, gather_elements, scatter_nd and scatter_elements against plain loops.
#include "kernels/strided_test.h"

namespace situ {
namespace {

constexpr DType kTypes[] = {DType::kF32, DType::kF16, DType::kU8, DType::kI64};

TEST(Gather, rows_and_elements) {
  for_each_isa([](const KernelTable& table, int threads) {
    for (DType type : kTypes) {
      for (DType index_type : {DType::kI32, DType::kI64}) {
        const int axis = static_cast<int>(random_int(0, 2));
        const std::vector<int64_t> dims = {6, 5, 77};
        StridedTensor x = StridedTensor::random_layout(type, dims),
                      index = StridedTensor::random_layout(index_type, {2, 9});
        x.fill_integers(0, 99);
        index.fill_integers(-dims[axis], dims[axis] - 1);
        std::vector<int64_t> out = dims;
        out.erase(out.begin() + axis);
        out.insert(out.begin() + axis, {2, 9});
        StridedTensor y = StridedTensor::random_layout(type, out);
        const AxisParams p{axis};
        const RunResult r = run_kernel(table, &KernelTable::gather, {x.view(), index.view()}, y.view(), &p, threads);
        ASSERT_EQ(r.fault.what, nullptr);
        ASSERT_EQ(r.ledger.copied, 0);
        for (int64_t i = 0; i < y.count(); ++i) {
          std::vector<int64_t> at(4);
          int64_t rest = i;
          for (int d = 3; d >= 0; --d) {
            at[d] = rest % out[d];
            rest /= out[d];
          }
          int64_t chosen = static_cast<int64_t>(index.at({at[axis], at[axis + 1]}));
          if (chosen < 0) chosen += dims[axis];
          std::vector<int64_t> from = at;
          from.erase(from.begin() + axis, from.begin() + axis + 2);
          from.insert(from.begin() + axis, chosen);
          ASSERT_EQ(y.get(i), x.at(from));
        }
        ASSERT_TRUE(y.untouched_outside());
      }
    }
  });
}

TEST(Gather, index_out_of_range_is_reported_and_zero) {
  for_each_isa([](const KernelTable& table, int threads) {
    StridedTensor x(DType::kF32, {4, 3}), index(DType::kI64, {3}), y(DType::kF32, {3, 3});
    x.fill(1, 2);
    const int64_t indices[] = {1, 4, -5};
    for (int i = 0; i < 3; ++i) index.set(i, static_cast<double>(indices[i]));
    const AxisParams p{0};
    const RunResult r = run_kernel(table, &KernelTable::gather, {x.view(), index.view()}, y.view(), &p, threads);
    ASSERT_NE(r.fault.what, nullptr);
    EXPECT_EQ(r.fault.limit, 4);
    EXPECT_EQ(y.at({0, 1}), x.at({1, 1}));
    EXPECT_EQ(y.at({1, 1}), 0);
    EXPECT_EQ(y.at({2, 2}), 0);
  });
}

TEST(GatherNd, tuples_with_and_without_batch) {
  for_each_isa([](const KernelTable& table, int threads) {
    for (DType type : kTypes) {
      StridedTensor x = StridedTensor::random_layout(type, {4, 5, 6, 7}),
                    index = StridedTensor::random_layout(DType::kI64, {4, 3, 2});
      StridedTensor y = StridedTensor::random_layout(type, {4, 3, 7});
      x.fill_integers(0, 99);
      index.fill_integers(0, 4);
      const GatherNdParams batch{1};
      run_kernel(table, &KernelTable::gather_nd, {x.view(), index.view()}, y.view(), &batch, threads);
      for (int64_t b = 0; b < 4; ++b)
        for (int64_t i = 0; i < 3; ++i)
          for (int64_t q = 0; q < 7; ++q)
            ASSERT_EQ(y.at({b, i, q}), x.at({b, static_cast<int64_t>(index.at({b, i, 0})),
                                             static_cast<int64_t>(index.at({b, i, 1})), q}));
      StridedTensor whole = StridedTensor::random_layout(DType::kI32, {9, 4}),
                    z = StridedTensor::random_layout(type, {9});
      whole.fill_integers(-4, 3);
      const GatherNdParams none{0};
      run_kernel(table, &KernelTable::gather_nd, {x.view(), whole.view()}, z.view(), &none, threads);
      for (int64_t i = 0; i < 9; ++i) {
        std::vector<int64_t> at;
        for (int64_t j = 0; j < 4; ++j) at.push_back((static_cast<int64_t>(whole.at({i, j})) + 4 + j) % (4 + j));
        ASSERT_EQ(z.at({i}), x.at(at));
      }
    }
  });
}

TEST(GatherElements, along_each_axis) {
  for_each_isa([](const KernelTable& table, int threads) {
    for (int axis = 0; axis < 2; ++axis) {
      StridedTensor x = StridedTensor::random_layout(DType::kF32, {70, 80}),
                    index = StridedTensor::random_layout(DType::kI64, {66, 71});
      StridedTensor y = StridedTensor::random_layout(DType::kF32, {66, 71});
      x.fill();
      index.fill_integers(-70, 69);
      const AxisParams p{axis};
      run_kernel(table, &KernelTable::gather_elements, {x.view(), index.view()}, y.view(), &p, threads);
      for (int64_t i = 0; i < 66; ++i) {
        for (int64_t j = 0; j < 71; ++j) {
          int64_t at = static_cast<int64_t>(index.at({i, j}));
          if (at < 0) at += axis == 0 ? 70 : 80;
          ASSERT_EQ(y.at({i, j}), axis == 0 ? x.at({at, j}) : x.at({i, at}));
        }
      }
    }
  });
}

TEST(ScatterNd, rows_into_a_copy_or_in_place) {
  for_each_isa([](const KernelTable& table, int threads) {
    for (bool in_place : {false, true}) {
      StridedTensor x = StridedTensor::random_layout(DType::kF32, {90, 4, 20}),
                    y = StridedTensor::random_layout(DType::kF32, {90, 4, 20});
      StridedTensor index = StridedTensor::random_layout(DType::kI64, {30, 1}),
                    u = StridedTensor::random_layout(DType::kF32, {30, 4, 20});
      x.fill();
      u.fill();
      std::vector<double> want;
      for (int64_t i = 0; i < x.count(); ++i) want.push_back(x.get(i));
      for (int64_t i = 0; i < 30; ++i) {
        const int64_t row = (i * 37) % 90;
        index.set(i, static_cast<double>(i % 2 == 0 ? row : row - 90));
        for (int64_t j = 0; j < 80; ++j) want[static_cast<size_t>(row * 80 + j)] = u.get(i * 80 + j);
      }
      const ScatterParams p{0, ScatterKind::kNone};
      StridedTensor& to = in_place ? x : y;
      const RunResult r =
          run_kernel(table, &KernelTable::scatter_nd, {x.view(), index.view(), u.view()}, to.view(), &p, threads);
      for (int64_t i = 0; i < to.count(); ++i) ASSERT_EQ(to.get(i), want[static_cast<size_t>(i)]);
      EXPECT_EQ(r.ledger.copied, in_place ? 0 : x.count() * 4);
      ASSERT_TRUE(to.untouched_outside());
    }
  });
}

TEST(ScatterNd, reductions_add_up_where_indices_repeat) {
  for_each_isa([](const KernelTable& table, int threads) {
    StridedTensor x(DType::kF16, {5, 3}), index(DType::kI64, {4, 2}), u(DType::kF16, {4}), y(DType::kF16, {5, 3});
    x.fill_integers(1, 1);
    index.fill_integers(0, 0).set(0, 4);
    u.fill_integers(2, 2);
    const ScatterParams add{0, ScatterKind::kAdd}, mul{0, ScatterKind::kMul};
    run_kernel(table, &KernelTable::scatter_nd, {x.view(), index.view(), u.view()}, y.view(), &add, threads);
    EXPECT_EQ(y.at({0, 0}), 7);
    EXPECT_EQ(y.at({4, 0}), 3);
    run_kernel(table, &KernelTable::scatter_nd, {x.view(), index.view(), u.view()}, y.view(), &mul, threads);
    EXPECT_EQ(y.at({0, 0}), 8);
    index.set(1, 3);  // one past the end: left out and reported
    EXPECT_NE(run_kernel(table, &KernelTable::scatter_nd, {x.view(), index.view(), u.view()}, y.view(), &add, threads)
                  .fault.what,
              nullptr);
    EXPECT_EQ(y.at({4, 0}), 1);
  });
}

TEST(ScatterElements, along_each_axis) {
  for_each_isa([](const KernelTable& table, int threads) {
    for (int axis = 0; axis < 3; ++axis) {
      for (ScatterKind kind : {ScatterKind::kNone, ScatterKind::kAdd, ScatterKind::kMax}) {
        const std::vector<int64_t> dims = {9, 25, 30}, few = {7, 20, 30};
        StridedTensor x = StridedTensor::random_layout(DType::kI32, dims),
                      y = StridedTensor::random_layout(DType::kI32, dims);
        StridedTensor index = StridedTensor::random_layout(DType::kI64, few),
                      u = StridedTensor::random_layout(DType::kI32, few);
        x.fill_integers(0, 99);
        u.fill_integers(0, 99);
        index.fill_integers(0, 6);
        StridedTensor want(DType::kI32, dims);
        for (int64_t i = 0; i < x.count(); ++i) want.set(i, x.get(i));
        for (int64_t i = 0; i < u.count(); ++i) {
          std::vector<int64_t> at = {i / 600, i / 30 % 20, i % 30};
          at[axis] = static_cast<int64_t>(index.get(i));
          const int64_t flat = (at[0] * 25 + at[1]) * 30 + at[2];
          const double old = want.get(flat), v = u.get(i);
          want.set(flat, kind == ScatterKind::kAdd ? old + v : kind == ScatterKind::kMax ? std::max(old, v) : v);
        }
        const ScatterParams p{axis, kind};
        run_kernel(table, &KernelTable::scatter_elements, {x.view(), index.view(), u.view()}, y.view(), &p, threads);
        for (int64_t i = 0; i < y.count(); ++i) ASSERT_EQ(y.get(i), want.get(i)) << "axis " << axis;
        ASSERT_TRUE(y.untouched_outside());
      }
    }
  });
}

}  // namespace
}  // namespace situ
