#include <gtest/gtest.h>

#include <array>

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

// By the formula; and the same bits however the tokens are cut, wherever their rows lie.
TEST(CausalConv, IsTheSumOverTheLastRows) {
  for (const auto& [channels, taps, past, tokens] :
       {std::array<int64_t, 4>{1, 1, 0, 1}, {5, 4, 0, 1}, {16, 4, 2, 3}, {33, 3, 7, 1}, {40, 5, 9, 12}, {7, 4, 0, 6}}) {
    const int64_t all = past + tokens;
    // Runs of slots, the second one in front of the first.
    const std::vector<situ::Run> runs =
        past > 1 ? std::vector<situ::Run>{{30, past - 1}, {4, tokens + 1}} : std::vector<situ::Run>{{9, all}};
    std::vector<int64_t> slots;
    for (const situ::Run& r : runs)
      for (int64_t i = 0; i < r.length; ++i) slots.push_back(r.first_slot + i);
    StridedTensor state(DType::kF32, {1, channels, 64}, {0, 2, 1}), w(DType::kF32, {taps, channels}),
        b(DType::kF32, {channels});
    for (StridedTensor* t : {&state, &w, &b}) t->fill();
    for (const bool strided : {false, true}) {
      StridedTensor y(DType::kF32, {1, channels, tokens}, strided ? std::vector<int>{} : std::vector<int>{0, 2, 1},
                      strided ? 2 : 0);
      for_each_isa([&](const KernelTable& table, int threads) {
        // Tokens [first, first + count).
        const auto run = [&](int64_t first, int64_t count, bool with_bias) {
          View x = state.view(), out = y.view();
          x.data += slots[static_cast<size_t>(past + first)] * x.strides[2] * 4;
          out.data += first * out.strides[2] * 4;
          x.dims[2] = out.dims[2] = count;
          const View in[4] = {state.view(), x, w.view(), with_bias ? b.view() : View{}};
          KernelCall call;
          call.in = in;
          call.in_count = 4;
          call.out = &out;
          call.out_count = 1;
          StepSegment segment;
          segment.runs = runs.data();
          segment.run_count = static_cast<int>(runs.size());
          segment.keys = past + first + count;
          call.segments = &segment;
          call.segment_count = 1;
          run_kernel(table, &KernelTable::causal_conv, call, threads);
        };
        std::vector<double> at_once;
        for (const bool with_bias : {false, true}) {
          y.reset();
          run(0, tokens, with_bias);
          EXPECT_TRUE(y.untouched_outside());
          for (int64_t c = 0; c < channels; ++c)
            for (int64_t i = 0; i < tokens; ++i) {
              double sum = with_bias ? b.at({c}) : 0;
              for (int64_t j = 0; j < taps; ++j)
                if (const int64_t token = past + i + j - (taps - 1); token >= 0)
                  sum += w.at({j, c}) * state.at({0, c, slots[static_cast<size_t>(token)]});
              ASSERT_NEAR(y.at({0, c, i}), sum, 1e-5) << c << ", " << i;
              if (with_bias) at_once.push_back(y.at({0, c, i}));
            }
        }
        y.reset();
        for (int64_t i = 0; i < tokens; ++i) run(i, 1, true);
        size_t next = 0;
        for (int64_t c = 0; c < channels; ++c)
          for (int64_t i = 0; i < tokens; ++i) ASSERT_EQ(y.at({0, c, i}), at_once[next++]);
      });
    }
  }
}

// Without runs: rows are those of T tokens, one behind the other.
TEST(CausalConv, OfRowsInOrder) {
  StridedTensor rows(DType::kF32, {1, 6, 9}, {0, 2, 1}), w(DType::kF32, {4, 6}), y(DType::kF32, {1, 6, 2});
  rows.fill();
  w.fill();
  View x = rows.view();
  x.data += 7 * x.strides[2] * 4;
  x.dims[2] = 2;
  for_each_isa([&](const KernelTable& table, int threads) {
    run_kernel(table, &KernelTable::causal_conv, {rows.view(), x, w.view()}, y.view(), nullptr, threads);
    for (int64_t c = 0; c < 6; ++c)
      for (int64_t i = 0; i < 2; ++i) {
        double sum = 0;
        for (int64_t j = 0; j < 4; ++j) sum += w.at({j, c}) * rows.at({0, c, 7 + i + j - 3});
        ASSERT_NEAR(y.at({0, c, i}), sum, 1e-5);
      }
  });
}

}  // namespace
}  // namespace situ
