// linear_attention: a state S [K, V] for each head of v, which the tokens of one sequence change one after the other:
//   S = exp(g_t) S                          g_t: a number, or one for each row of S; none: S stays
//   S = S + k_t (beta_t (v_t - S' k_t))'    delta; beta_t: a number; else S = S + k_t v_t'
//   o_t = scale S' q_t
// q [1, T, Hq * K], k [1, T, Hk * K], v [1, T, H * V], past [1, H, K, V], g [1, T, H] or [1, T, H * K], beta [1, T, H]
// or [1, T, 1] -> o [1, T, max(Hq, H) * V], present [1, H, K, V]; all float32. Head h reads head h * Hq / H of q, or
// several of them, each with a result of its own, and head h * Hk / H of k. Without past S begins with zeros. Present
// may be past. Source: LinearAttention of ONNX 27 and onnxruntime.
//
// Columns of S do not depend on each other: some of them are taken through all tokens in scratch. Tokens come one by
// one, so that results have the same bits however a prompt is cut. Threads share heads and columns, always in the same
// way: what a thread reads of a state no other thread has written in the call before.
#include "kernels/isa.h"
#include "kernels/kernel.h"
#include "kernels/params.h"
#include "kernels/simd.h"

namespace situ {
namespace SITU_ISA {
namespace {

constexpr int kMostVectors = 4;  // of columns that are computed together: as many sums as hide how long one takes
constexpr int64_t kMostColumns = kMostVectors * kLanes;

struct Problem {
  const KernelCall& call;
  const LinearAttentionParams& p;
  int64_t tokens, keys, values;
  int64_t groups;  // results of a head
  const View* past;
  const View* decay;
  const View* beta;
  bool decay_by_key;
};

// What one head has of columns [first, first + count), in scratch.
struct Block {
  int64_t head, first, count;
  float* rows;    // [keys, vectors * kLanes]
  float* decays;  // [keys]
};

const View* given(const KernelCall& call, int i) {
  return i < call.in_count && call.in[i].present() ? &call.in[i] : nullptr;
}

// Element 0 of head `head`, `size` wide, of token `token`.
const float* row_of(const View& x, int64_t token, int64_t head, int64_t size) {
  return x.as<const float>() + token * x.strides[1] + head * size * x.strides[2];
}

// Of a state, the first element of the block, and how far apart rows and columns are.
struct Place {
  float* at;
  int64_t row, column;
};
Place place_of(const View& state, const Block& b, bool columns_first) {
  const int64_t row = state.strides[columns_first ? 3 : 2], column = state.strides[columns_first ? 2 : 3];
  return {state.as<float>() + b.head * state.strides[1] + b.first * column, row, column};
}

template <int V>
void read_block(const Problem& p, const Block& b) {
  constexpr int64_t kWidth = V * kLanes;
  if (p.past == nullptr) {
    for (int64_t i = 0; i < p.keys * kWidth; ++i) b.rows[i] = 0;
    return;
  }
  const Place s = place_of(*p.past, b, p.p.columns_first);
  for (int64_t i = 0; i < p.keys; ++i) {
    float* const to = b.rows + i * kWidth;
    const float* const from = s.at + i * s.row;
    if (s.column == 1 && b.count == kWidth) {
      for (int c = 0; c < V; ++c) store(to + c * kLanes, load(from + c * kLanes));
      continue;
    }
    for (int64_t c = 0; c < kWidth; ++c) to[c] = c < b.count ? from[c * s.column] : 0.0f;
  }
}

template <int V>
void write_block(const Problem& p, const Block& b) {
  constexpr int64_t kWidth = V * kLanes;
  const Place s = place_of(p.call.out[1], b, p.p.columns_first);
  for (int64_t i = 0; i < p.keys; ++i) {
    const float* const from = b.rows + i * kWidth;
    float* const to = s.at + i * s.row;
    if (s.column == 1 && b.count == kWidth) {
      for (int c = 0; c < V; ++c) store(to + c * kLanes, load(from + c * kLanes));
      continue;
    }
    for (int64_t c = 0; c < b.count; ++c) to[c * s.column] = from[c];
  }
}

// The factors of the rows of S before a token, and how far apart these stand: 0 where all rows have the same one.
int64_t decays_of(const Problem& p, const Block& b, int64_t token) {
  if (p.decay == nullptr) {
    b.decays[0] = 1;
    return 0;
  }
  const float* const g = row_of(*p.decay, token, b.head, p.decay_by_key ? p.keys : 1);
  const int64_t step = p.decay->strides[2], count = p.decay_by_key ? p.keys : 1;
  for (int64_t i = 0; i < count; ++i) b.decays[i] = fast_exp(g[i * step]);
  return p.decay_by_key ? 1 : 0;
}

template <int V>
void write_result(const Problem& p, const Block& b, int64_t token, int64_t head, const VecF* sums) {
  const View& out = p.call.out[0];
  float result[V * kLanes];
  for (int c = 0; c < V; ++c) store(result + c * kLanes, sums[c] * p.p.scale);
  const int64_t step = out.strides[2];
  float* const y = out.as<float>() + token * out.strides[1] + (head * p.values + b.first) * step;
  for (int64_t c = 0; c < b.count; ++c) y[c * step] = result[c];
}

template <int V>
void take_token(const Problem& p, const Block& b, int64_t token) {
  constexpr int64_t kWidth = V * kLanes;
  const int64_t k_head = b.head * p.p.k_heads / p.p.v_heads, q_head = b.head * p.p.q_heads / p.p.v_heads;
  const float* const k = row_of(p.call.in[1], token, k_head, p.keys);
  const float* const v = row_of(p.call.in[2], token, b.head, p.values);
  const int64_t k_step = p.call.in[1].strides[2], v_step = p.call.in[2].strides[2], q_step = p.call.in[0].strides[2];
  const int64_t decay_step = decays_of(p, b, token);
  float numbers[kWidth];
  for (int64_t c = 0; c < kWidth; ++c) numbers[c] = c < b.count ? v[(b.first + c) * v_step] : 0.0f;
  VecF added[V];
  for (int c = 0; c < V; ++c) added[c] = load(numbers + c * kLanes);
  if (p.p.delta) {
    VecF known[V] = {};
    for (int64_t i = 0; i < p.keys; ++i) {
      float* const row = b.rows + i * kWidth;
      const VecF decay = splat(b.decays[i * decay_step]), key = splat(k[i * k_step]);
      for (int c = 0; c < V; ++c) {
        const VecF s = load(row + c * kLanes) * decay;
        store(row + c * kLanes, s);
        known[c] += key * s;
      }
    }
    const VecF beta = splat(*row_of(*p.beta, token, p.beta->dims[2] == 1 ? 0 : b.head, 1));
    for (int c = 0; c < V; ++c) added[c] = beta * (added[c] - known[c]);
  }
  const float* q = row_of(p.call.in[0], token, q_head, p.keys);
  VecF sums[V] = {};
  for (int64_t i = 0; i < p.keys; ++i) {
    float* const row = b.rows + i * kWidth;
    const VecF decay = splat(p.p.delta ? 1.0f : b.decays[i * decay_step]), key = splat(k[i * k_step]),
               query = splat(q[i * q_step]);
    for (int c = 0; c < V; ++c) {
      const VecF s = load(row + c * kLanes) * decay + key * added[c];
      store(row + c * kLanes, s);
      sums[c] += query * s;
    }
  }
  const int64_t results = b.head * p.groups;
  write_result<V>(p, b, token, results, sums);
  for (int64_t other = 1; other < p.groups; ++other) {
    q = row_of(p.call.in[0], token, q_head + other, p.keys);
    for (int c = 0; c < V; ++c) sums[c] = VecF{};
    for (int64_t i = 0; i < p.keys; ++i)
      for (int c = 0; c < V; ++c) sums[c] += splat(q[i * q_step]) * load(b.rows + i * kWidth + c * kLanes);
    write_result<V>(p, b, token, results + other, sums);
  }
}

template <int V>
void take_block(const Problem& p, const Block& b) {
  read_block<V>(p, b);
  for (int64_t t = 0; t < p.tokens; ++t) take_token<V>(p, b, t);
  write_block<V>(p, b);
}

}  // namespace

void linear_attention(const KernelCall& call, int thread, int threads) {
  const auto& params = *static_cast<const LinearAttentionParams*>(call.params);
  const View &q = call.in[0], &v = call.in[2];
  Problem p{call,
            params,
            q.dims[1],
            q.dims[2] / params.q_heads,
            v.dims[2] / params.v_heads,
            1,
            given(call, 3),
            given(call, 4),
            given(call, 5),
            false};
  if (params.q_heads > params.v_heads) p.groups = params.q_heads / params.v_heads;
  p.decay_by_key = p.decay != nullptr && p.decay->dims[2] != params.v_heads;
  const int64_t blocks = (p.values + kMostColumns - 1) / kMostColumns, units = params.v_heads * blocks;
  float* const scratch = reinterpret_cast<float*>(call.scratch);
  for (int64_t unit = units * thread / threads; unit < units * (thread + 1) / threads; ++unit) {
    const int64_t first = unit % blocks * kMostColumns, left = p.values - first;
    const Block b{unit / blocks, first, left < kMostColumns ? left : kMostColumns, scratch + p.keys, scratch};
    switch ((b.count + kLanes - 1) / kLanes) {
      case 1:
        take_block<1>(p, b);
        break;
      case 2:
        take_block<2>(p, b);
        break;
      case 3:
        take_block<3>(p, b);
        break;
      default:
        take_block<4>(p, b);
    }
  }
}

}  // namespace SITU_ISA
}  // namespace situ
