// softmax(scale * q k^T + bias) v with masks, over keys that may lie in runs of slots: the arithmetic of attention.cc and
// attention_split.cc.
//
// Rows are the (head, query) pairs of one batch; a tile is up to kMaxRows consecutive rows that share a KV head, so one
// read of a key serves all of them. Keys come in blocks; the softmax is online: per row the running maximum m, the sum l of
// exp(s - m) and the output o, rescaled whenever m grows (Milakov, Gimelshein: Online normalizer calculation for softmax;
// Dao et al.: FlashAttention). Blocks, and what is summed within them, are cut by the keys' order, not by where their runs end: a
// sequence has the same numbers wherever its tokens lie. A prompt's (KernelCall::prompt_rows) depend on no cut into steps either.
//   few rows (decode):    scores are dot products, values are added row by row
//   many rows (prefill):  both products run in register tiles, keys transposed into panels that several tiles share;
//                         of integers where attention_pairs.h says so
#pragma once

#include "kernels/attention_pairs.h"
#include "kernels/dots.h"
#include "kernels/params.h"
#include "kernels/rows.h"
#include "kernels/tile.h"

namespace situ {
namespace SITU_ISA {

// Rows of a tile, a multiple of kTileRows: more would be masked for nothing (512 queries over 512 keys with tiles of 48, 96
// and 192 rows: 4.3, 4.8, 6.5 ms).
constexpr int64_t kMaxRows = 48;
constexpr int64_t kKeyBlock = 128;  // most keys per step of the online softmax
constexpr int64_t kPanelFloats = 65536;  // most for the panels of a block's K and V
constexpr int64_t kFewRows = 7;     // up to here dot products beat packing the keys
static_assert(kKeyBlock % kTileColumns == 0);

struct Problem {
  const KernelCall& call;
  const AttentionParams& params;
  const View &q, &k, &v, &y;
  const View *bias, *slopes, *sink;
  int64_t batch, heads, queries, keys, depth, value_depth, group;
  int64_t o_row;  // value_depth rounded up to whole tiles
  int64_t block;  // keys per step
  bool pairs;     // products of many rows are integers (kernels/attention_pairs.h)
  Run whole;      // of keys that lie in no runs
  const Run* runs() const { return call.runs != nullptr ? call.runs : &whole; }
};

// Keys [first, first + count) of a sequence. `run` holds those from number `at` on, counted from `first`; the runs after it follow.
struct Keys {
  int64_t first, count;
  const Run* run;
  int64_t at;
  // The same from key j on, so that nobody goes through the runs before it again.
  Keys from(int64_t j) const {
    Keys keys = *this;
    while (keys.at + keys.run->length <= j) keys.at += keys.run++->length;
    return keys;
  }
};

// Calls body(j, n, slot) for keys j .. j + n, counted from keys.first, that lie in slots slot .. slot + n; all of them from `from`
// up to `to`.
template <typename Body>
SITU_INLINE void each_stretch(const Keys& keys, int64_t from, int64_t to, Body body) {
  const Run* run = keys.run;
  for (int64_t at = keys.at; at < to; at += run++->length) {
    const int64_t begin = at < from ? from : at, end = at + run->length < to ? at + run->length : to;
    if (begin < end) body(begin, end - begin, run->first_slot + begin - at);
  }
}

// Calls body(keys) for the blocks of keys [begin, end), in order. A prompt's are those of p.block tokens of its sequence, wherever a
// step begins and whichever tokens are not kept any more.
template <typename Body>
SITU_INLINE void each_block(const Problem& p, int64_t begin, int64_t end, Body body) {
  Keys keys{begin, 0, p.runs(), -begin};
  for (; keys.first < end; keys.first += keys.count, keys.at -= keys.count) {
    keys = keys.from(0);
    const int64_t most = p.call.prompt_rows > 0 ? p.block - (keys.first + p.call.dropped) % p.block : p.block;
    keys.count = end - keys.first < most ? end - keys.first : most;
    body(keys);
  }
}

struct Tile {
  float* q;        // [rows][depth], scaled
  float* o;        // [rows][o_row]
  float* scores;   // [rows][kKeyBlock]
  float* addend;   // [kKeyBlock]: a row of bias
  int64_t batch, first, rows;  // rows first .. first + rows of batch `batch`
  int64_t done;                // rows below it, of many, may not attend to this block of keys any more
  float m[kMaxRows], l[kMaxRows];
  float shrink[kMaxRows];      // what o must be multiplied by before more is added to it
  int64_t begin[kMaxRows], end[kMaxRows];  // keys that each row may attend to, beside AttentionParams::first
  int64_t first_key, last_key;             // [first_key, last_key): those of any row
  bool rounded;                // q holds pairs of integers, a row where it was, each worth q_scale
  float q_scale[kMaxRows];
  float weight[kMaxRows];      // what the integer 1 among the row's weights is worth
};

// K and V of one block of keys as the register tiles read them.
struct Panels {
  float* keys;    // [keys / kTileColumns][depth][kTileColumns]; or pairs [..][depth / 2][kTileColumns], then scales [keys]
  float* values;  // [o_row / kTileColumns][keys][kTileColumns]; or pairs [..][keys / 2][kTileColumns], then scales [o_row]
};

static inline const View* operand(const KernelCall& call, int i) {
  return i < call.in_count && call.in[i].present() ? &call.in[i] : nullptr;
}

static inline int64_t clamp(int64_t x, int64_t low, int64_t high) { return x < low ? low : (x > high ? high : x); }

// Numbers in a row of keys or values.
static inline int64_t row_size(const View& v) { return v.dims[3] - (v.type == DType::kI8 ? kRowScaleBytes : 0); }

// What the integers of a row are worth, for 8-bit rows (kernels/params.h).
template <typename T>
constexpr bool kScaledRows = false;
template <>
constexpr bool kScaledRows<int8_t> = true;
SITU_INLINE float row_scale(const int8_t* row, int64_t step, int64_t size) {
  if (step == 1) return *reinterpret_cast<const FloatAnywhere*>(row + size);
  int8_t bytes[kRowScaleBytes];
  for (int64_t i = 0; i < kRowScaleBytes; ++i) bytes[i] = row[(size + i) * step];
  return *reinterpret_cast<const FloatAnywhere*>(bytes);
}
// Columns [from, to) of all rows of scores, times what the integers of the block's keys or values are worth; `v`: of slot 0.
template <typename T>
SITU_INLINE void scale_columns(int64_t rows, const T* v, int64_t step, int64_t size, const Keys& keys, int64_t from, int64_t to, float* scores) {
  if constexpr (kScaledRows<T>) {
    each_stretch(keys, from, to, [&](int64_t first, int64_t count, int64_t slot) __attribute__((always_inline)) {
      for (int64_t j = 0; j < count; j += kLanes) {
        const int64_t n = count - j < kLanes ? count - j : kLanes;
        float scales[kLanes] = {};
        for (int64_t i = 0; i < n; ++i) scales[i] = row_scale(v + (slot + j + i) * step, 1, size);
        const VecF factor = load(scales);
        for (int64_t r = 0; r < rows; ++r) {
          float* s = scores + r * kKeyBlock + first + j;
          store_n(s, load_n(s, n) * factor, n);
        }
      }
    });
  }
}

static inline Problem make_problem(const KernelCall& call) {
  const View &q = call.in[0], &k = call.in[1], &v = call.in[2];
  Problem p{call,    *static_cast<const AttentionParams*>(call.params), q, k, v, call.out[0], operand(call, 3),
            operand(call, 4), operand(call, 5), q.dims[0], q.dims[1], q.dims[2], k.dims[2], q.dims[3], row_size(v), 1, 0, kKeyBlock, false, {0, k.dims[2]}};
  if (call.runs != nullptr) p.keys = call.keys;
  p.group = k.dims[1] > 0 ? p.heads / k.dims[1] : 1;
  p.o_row = (p.value_depth + kTileColumns - 1) / kTileColumns * kTileColumns;
  while (p.block > kTileColumns && (p.depth + p.o_row) * p.block > kPanelFloats) p.block /= 2;
  p.pairs = kVnni && k.type != DType::kF32 && v.type != DType::kF32 && p.depth >= 4 && p.depth <= kMostPairDepth && k.strides[3] == 1 && v.strides[3] == 1;
  return p;
}

// Floats of scratch, for each row of a tile and beside them.
static inline int64_t row_floats(const Problem& p) { return p.depth + p.o_row; }
static inline int64_t panel_floats(const Problem& p) { return (p.depth + p.o_row) * p.block; }

// Reads the rows of q and finds the keys that each may attend to.
static inline void start_tile(const Problem& p, Tile* t) {
  t->first_key = p.keys;
  t->last_key = 0;
  t->rounded = false;
  for (int64_t r = 0; r < t->rows; ++r) {
    const int64_t head = (t->first + r) / p.queries, query = (t->first + r) % p.queries;
    const int64_t at = t->batch * p.q.strides[0] + head * p.q.strides[1] + query * p.q.strides[2];
    float* q = t->q + r * p.depth;
    read_row(p.q.data, p.q.type, at, p.q.strides[3], p.depth, q);
    for (int64_t d = 0; d < p.depth; d += kLanes) {
      const int64_t n = p.depth - d < kLanes ? p.depth - d : kLanes;
      store_n(q + d, load_n(q + d, n) * p.params.scale, n);
    }
    for (int64_t d = 0; d < p.o_row; d += kLanes) store(t->o + r * p.o_row + d, VecF{});
    // A sink is a key without a value: it only takes part in the denominator.
    const bool sinks = p.sink != nullptr || p.params.smooth_sink;
    t->m[r] = p.sink != nullptr ? read_float(p.sink->data, p.sink->type, head * p.sink->strides[0]) : 0.0f;
    t->l[r] = 1;
    if (!sinks || !(t->m[r] > -__builtin_inff())) {
      t->m[r] = -__builtin_inff();
      t->l[r] = 0;
    }
    const int64_t position = p.keys - p.queries + query;
    t->end[r] = p.params.causal ? clamp(position + 1, 0, p.keys) : p.keys;
    t->begin[r] = p.params.window > 0 ? clamp(position - p.params.window + 1, 0, t->end[r]) : 0;
    t->shrink[r] = 1;
    if (t->begin[r] >= t->end[r]) continue;
    const int64_t first = p.params.first > 0 ? 0 : t->begin[r];
    t->first_key = first < t->first_key ? first : t->first_key;
    t->last_key = t->end[r] > t->last_key ? t->end[r] : t->last_key;
  }
}

// Calls body(RowCount<R>, first) for groups of four rows, then for the three, two or one that are left.
template <int R>
struct RowCount {
  static constexpr int kRows = R;
};
template <typename Body>
SITU_INLINE void groups_of_rows(int64_t rows, Body body) {
  int64_t r = 0;
  for (; r + 4 <= rows; r += 4) body(RowCount<4>{}, r);
  if (rows - r == 3) body(RowCount<3>{}, r);
  else if (rows - r == 2) body(RowCount<2>{}, r);
  else if (rows - r == 1) body(RowCount<1>{}, r);
}

// Scores of C keys that lie anywhere. Not inlined: beside the loop below GCC 12 would keep neither's sums in registers.
template <int R, int C, typename T>
__attribute__((noinline)) static void scattered_scores(const float* const* q, const T* const* rows, int64_t depth, float* s) {
  dots<R, C>(q, AnyRows<T>{rows}, depth, s, kKeyBlock);
}

// -- scores[r][j] = q[r] . key j, for the block's keys [from, to); `k` is slot 0's, keys of a stretch are `step` elements apart
template <int R, typename T>
SITU_INLINE void dot_scores(const Tile& t, int64_t depth, int64_t r0, const T* k, int64_t step, const Keys& keys, int64_t from, int64_t to) {
  constexpr int C = kLanes / R > 0 ? kLanes / R : 1;  // R * C sums fill one vector
  const float* q[R];
  for (int r = 0; r < R; ++r) q[r] = t.q + (r0 + r) * depth;
  const T* rows[C];
  int64_t waiting = 0;  // keys that are too few to fill it
  each_stretch(keys, from, to, [&](int64_t first, int64_t count, int64_t slot) __attribute__((always_inline)) {
    const T* row = k + slot * step;
    float* s = t.scores + r0 * kKeyBlock + first;
    int64_t j = 0;
    if (waiting > 0) {
      for (; j < count && waiting < C; ++j) rows[waiting++] = row + j * step;
      if (waiting < C) return;
      scattered_scores<R, C>(q, rows, depth, s + j - C);
      waiting = 0;
    }
    for (; j + C <= count; j += C) dots<R, C>(q, EvenRows<T>{row + j * step, step}, depth, s + j, kKeyBlock);
    for (; j < count; ++j) rows[waiting++] = row + j * step;
  });
  for (int64_t j = 0; j < waiting; ++j) scattered_scores<R, 1>(q, rows + j, depth, t.scores + r0 * kKeyBlock + to - waiting + j);
}

template <typename T>
static inline void few_scores(const Tile& t, int64_t depth, const T* k, int64_t step, const Keys& keys, int64_t from, int64_t to) {
  for (int64_t r = 0; r < t.rows; ++r) {
    for (int64_t j = from; j < to; ++j) t.scores[r * kKeyBlock + j] = 0;
  }
  groups_of_rows(t.rows, [&](auto rows, int64_t r) { dot_scores<decltype(rows)::kRows>(t, depth, r, k, step, keys, from, to); });
  scale_columns(t.rows, k, step, depth, keys, from, to, t.scores);
}

static inline int64_t pair_count(const Problem& p) { return (p.depth + 1) / 2; }
static inline int32_t* pair_keys(const Panels& panels) { return reinterpret_cast<int32_t*>(panels.keys); }
static inline float* pair_scales(const Problem& p, const Panels& panels) { return panels.keys + pair_count(p) * p.block; }
static inline int32_t* pair_values(const Problem& p, const Panels& panels, int64_t column) { return reinterpret_cast<int32_t*>(panels.values) + column * (p.block / 2); }
static inline float* value_inverses(const Problem& p, const Panels& panels) { return panels.values + p.o_row * (p.block / 2); }
static inline float* value_logs(const Problem& p, const Panels& panels) { return value_inverses(p, panels) + p.block; }
static_assert(kTileColumns >= 4);  // o_row / 2 rows of a block hold both

static inline void round_queries(const Problem& p, Tile* t) {
  for (int64_t r = 0; r < t->rows; r += kLanes) {
    float* q = t->q + r * p.depth;
    auto load_row = [&](int64_t i, int64_t d, int64_t n) __attribute__((always_inline)) { return load_n(q + i * p.depth + d, n); };
    round_rows(t->rows - r < kLanes ? t->rows - r : kLanes, p.depth, largest_of_pairs(p.depth), reinterpret_cast<int16_t*>(q), 2 * p.depth, t->q_scale + r, load_row);
  }
  t->rounded = true;
}

// The same from a panel of `count` keys from the block's key `first` on, for rows that still attend to them.
static inline void panel_scores(const Problem& p, const Tile& t, const Panels& panels, int64_t first, int64_t count, float* scores) {
  const int64_t rows = t.rows - t.done;
  scores += t.done * kKeyBlock;
  if constexpr (kVnni) {
    for (int64_t j = 0; p.pairs && j < count; j += kTileColumns)
      pair_rows(rows, pair_count(p), reinterpret_cast<const int32_t*>(t.q + t.done * p.depth), p.depth, t.q_scale + t.done, pair_keys(panels) + (first + j) * pair_count(p), scores + j, kKeyBlock,
                PairScores{pair_scales(p, panels) + first + j, value_logs(p, panels) + first + j});
    if (p.pairs) return;
  }
  const float* keys = panels.keys + first * p.depth;
  for (int64_t j = 0; j < count; j += kTileColumns) {
    if (p.depth > 0) {
      tile_rows(rows, p.depth, t.q + t.done * p.depth, p.depth, keys + j * p.depth, kTileColumns, scores + j, kKeyBlock, false);
      continue;
    }
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t i = 0; i < kTileColumns; ++i) scores[r * kKeyBlock + j + i] = 0;
    }
  }
}

// -- o[r] += sum_j scores[r][j] * value j, for the block's keys [from, to), of which `from` is even; `v` is slot 0's
template <int R, int V, typename T>
SITU_INLINE void add_values(const Problem& p, const Tile& t, int64_t r0, int64_t column, const T* v, int64_t step, const Keys& keys, int64_t from, int64_t to) {
  constexpr int U = R == 1 ? 2 : 1;  // one row alone needs two chains, of the even and of the odd keys, to hide the latency of its sums
  VecF acc[U][R][V];  // cleared as in dots()
#pragma GCC unroll 2
  for (int u = 0; u < U; ++u)
#pragma GCC unroll 4
    for (int r = 0; r < R; ++r)
#pragma GCC unroll 4
      for (int i = 0; i < V; ++i) acc[u][r][i] = VecF{};
  each_stretch(keys, from, to, [&](int64_t first, int64_t count, int64_t slot) __attribute__((always_inline)) {
    const T* row = v + slot * step + column;
    const float* weights = t.scores + r0 * kKeyBlock + first;
    auto add = [&](VecF(&sums)[R][V], int64_t j) __attribute__((always_inline)) {
      VecF value[V];
#pragma GCC unroll 4
      for (int i = 0; i < V; ++i) value[i] = load(row + j * step + i * kLanes);
#pragma GCC unroll 4
      for (int r = 0; r < R; ++r) {
        const VecF weight = splat(weights[r * kKeyBlock + j]);
#pragma GCC unroll 4
        for (int i = 0; i < V; ++i) sums[r][i] += weight * value[i];
      }
    };
    int64_t j = 0;
    if (U == 2 && first % 2 != 0) add(acc[U - 1], j++);
    for (; j + U <= count; j += U) {
#pragma GCC unroll 2
      for (int u = 0; u < U; ++u) add(acc[u], j + u);
    }
    if (j < count) add(acc[0], j);
  });
#pragma GCC unroll 4
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 4
    for (int i = 0; i < V; ++i) {
      float* o = t.o + (r0 + r) * p.o_row + column + i * kLanes;
      VecF sum = load(o) + acc[0][r][i];
      if constexpr (U == 2) sum += acc[1][r][i];
      store(o, sum);
    }
  }
}

template <int R, typename T>
SITU_INLINE void value_rows(const Problem& p, const Tile& t, int64_t r0, const T* v, int64_t step, const Keys& keys, int64_t from, int64_t to) {
  constexpr int V = kVectorRegisters == 32 || R < 3 ? 4 : 2;  // the sums, V values and a weight are in registers
  const int64_t depth = p.value_depth;
  int64_t d = 0;
  for (; d + V * kLanes <= depth; d += V * kLanes) add_values<R, V>(p, t, r0, d, v, step, keys, from, to);
  for (; d + kLanes <= depth; d += kLanes) add_values<R, 1>(p, t, r0, d, v, step, keys, from, to);
  if (d == depth) return;
  each_stretch(keys, from, to, [&](int64_t first, int64_t count, int64_t slot) {
    for (int64_t j = 0; j < count; ++j) {
      const VecF value = load_n(v + (slot + j) * step + d, depth - d);
      for (int r = 0; r < R; ++r) {
        float* o = t.o + (r0 + r) * p.o_row + d;
        store(o, load(o) + splat(t.scores[(r0 + r) * kKeyBlock + first + j]) * value);
      }
    }
  });
}

template <typename T>
static inline void few_values(const Problem& p, const Tile& t, const T* v, int64_t step, const Keys& keys, int64_t from, int64_t to) {
  scale_columns(t.rows, v, step, p.value_depth, keys, from, to, t.scores);
  groups_of_rows(t.rows, [&](auto rows, int64_t r) { value_rows<decltype(rows)::kRows>(p, t, r, v, step, keys, from, to); });
}

// The same from a panel of `count` values, for rows that attend to them.
static inline void panel_values(const Problem& p, const Tile& t, const Panels& panels, int64_t first, int64_t count, const float* scores) {
  if constexpr (kVnni) {
    for (int64_t d = 0; p.pairs && d < p.value_depth; d += kTileColumns)
      pair_rows(t.rows - t.done, count_pairs(count), reinterpret_cast<const int32_t*>(scores + t.done * kKeyBlock), kKeyBlock, t.weight + t.done, pair_values(p, panels, d) + first / 2 * kTileColumns,
                t.o + t.done * p.o_row + d, p.o_row, PairValues{t.shrink + t.done});
    if (p.pairs) return;
  }
  const float* values = panels.values + first * kTileColumns;
  for (int64_t d = 0; d < p.value_depth; d += kTileColumns) {
    tile_rows(t.rows - t.done, count, scores + t.done * kKeyBlock, kKeyBlock, values + d * p.block, kTileColumns, t.o + t.done * p.o_row + d, p.o_row, true, t.shrink + t.done);
  }
}

// -- masks and softmax of a block of scores, keys [key, key + count)
static inline void add_bias(const Problem& p, Tile* t, int64_t r, int64_t key, int64_t count, float* s) {
  const View& bias = *p.bias;
  const int64_t head = (t->first + r) / p.queries, query = (t->first + r) % p.queries;
  const int64_t step = broadcast_stride(bias, 3, 4);
  const int64_t at = t->batch * broadcast_stride(bias, 0, 4) + head * broadcast_stride(bias, 1, 4) +
                     query * broadcast_stride(bias, 2, 4) + key * step;
  if (bias.type == DType::kBool) {
    const uint8_t* keep = bias.as<const uint8_t>() + at;
    for (int64_t j = 0; j < count; ++j) s[j] = keep[j * step] != 0 ? s[j] : -__builtin_inff();
    return;
  }
  read_row(bias.data, bias.type, at, step, count, t->addend);
  for (int64_t j = 0; j < count; ++j) s[j] += t->addend[j];
}

// Whether scores of keys [key, key + count) stay as they are, for every row that still attends to the block.
static inline bool nothing_masked(const Problem& p, const Tile& t, int64_t key, int64_t count) {
  if (p.params.softcap > 0 || p.bias != nullptr || p.slopes != nullptr || count % kTileColumns != 0) return false;
  int64_t begin = 0, end = p.keys;
  for (int64_t r = t.done; r < t.rows; ++r) {
    begin = begin > t.begin[r] ? begin : t.begin[r];
    end = end < t.end[r] ? end : t.end[r];
  }
  return begin <= key && key + count <= end;
}

// What a row's mask leaves of its scores, and what is added to them. `logs`: what is part of them already; null: nothing.
static inline void mask_scores(const Problem& p, Tile* t, int64_t r, int64_t key, int64_t count, float* s, const float* logs) {
  const float low = -__builtin_inff();
  if (p.params.softcap > 0) {
    const float cap = p.params.softcap, inverse = 1.0f / cap;
    for (int64_t j = 0; j < count; j += kLanes) {
      const VecF log = logs != nullptr ? load(logs + j) : VecF{};
      store(s + j, tanh((load(s + j) - log) * inverse) * cap + log);
    }
  }
  if (p.bias != nullptr) add_bias(p, t, r, key, count, s);
  if (p.slopes != nullptr) {
    const int64_t head = (t->first + r) / p.queries;
    const float slope = read_float(p.slopes->data, p.slopes->type, head * p.slopes->strides[0]);
    // By distance, not by position: at 100,000 keys a slope of 0.84 times the position keeps two decimals.
    const int64_t own = p.keys - p.queries + (t->first + r) % p.queries;
    const int64_t near = clamp(p.params.first - key, 0, count);
    for (int64_t j = 0; j < near; ++j) s[j] += slope * static_cast<float>(key + j - own - p.call.dropped);
    for (int64_t j = near; j < count; ++j) s[j] += slope * static_cast<float>(key + j - own);
  }
  const int64_t from = clamp(t->begin[r] - key, 0, count), to = clamp(t->end[r] - key, 0, count);
  for (int64_t j = clamp(p.params.first - key, 0, from); j < from; ++j) s[j] = low;
  for (int64_t j = to; j < (count + kTileColumns - 1) / kTileColumns * kTileColumns; ++j) s[j] = low;
}

SITU_INLINE VecF largest_score(const float* s, int64_t count) {
  VecF largest = splat(-__builtin_inff());
  for (int64_t j = 0; j < count; j += kLanes) largest = vmax(load(s + j), largest);
  return largest;
}

// Scores become exp(s - origin), or 0 where that is too small; returns their sums.
SITU_INLINE VecF weigh_scores(float* s, int64_t count, float origin) {
  VecF sum{};
  for (int64_t j = 0; j < count; j += kLanes) {
    const VecF weight = exp_of_negative(load(s + j) - origin);
    sum += weight;
    store(s + j, weight);
  }
  return sum;
}

// Turns the scores of few rows into weights exp(s - m); what a row's sum and output shrink by when m grows is noted for the next
// block's values. Infinite or NaN scores make the row NaN, as exp(inf - inf) does; where there is nothing to attend to so far, all
// weights are exp(-inf).
static inline void weigh_few(const Problem& p, Tile* t, int64_t key, int64_t count, float* scores) {
  const float low = -__builtin_inff();
  for (int64_t r = 0; r < t->rows; ++r) {
    float* s = scores + r * kKeyBlock;
    mask_scores(p, t, r, key, count, s, nullptr);
    const float here = max_lanes(largest_score(s, count)), before = t->m[r], m = before > here ? before : here, origin = m > low ? m : 0.0f;
    const float sum = sum_lanes(weigh_scores(s, count, origin));
    t->shrink[r] = before == m ? 1.0f : exp_of_negative(splat(before - origin))[0];
    t->m[r] = m;
    t->l[r] = t->l[r] * t->shrink[r] + sum;
  }
}

// The same of many rows, those that still attend to the block: what is one number a row is computed for as many rows as a vector
// holds. Where weights are integers, those of a block are parts of its own largest one, and have the scales of values in them:
// `inverses` and `logs` [count], else null.
template <bool kPairs>
static inline void weigh_many(const Problem& p, Tile* t, int64_t key, int64_t count, float* scores, const float* inverses, const float* logs) {
  const float low = -__builtin_inff();
  const bool plain = nothing_masked(p, *t, key, count);
  for (int64_t first = t->done; first < t->rows; first += kLanes) {
    const int64_t rows = t->rows - first < kLanes ? t->rows - first : kLanes;
    float* s = scores + first * kKeyBlock;
    VecF v[kLanes];
    for (int64_t r = 0; r < kLanes; ++r) v[r] = splat(low);
    for (int64_t r = 0; r < rows; ++r) {
      if (!plain) mask_scores(p, t, first + r, key, count, s + r * kKeyBlock, logs);
      v[r] = largest_score(s + r * kKeyBlock, count);
    }
    const VecF here = max_each(v), before = load_n(t->m + first, rows), m = vmax(before, here), origin = m > low ? m : VecF{};
    const VecF own = kPairs ? (here > low ? here : VecF{}) : origin;
    float largest[kLanes];
    store(largest, own);
    for (int64_t r = 0; r < kLanes; ++r) v[r] = VecF{};
    for (int64_t r = 0; r < rows; ++r) v[r] = kPairs ? round_weights(s + r * kKeyBlock, count, largest[r], inverses) : weigh_scores(s + r * kKeyBlock, count, largest[r]);
    const VecF worth = kPairs ? exp_of_negative(here > low ? here - origin : VecF{}) / kMostWeight : splat(1.0f);  // of the weight 1
    const VecF shrink = before == m ? splat(1.0f) : exp_of_negative(before - origin);
    store_n(t->shrink + first, shrink, rows);
    store_n(t->m + first, m, rows);
    store_n(t->l + first, load_n(t->l + first, rows) * shrink + sum_each(v) * worth, rows);
    if constexpr (kPairs) store_n(t->weight + first, worth, rows);
  }
}

// Few rows add to o in place: what it shrinks by comes first.
static inline void shrink_rows(const Problem& p, Tile* t) {
  for (int64_t r = 0; r < t->rows; ++r) {
    float* o = t->o + r * p.o_row;
    if (t->shrink[r] == 1.0f) continue;
    for (int64_t d = 0; d < p.o_row; d += kLanes) store(o + d, load(o + d) * t->shrink[r]);
  }
}

// Calls body(pointer to element 0) with the type of v's elements.
template <typename Body>
SITU_INLINE void with_type(const View& v, Body body) {
  if (v.type == DType::kF32) return body(v.as<const float>());
  if (v.type == DType::kF16) return body(v.as<const Half>());
  if (v.type == DType::kI8) return body(v.as<const int8_t>());
  body(v.as<const BFloat>());
}

// A prompt's are many, however many there are: its sums must not depend on how it is cut into steps.
static inline bool few_rows(const Problem& p, int64_t rows) { return p.call.prompt_rows == 0 && rows <= kFewRows && p.k.strides[3] == 1 && p.v.strides[3] == 1; }

// Panels of 8-bit rows, times what their integers are worth.
template <typename T>
static inline void scale_keys(const T* const*, const View&, int64_t, int64_t, float*) {}
template <>
inline void scale_keys(const int8_t* const* rows, const View& keys, int64_t depth, int64_t columns, float* panel) {
  float scales[kTileColumns] = {};
  for (int64_t j = 0; j < columns; ++j) scales[j] = row_scale(rows[j], keys.strides[3], depth);
  for (int64_t i = 0; i < depth * kTileColumns; i += kLanes) store(panel + i, load(panel + i) * load(scales + i % kTileColumns));
}
template <typename T>
static inline void scale_values(const Problem&, const T* const*, int64_t, const Panels&) {}
template <>
inline void scale_values(const Problem& p, const int8_t* const* rows, int64_t count, const Panels& panels) {
  for (int64_t j = 0; j < count; ++j) {
    const float scale = row_scale(rows[j], p.v.strides[3], p.value_depth);
    for (int64_t d = 0; d < p.value_depth; d += kTileColumns) {
      float* row = panels.values + d * p.block + j * kTileColumns;
      for (int64_t i = 0; i < kTileColumns; i += kLanes) store(row + i, load(row + i) * scale);
    }
  }
}

// The same as pairs of integers: kLanes keys are rounded at a time, then transposed.
template <typename T>
static inline void pack_pair_keys(const Problem& p, const T* const* rows, int64_t count, const Panels& panels) {
  const int64_t pairs = pair_count(p);
  int32_t rounded[kLanes * kMostPairDepth / 2] = {};
  float* scales = pair_scales(p, panels);
  for (int64_t j = 0; j < (count + kTileColumns - 1) / kTileColumns * kTileColumns; j += kLanes) {
    const int64_t n = clamp(count - j, 0, kLanes);
    auto load_row = [&](int64_t i, int64_t d, int64_t size) __attribute__((always_inline)) { return size == kLanes ? load(rows[j + i] + d) : load_n(rows[j + i] + d, size); };
    round_rows(n, p.depth, largest_of_pairs(p.depth), reinterpret_cast<int16_t*>(rounded), 2 * pairs, scales + j, load_row);
    if constexpr (kScaledRows<T>)
      for (int64_t i = 0; i < n; ++i) scales[j + i] *= row_scale(rows[j + i], 1, p.depth);
    transpose_pairs(rounded, pairs, pairs, pair_keys(panels) + j / kTileColumns * kTileColumns * pairs + j % kTileColumns);
  }
}

template <typename T>
static inline void pack_values(const Problem& p, const T* const* rows, int64_t count, const Panels& panels) {
  auto value_of = [&](int64_t j) __attribute__((always_inline)) {
    if constexpr (kScaledRows<T>) return row_scale(rows[j], 1, p.value_depth);
    else return 1.0f;
  };
  const float* inverses = value_inverses(p, panels);
  scale_pair_values(rows, count, p.value_depth, value_inverses(p, panels), value_logs(p, panels), value_of);
  for (int64_t d = 0; d < p.value_depth; d += kTileColumns) {
    const int64_t columns = p.value_depth - d < kTileColumns ? p.value_depth - d : kTileColumns;
    pack_pair_values(rows, d, count, columns, pair_values(p, panels, d), [&](int64_t j) __attribute__((always_inline)) { return value_of(j) * inverses[j]; });
  }
}

// rows[j] = where the block's key or value j begins; `x` is slot 0's.
template <typename T>
static inline void find_rows(const T* x, int64_t step, const Keys& keys, const T** rows) {
  each_stretch(keys, 0, keys.count, [&](int64_t first, int64_t count, int64_t slot) {
    for (int64_t j = 0; j < count; ++j) rows[first + j] = x + (slot + j) * step;
  });
}

// Panels of a block of one KV head's keys and values.
static inline void pack_block(const Problem& p, int64_t batch, int64_t kv_head, const Keys& keys, const Panels& panels) {
  const bool one_stretch = keys.at + keys.run->length >= keys.count;
  with_type(p.k, [&](const auto* k) {
    decltype(k) rows[kKeyBlock];
    find_rows(k + batch * p.k.strides[0] + kv_head * p.k.strides[1], p.k.strides[2], keys, rows);
    if (kVnni && p.pairs) return pack_pair_keys(p, rows, keys.count, panels);
    for (int64_t j = 0; j < keys.count; j += kTileColumns) {
      const int64_t columns = keys.count - j < kTileColumns ? keys.count - j : kTileColumns;
      float* panel = panels.keys + j * p.depth;
      if (one_stretch) pack_panel(rows[j], p.k.strides[3], p.k.strides[2], p.depth, columns, panel);
      else pack_rows(rows + j, p.k.strides[3], p.depth, columns, panel);
      scale_keys(rows + j, p.k, p.depth, columns, panel);
    }
  });
  with_type(p.v, [&](const auto* v) {
    decltype(v) rows[kKeyBlock];
    find_rows(v + batch * p.v.strides[0] + kv_head * p.v.strides[1], p.v.strides[2], keys, rows);
    if (kVnni && p.pairs) return pack_values(p, rows, keys.count, panels);
    for (int64_t d = 0; d < p.value_depth; d += kTileColumns) {
      const int64_t columns = p.value_depth - d < kTileColumns ? p.value_depth - d : kTileColumns;
      each_stretch(keys, 0, keys.count, [&](int64_t first, int64_t count, int64_t) {
        pack_panel(rows[first] + d * p.v.strides[3], p.v.strides[2], p.v.strides[3], count, columns, panels.values + d * p.block + first * kTileColumns);
      });
    }
    scale_values(p, rows, keys.count, panels);
  });
}

// Leading rows, in whole register tiles, that may not attend to `key` or any later one: queries are in order, so that the
// first rows of a causal tile end before its last keys.
static inline int64_t leading_rows_before(const Tile& t, int64_t key) {
  int64_t done = 0;
  while (done < t.rows && t.end[done] <= key) ++done;
  return done / kTileRows * kTileRows;
}

// A packed block, keys [key, key + count), as far as the tile attends to it.
static inline void attend_packed(const Problem& p, Tile* t, int64_t key, int64_t count, const Panels& panels) {
  const int64_t first = clamp(t->first_key - key, 0, count) / kTileColumns * kTileColumns, last = clamp(t->last_key - key, 0, count);
  if (first >= last) return;
  t->done = leading_rows_before(*t, key + first);
  if (p.pairs && !t->rounded) round_queries(p, t);
  panel_scores(p, *t, panels, first, last - first, t->scores);
  kVnni && p.pairs ? weigh_many<kVnni>(p, t, key + first, last - first, t->scores, value_inverses(p, panels) + first, value_logs(p, panels) + first)
                   : weigh_many<false>(p, t, key + first, last - first, t->scores, nullptr, nullptr);
  panel_values(p, *t, panels, first, last - first, t->scores);
}

// A block of keys, for tiles of one KV head.
static inline void attend_block(const Problem& p, Tile* tiles, int64_t tile_count, const Keys& keys, const Panels& panels) {
  Tile& t = tiles[0];
  const int64_t kv_head = t.first / p.queries / p.group;
  if (tile_count > 1 || !few_rows(p, t.rows)) {
    pack_block(p, t.batch, kv_head, keys, panels);
    for (int64_t i = 0; i < tile_count; ++i) attend_packed(p, &tiles[i], keys.first, keys.count, panels);
    return;
  }
  t.done = 0;
  with_type(p.k, [&](const auto* k) { few_scores(t, p.depth, k + t.batch * p.k.strides[0] + kv_head * p.k.strides[1], p.k.strides[2], keys, 0, keys.count); });
  weigh_few(p, &t, keys.first, keys.count, t.scores);
  shrink_rows(p, &t);
  with_type(p.v, [&](const auto* v) { few_values(p, t, v + t.batch * p.v.strides[0] + kv_head * p.v.strides[1], p.v.strides[2], keys, 0, keys.count); });
}

static inline void finish_tile(const Problem& p, Tile* t) {
  for (int64_t r = 0; r < t->rows; ++r) {
    const int64_t head = (t->first + r) / p.queries, query = (t->first + r) % p.queries;
    float* o = t->o + r * p.o_row;
    const float inverse = t->l[r] == 0 ? 0.0f : 1.0f / t->l[r];
    for (int64_t d = 0; d < p.o_row; d += kLanes) store(o + d, load(o + d) * inverse);
    const int64_t at = t->batch * p.y.strides[0] + head * p.y.strides[1] + query * p.y.strides[2];
    write_row(p.y.data, p.y.type, at, p.y.strides[3], p.value_depth, o);
  }
}

}  // namespace SITU_ISA
}  // namespace situ
