#include "kernels/strided_test.h"

namespace situ {
namespace {

struct Case {
  int64_t q_heads, k_heads, v_heads, keys, values, tokens;
  bool delta, decays, by_key, past, columns_first, one_beta;
};

// Operands of one call; q, k and v with gaps between rows, and numbers of a token apart where `turned`.
struct Operands {
  Operands(const Case& c, bool turned)
      : q(rows(c, c.q_heads * c.keys, turned)),
        k(rows(c, c.k_heads * c.keys, turned)),
        v(rows(c, c.v_heads * c.values, turned)),
        past(state(c)),
        decay(rows(c, c.v_heads * (c.by_key ? c.keys : 1), false)),
        beta(rows(c, c.one_beta ? 1 : c.v_heads, false)),
        out(rows(c, std::max(c.q_heads, c.v_heads) * c.values, turned)),
        present(state(c)) {
    for (StridedTensor* t : {&q, &k, &v, &past, &decay, &beta}) t->fill(-1, 1);
    View g = decay.view();  // no state grows without bound
    for (int64_t t = 0; t < g.dims[1]; ++t)
      for (int64_t i = 0; i < g.dims[2]; ++i) {
        float& x = g.as<float>()[t * g.strides[1] + i * g.strides[2]];
        x = -std::fabs(x);
      }
  }
  static StridedTensor rows(const Case& c, int64_t width, bool turned) {
    return StridedTensor(DType::kF32, {1, c.tokens, width},
                         turned ? std::vector<int>{0, 2, 1} : std::vector<int>{0, 1, 2}, 3);
  }
  static StridedTensor state(const Case& c) {
    return StridedTensor(DType::kF32,
                         {1, c.v_heads, c.columns_first ? c.values : c.keys, c.columns_first ? c.keys : c.values});
  }
  StridedTensor q, k, v, past, decay, beta, out, present;
};

// The formula, in double: [tokens][results * values], and the state behind them.
struct Reference {
  std::vector<double> out, state;
};
Reference reference(const Case& c, Operands& o, float scale) {
  const int64_t results = std::max(c.q_heads, c.v_heads), groups = std::max<int64_t>(1, c.q_heads / c.v_heads);
  Reference r;
  r.out.resize(static_cast<size_t>(c.tokens * results * c.values));
  std::vector<double> s(static_cast<size_t>(c.v_heads * c.keys * c.values));
  const auto at = [&](int64_t h, int64_t i, int64_t j) -> double& {
    return s[static_cast<size_t>((h * c.keys + i) * c.values + j)];
  };
  for (int64_t h = 0; h < c.v_heads; ++h)
    for (int64_t i = 0; i < c.keys; ++i)
      for (int64_t j = 0; j < c.values; ++j)
        at(h, i, j) = !c.past ? 0 : c.columns_first ? o.past.at({0, h, j, i}) : o.past.at({0, h, i, j});
  for (int64_t t = 0; t < c.tokens; ++t)
    for (int64_t h = 0; h < c.v_heads; ++h)
      for (int64_t j = 0; j < c.values; ++j) {
        const auto key = [&](int64_t i) { return o.k.at({0, t, h * c.k_heads / c.v_heads * c.keys + i}); };
        double known = 0;
        for (int64_t i = 0; i < c.keys; ++i) {
          if (c.decays) at(h, i, j) *= std::exp(o.decay.at({0, t, c.by_key ? h * c.keys + i : h}));
          known += key(i) * at(h, i, j);
        }
        double added = o.v.at({0, t, h * c.values + j});
        if (c.delta) added = o.beta.at({0, t, c.one_beta ? 0 : h}) * (added - known);
        for (int64_t i = 0; i < c.keys; ++i) at(h, i, j) += key(i) * added;
        for (int64_t g = 0; g < groups; ++g) {
          const int64_t head = groups > 1 ? h * groups + g : h, query = groups > 1 ? head : h * c.q_heads / c.v_heads;
          double sum = 0;
          for (int64_t i = 0; i < c.keys; ++i) sum += o.q.at({0, t, query * c.keys + i}) * at(h, i, j);
          r.out[static_cast<size_t>((t * results + head) * c.values + j)] = scale * sum;
        }
      }
  r.state = s;
  return r;
}

void run(const KernelTable& table, const Case& c, Operands& o, const View& past, const View& out, const View& present,
         int64_t first, int64_t count, int threads) {
  const LinearAttentionParams params{c.q_heads, c.k_heads, c.v_heads, 0.5f, c.delta, c.columns_first};
  const auto part = [&](View v) {
    v.data += first * v.strides[1] * 4;
    v.dims[1] = count;
    return v;
  };
  const View in[6] = {part(o.q.view()),
                      part(o.k.view()),
                      part(o.v.view()),
                      past,
                      c.decays ? part(o.decay.view()) : View{},
                      c.delta ? part(o.beta.view()) : View{}};
  const View results[2] = {part(out), present};
  KernelCall call;
  call.in = in;
  call.in_count = 6;
  call.out = results;
  call.out_count = 2;
  call.params = &params;
  run_kernel(table, &KernelTable::linear_attention, call, threads);
}

const Case kCases[] = {
    {1, 1, 1, 1, 1, 1, true, true, false, true, false, false},
    {2, 2, 4, 32, 32, 9, true, true, false, true, false, false},
    {4, 2, 2, 16, 7, 5, true, true, true, true, true, true},
    {3, 3, 3, 5, 70, 4, true, false, false, true, false, false},
    {2, 2, 2, 8, 33, 6, false, true, true, false, false, false},
    {4, 1, 1, 17, 130, 3, false, true, false, true, true, false},
    {2, 2, 6, 12, 20, 7, false, false, false, true, false, false},
};

// By the formula; and the same bits however the tokens are cut, in another state or in the one that is read.
TEST(LinearAttention, IsTheRecurrence) {
  for (const Case& c : kCases)
    for (const bool turned : {false, true}) {
      Operands o(c, turned);
      const Reference want = reference(c, o, 0.5f);
      const int64_t width = o.out.view().dims[2];
      for_each_isa([&](const KernelTable& table, int threads) {
        o.out.reset();
        o.present.reset();
        run(table, c, o, c.past ? o.past.view() : View{}, o.out.view(), o.present.view(), 0, c.tokens, threads);
        EXPECT_TRUE(o.out.untouched_outside());
        EXPECT_TRUE(o.present.untouched_outside());
        std::vector<double> at_once;
        for (int64_t t = 0; t < c.tokens; ++t)
          for (int64_t i = 0; i < width; ++i) {
            at_once.push_back(o.out.at({0, t, i}));
            ASSERT_NEAR(at_once.back(), want.out[static_cast<size_t>(t * width + i)], 1e-4 * (1 + c.keys)) << t;
          }
        const auto state = [&] {
          std::vector<double> s;
          for (int64_t h = 0; h < c.v_heads; ++h)
            for (int64_t i = 0; i < c.keys; ++i)
              for (int64_t j = 0; j < c.values; ++j)
                s.push_back(c.columns_first ? o.present.at({0, h, j, i}) : o.present.at({0, h, i, j}));
          return s;
        };
        const std::vector<double> whole = state();
        for (size_t i = 0; i < whole.size(); ++i) ASSERT_NEAR(whole[i], want.state[i], 1e-4 * (1 + c.tokens));
        o.out.reset();
        for (int64_t t = 0; t < c.tokens; t += 2) {
          const View past = t > 0 ? o.present.view() : c.past ? o.past.view() : View{};
          run(table, c, o, past, o.out.view(), o.present.view(), t, std::min<int64_t>(2, c.tokens - t),
              t % 4 == 0 ? threads : 1);
        }
        for (int64_t t = 0; t < c.tokens; ++t)
          for (int64_t i = 0; i < width; ++i)
            ASSERT_EQ(o.out.at({0, t, i}), at_once[static_cast<size_t>(t * width + i)]);
        EXPECT_EQ(state(), whole);
      });
    }
}

}  // namespace
}  // namespace situ
