// situ.Rotary against the formula in double.
#include "kernels/strided_test.h"

namespace situ {
namespace {

struct Case {
  int64_t batch = 2, heads = 3, tokens = 4, size = 20, rotary = 12;
  bool interleaved = false, full = false, in_place = false;
  int positions = 0;  // 0: cos and sin broadcast, 1: one position, 2: [B, S]
  DType type = DType::kF32;
  bool pairs_to_halves = false;
};

void check(const Case& t) {
  SCOPED_TRACE("rotary " + std::to_string(t.rotary) + " positions " + std::to_string(t.positions) +
               (t.interleaved ? " interleaved" : "") + (t.full ? " full" : "") + (t.in_place ? " in place" : "") +
               (t.pairs_to_halves ? " pairs to halves" : ""));
  const int64_t width = t.full ? t.rotary : t.rotary / 2;
  const std::vector<int64_t> dims = {t.batch, t.heads, t.tokens, t.size};
  StridedTensor source(t.type, dims), x = StridedTensor::random_layout(t.type, dims),
                                      y = StridedTensor::random_layout(t.type, dims);
  const std::vector<int64_t> table_dims =
      t.positions != 0 ? std::vector<int64_t>{50, width} : std::vector<int64_t>{t.batch, 1, t.tokens, width};
  StridedTensor cos(DType::kF32, table_dims, {}, 1), sin(DType::kF32, table_dims, {}, 2);
  StridedTensor positions(DType::kI64,
                          t.positions == 2 ? std::vector<int64_t>{t.batch, t.tokens} : std::vector<int64_t>{1});
  source.fill();
  cos.fill();
  sin.fill();
  positions.fill_integers(0, 40);
  const RotaryParams params{t.rotary, t.interleaved, t.pairs_to_halves};
  const View in[4] = {x.view(), cos.view(), sin.view(), t.positions != 0 ? positions.view() : View{}};
  KernelCall call;
  call.in = in;
  call.in_count = 4;
  call.out = t.in_place ? &x.view() : &y.view();
  call.out_count = 1;
  call.params = &params;
  for_each_isa([&](const KernelTable& table, int threads) {
    for (int64_t i = 0; i < x.count(); ++i) x.set(i, source.get(i));
    y.reset();
    const RunResult run = run_kernel(table, &KernelTable::rotary, call, threads);
    ASSERT_EQ(run.fault.what, nullptr);
    const int64_t rest = t.batch * t.heads * t.tokens * (t.size - t.rotary) * dtype_bytes(t.type);
    ASSERT_EQ(run.ledger.copied, t.in_place ? 0 : rest);
    const StridedTensor& result = t.in_place ? x : y;
    ASSERT_TRUE(result.untouched_outside());
    for (int64_t row = 0; row < t.batch * t.heads * t.tokens; ++row) {
      const int64_t s = row % t.tokens, h = row / t.tokens % t.heads, b = row / t.tokens / t.heads;
      auto table_at = [&](const StridedTensor& v, int64_t c) {
        if (t.positions == 0) return v.at({b, 0, s, c});
        const auto p =
            static_cast<int64_t>(t.positions == 1 ? positions.get(0) + static_cast<double>(s) : positions.at({b, s}));
        return v.at({p, c});
      };
      for (int64_t i = 0; i < t.size; ++i) {
        const int64_t half = t.rotary / 2;
        auto from = [&](int64_t k) {
          return source.at({b, h, s, t.pairs_to_halves && k < t.rotary ? 2 * (k % half) + k / half : k});
        };
        double expected = from(i);
        if (i < t.rotary) {
          const bool first = t.interleaved ? i % 2 == 0 : i < half;
          const int64_t partner = t.interleaved ? i ^ 1 : (first ? i + half : i - half);
          const int64_t c = t.full ? i : (t.interleaved ? i / 2 : i % half);
          const double other = from(partner);
          expected = expected * table_at(cos, c) + (first ? -other : other) * table_at(sin, c);
        }
        ASSERT_NEAR(result.at({b, h, s, i}), expected, 1e-6 + rounding(t.type) * 2)
            << b << " " << h << " " << s << " " << i;
      }
    }
  });
}

TEST(Rotary, AllForms) {
  for (bool interleaved : {false, true}) {
    for (bool full : {false, true}) {
      for (bool in_place : {false, true}) {
        for (int positions : {0, 1, 2}) {
          for (int64_t rotary : {2, 12, 20})
            check({.rotary = rotary,
                   .interleaved = interleaved,
                   .full = full,
                   .in_place = in_place,
                   .positions = positions});
          check({.size = 64,
                 .rotary = 64,
                 .interleaved = interleaved,
                 .full = full,
                 .in_place = in_place,
                 .positions = positions,
                 .type = DType::kF16});
          if (interleaved) continue;
          for (int64_t rotary : {2, 12, 20})
            check({.rotary = rotary,
                   .full = full,
                   .in_place = in_place,
                   .positions = positions,
                   .pairs_to_halves = true});
        }
      }
    }
  }
}

TEST(Rotary, PositionOutsideTheTable) {
  StridedTensor x(DType::kF32, {1, 1, 2, 4}), y(DType::kF32, {1, 1, 2, 4}), cos(DType::kF32, {3, 2}),
      sin(DType::kF32, {3, 2}), p(DType::kI64, {1});
  x.fill(1, 2);
  cos.fill(1, 2);
  sin.fill(1, 2);
  p.set(0, 2);  // the second token stands at 3
  const RotaryParams params{4, false};
  const View in[4] = {x.view(), cos.view(), sin.view(), p.view()};
  KernelCall call;
  call.in = in;
  call.in_count = 4;
  call.out = &y.view();
  call.out_count = 1;
  call.params = &params;
  for_each_isa([&](const KernelTable& table, int threads) {
    const RunResult run = run_kernel(table, &KernelTable::rotary, call, threads);
    ASSERT_NE(run.fault.what, nullptr);
    ASSERT_EQ(run.fault.value, 3);
    ASSERT_EQ(run.fault.limit, 3);
    ASSERT_NE(y.get(0), 0);
    for (int64_t i = 4; i < 8; ++i) ASSERT_EQ(y.get(i), 0);
  });
}

}  // namespace
}  // namespace situ
