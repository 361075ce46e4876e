// softmax(scale * q k^T + bias) v with masks, over keys that may lie in runs of slots: the arithmetic of
// attention_token.h and attention_rows.h.
//
// Rows are the (head, query) pairs of one batch; a tile is up to kMaxRows consecutive rows that share a KV head, so one
// read of a key serves all of them. Keys come in blocks; the softmax is online: per row the running maximum m, the sum
// l of exp(s - m) and the output o, rescaled whenever m grows (Milakov, Gimelshein: Online normalizer calculation for
// softmax; Dao et al.: FlashAttention). Blocks, and what is summed within them, are cut by the keys' order, not by
// where their runs end: a sequence has the same numbers wherever its tokens lie. Those of
// rows depend on no cut into steps either.
//   few rows (decode):    scores are dot products, values are added row by row
//   many rows (prefill):  both products run in register tiles, keys transposed into panels that several tiles share;
//                         of integers where attention_pairs.h says so
#pragma once

#include "kernels/attention_problem.h"

namespace situ {
namespace SITU_ISA {

// Scores of C keys that lie anywhere. Not inlined: beside the loop below GCC 12 would keep neither's sums in registers.
template <int R, int C, typename Row>
__attribute__((noinline)) static void scattered_scores(const float* const* q, const Row* rows, int64_t depth,
                                                       float* s) {
  dots<R, C, false>(q, AnyStoredRows<Row>{rows}, depth, s, kKeyBlock);
}

// -- scores[r][j] = q[r] . key j, for the block's keys [from, to); `k` is slot 0's, keys of a stretch are `step`
// elements apart
template <int R, typename Row>
SITU_INLINE void dot_scores(const Tile& t, int64_t depth, int64_t r0, Row k, int64_t step, const Keys& keys,
                            int64_t from, int64_t to) {
  constexpr int C = kLanes / R > 0 ? kLanes / R : 1;  // R * C sums fill one vector
  const float* q[R];
  for (int r = 0; r < R; ++r) q[r] = t.q + (r0 + r) * depth;
  Row rows[C];
  int64_t waiting = 0;  // keys that are too few to fill it
  each_stretch(keys, from, to, [&](int64_t first, int64_t count, int64_t slot) __attribute__((always_inline)) {
    const Row row = k + slot * step;
    float* s = t.scores + r0 * kKeyBlock + first;
    int64_t j = 0;
    if (waiting > 0) {
      for (; j < count && waiting < C; ++j) rows[waiting++] = row + j * step;
      if (waiting < C) return;
      scattered_scores<R, C>(q, rows, depth, s + j - C);
      waiting = 0;
    }
    for (; j + C <= count; j += C)
      dots<R, C, false>(q, EvenStoredRows<Row>{row + j * step, step}, depth, s + j, kKeyBlock);
    for (; j < count; ++j) rows[waiting++] = row + j * step;
  });
  float* s = t.scores + r0 * kKeyBlock + to - waiting;
  if (4 * waiting > C && to - waiting + C <= kKeyBlock) {  // scores behind the last key are masked
    for (int64_t j = waiting; j < C; ++j) rows[j] = rows[waiting - 1];
    return scattered_scores<R, C>(q, rows, depth, s);
  }
  for (int64_t j = 0; j < waiting; ++j) scattered_scores<R, 1>(q, rows + j, depth, s + j);
}

template <typename Row>
static inline void few_scores(const Tile& t, int64_t depth, Row k, int64_t step, const Keys& keys, int64_t from,
                              int64_t to) {
  groups_of_rows(
      t.rows, [&](auto rows, int64_t r) { dot_scores<decltype(rows)::kRows>(t, depth, r, k, step, keys, from, to); });
  scale_columns(t.rows, k, step, depth, keys, from, to, t.scores);
}

static inline int64_t pair_count(const Problem& p) { return (p.depth + 1) / 2; }
static inline int32_t* pair_keys(const Panels& panels) { return reinterpret_cast<int32_t*>(panels.keys); }
static inline float* pair_scales(const Problem& p, const Panels& panels) {
  return panels.keys + pair_count(p) * p.block;
}
static inline int32_t* pair_values(const Problem& p, const Panels& panels, int64_t column) {
  return reinterpret_cast<int32_t*>(panels.values) + column * (p.block / 2);
}
static inline float* value_inverses(const Problem& p, const Panels& panels) {
  return panels.values + p.o_row * (p.block / 2);
}
static inline float* value_logs(const Problem& p, const Panels& panels) { return value_inverses(p, panels) + p.block; }
static_assert(kTileColumns >= 4);  // o_row / 2 rows of a block hold both

static inline void round_queries(const Problem& p, Tile* t) {
  for (int64_t r = 0; r < t->rows; r += kLanes) {
    float* q = t->q + r * p.depth;
    auto load_row = [&](int64_t i, int64_t d, int64_t n)
                        __attribute__((always_inline)) { return load_n(q + i * p.depth + d, n); };
    round_rows(t->rows - r < kLanes ? t->rows - r : kLanes, p.depth, largest_of_pairs(p.depth),
               reinterpret_cast<int16_t*>(q), 2 * p.depth, t->q_scale + r, load_row);
  }
  t->rounded = true;
}

// The same from a panel of `count` keys from the block's key `first` on, for rows that still attend to them.
static inline void panel_scores(const Problem& p, const Tile& t, const Panels& panels, int64_t first, int64_t count,
                                float* scores) {
  const int64_t rows = t.rows - t.done;
  scores += t.done * kKeyBlock;
  if constexpr (kVnni) {
    for (int64_t j = 0; p.pairs && j < count; j += kTileColumns)
      pair_rows(rows, pair_count(p), reinterpret_cast<const int32_t*>(t.q + t.done * p.depth), p.depth,
                t.q_scale + t.done, pair_keys(panels) + (first + j) * pair_count(p), scores + j, kKeyBlock,
                PairScores{pair_scales(p, panels) + first + j, value_logs(p, panels) + first + j});
    if (p.pairs) return;
  }
  const float* keys = panels.keys + first * p.depth;
  for (int64_t j = 0; j < count; j += kTileColumns) {
    if (p.depth > 0) {
      tile_rows(rows, p.depth, t.q + t.done * p.depth, p.depth, keys + j * p.depth, kTileColumns, scores + j, kKeyBlock,
                false);
      continue;
    }
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t i = 0; i < kTileColumns; ++i) scores[r * kKeyBlock + j + i] = 0;
    }
  }
}

// -- o[r] += sum_j scores[r][j] * value j, for the block's keys [from, to), of which `from` is even; `v` is slot 0's
template <int R, int V, typename Row>
SITU_INLINE void add_values(const Problem& p, const Tile& t, int64_t r0, int64_t column, Row v, int64_t step,
                            const Keys& keys, int64_t from, int64_t to) {
  constexpr int U =
      R == 1 ? 2
             : 1;  // one row alone needs two chains, of the even and of the odd keys, to hide the latency of its sums
  VecF acc[U][R][V];  // cleared as in dots()
#pragma GCC unroll 2
  for (int u = 0; u < U; ++u)
#pragma GCC unroll 4
    for (int r = 0; r < R; ++r)
#pragma GCC unroll 4
      for (int i = 0; i < V; ++i) acc[u][r][i] = VecF{};
  each_stretch(keys, from, to, [&](int64_t first, int64_t count, int64_t slot) __attribute__((always_inline)) {
    const Row row = v + slot * step + column;
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

template <int R, typename Row>
SITU_INLINE void value_rows(const Problem& p, const Tile& t, int64_t r0, Row v, int64_t step, const Keys& keys,
                            int64_t from, int64_t to) {
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

template <typename Row>
static inline void few_values(const Problem& p, const Tile& t, Row v, int64_t step, const Keys& keys, int64_t from,
                              int64_t to) {
  scale_columns(t.rows, v, step, p.value_depth, keys, from, to, t.scores);
  groups_of_rows(t.rows,
                 [&](auto rows, int64_t r) { value_rows<decltype(rows)::kRows>(p, t, r, v, step, keys, from, to); });
}

// The same from a panel of `count` values, for rows that attend to them.
static inline void panel_values(const Problem& p, const Tile& t, const Panels& panels, int64_t first, int64_t count,
                                const float* scores) {
  if constexpr (kVnni) {
    for (int64_t d = 0; p.pairs && d < p.value_depth; d += kTileColumns)
      pair_rows(t.rows - t.done, count_pairs(count), reinterpret_cast<const int32_t*>(scores + t.done * kKeyBlock),
                kKeyBlock, t.weight + t.done, pair_values(p, panels, d) + first / 2 * kTileColumns,
                t.o + t.done * p.o_row + d, p.o_row, PairValues{t.shrink + t.done});
    if (p.pairs) return;
  }
  const float* values = panels.values + first * kTileColumns;
  for (int64_t d = 0; d < p.value_depth; d += kTileColumns) {
    tile_rows(t.rows - t.done, count, scores + t.done * kKeyBlock, kKeyBlock, values + d * p.block, kTileColumns,
              t.o + t.done * p.o_row + d, p.o_row, true, t.shrink + t.done);
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

// s[j] += row[at + j], or what stands at the nearer end of the row's `columns`, for j of [from, to).
static inline void add_columns(const float* row, int64_t columns, int64_t at, int64_t from, int64_t to, float* s) {
  const int64_t inside = clamp(-at, from, to), behind = clamp(columns - at, inside, to);
  auto add_one = [&](int64_t j, int64_t end, float x) {
    for (; j < end; ++j) s[j] += x;
  };
  add_one(from, inside, row[0]);
  for (int64_t j = inside; j < behind; j += kLanes) {
    const int64_t n = behind - j < kLanes ? behind - j : kLanes;
    store_n(s + j, load_n(s + j, n) + load_n(row + at + j, n), n);
  }
  add_one(behind, to, row[columns - 1]);
}

static inline void add_distances(const Problem& p, const Tile& t, int64_t r, int64_t key, int64_t count, float* s) {
  const View& table = *p.distances;
  const int64_t head = (t.first + r) / p.queries, own = p.keys - p.queries + (t.first + r) % p.queries;
  const float* row = table.as<const float>() + (table.dims[0] > 1 ? head * table.strides[0] : 0);
  const int64_t at = key - own - p.params.least_distance, near = clamp(p.params.first - key, 0, count);
  add_columns(row, table.dims[1], at - p.dropped, 0, near, s);
  add_columns(row, table.dims[1], at, near, count, s);
}

// Whether scores of keys [key, key + count) stay as they are, for every row that still attends to the block.
static inline bool nothing_masked(const Problem& p, const Tile& t, int64_t key, int64_t count) {
  if (p.params.softcap > 0 || p.bias != nullptr || p.slopes != nullptr || p.distances != nullptr ||
      count % kTileColumns != 0)
    return false;
  int64_t begin = 0, end = p.keys;
  for (int64_t r = t.done; r < t.rows; ++r) {
    begin = begin > t.begin[r] ? begin : t.begin[r];
    end = end < t.end[r] ? end : t.end[r];
  }
  return begin <= key && key + count <= end;
}

// What a row's mask leaves of its scores, and what is added to them. `logs`: what is part of them already; null:
// nothing.
static inline void mask_scores(const Problem& p, Tile* t, int64_t r, int64_t key, int64_t count, float* s,
                               const float* logs) {
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
    for (int64_t j = 0; j < near; ++j) s[j] += slope * static_cast<float>(key + j - own - p.dropped);
    for (int64_t j = near; j < count; ++j) s[j] += slope * static_cast<float>(key + j - own);
  }
  if (p.distances != nullptr) add_distances(p, *t, r, key, count, s);
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

// Turns the scores of few rows into weights exp(s - m); what a row's sum and output shrink by when m grows is noted for
// the next block's values. Infinite or NaN scores make the row NaN, as exp(inf - inf) does; where there is nothing to
// attend to so far, all weights are exp(-inf).
static inline void weigh_few(const Problem& p, Tile* t, int64_t key, int64_t count, float* scores) {
  const float low = -__builtin_inff();
  for (int64_t r = 0; r < t->rows; ++r) {
    float* s = scores + r * kKeyBlock;
    mask_scores(p, t, r, key, count, s, nullptr);
    const float here = max_lanes(largest_score(s, count)), before = t->m[r], m = before > here ? before : here,
                origin = m > low ? m : 0.0f;
    const float sum = sum_lanes(weigh_scores(s, count, origin));
    t->shrink[r] =
        before == m || before == low ? 1.0f : exp_of_negative(splat(before - origin))[0];  // or there is nothing
    t->m[r] = m;
    t->l[r] = t->l[r] * t->shrink[r] + sum;
  }
}

// The same of many rows, those that still attend to the block: what is one number a row is computed for as many rows as
// a vector holds. Where weights are integers, those of a block are parts of its own largest one, and have the scales of
// values in them: `inverses` and `logs` [count], else null.
template <bool kPairs>
static inline void weigh_many(const Problem& p, Tile* t, int64_t key, int64_t count, float* scores,
                              const float* inverses, const float* logs) {
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
    const VecF here = max_each(v), before = load_n(t->m + first, rows), m = vmax(before, here),
               origin = m > low ? m : VecF{};
    const VecF own = kPairs ? (here > low ? here : VecF{}) : origin;
    float largest[kLanes];
    store(largest, own);
    for (int64_t r = 0; r < kLanes; ++r) v[r] = VecF{};
    for (int64_t r = 0; r < rows; ++r)
      v[r] = kPairs ? round_weights(s + r * kKeyBlock, count, largest[r], inverses)
                    : weigh_scores(s + r * kKeyBlock, count, largest[r]);
    const VecF worth =
        kPairs ? exp_of_negative(here > low ? here - origin : VecF{}) / kMostWeight : splat(1.0f);  // of the weight 1
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

// The row of slot 0 of a KV head, of those of `v`, and how many numbers slots lie apart.
template <typename Row>
SITU_INLINE Row head_rows(Row first, const View& v, int64_t batch, int64_t head) {
  return first + (batch * v.strides[0] + head * v.strides[1]) * kNumbers<Row>;
}
template <typename Row>
SITU_INLINE int64_t slot_step(Row, const View& v) {
  return v.strides[2] * kNumbers<Row>;
}

// Rows of one KV head that are a token's: whether dot products beat packing the keys.
static inline bool few_rows(const Problem& p) {
  return p.token && p.group <= kFewRows && p.k.strides[3] == 1 && p.v.strides[3] == 1;
}

// Panels of rows that say what their integers are worth, times that.
template <typename Row>
static inline void scale_keys(const Row*, const View&, int64_t, int64_t, float*) {}
template <>
inline void scale_keys(const ScaledRow* rows, const View& keys, int64_t depth, int64_t columns, float* panel) {
  float scales[kTileColumns] = {};
  for (int64_t j = 0; j < columns; ++j) scales[j] = row_scale(rows[j], keys.strides[3], depth);
  for (int64_t i = 0; i < depth * kTileColumns; i += kLanes)
    store(panel + i, load(panel + i) * load(scales + i % kTileColumns));
}
template <typename Row>
static inline void scale_values(const Problem&, const Row*, int64_t, const Panels&) {}
template <>
inline void scale_values(const Problem& p, const ScaledRow* rows, int64_t count, const Panels& panels) {
  for (int64_t j = 0; j < count; ++j) {
    const float scale = row_scale(rows[j], p.v.strides[3], p.value_depth);
    for (int64_t d = 0; d < p.value_depth; d += kTileColumns) {
      float* row = panels.values + d * p.block + j * kTileColumns;
      for (int64_t i = 0; i < kTileColumns; i += kLanes) store(row + i, load(row + i) * scale);
    }
  }
}

// The same as pairs of integers: kLanes keys are rounded at a time, then transposed.
template <typename Row>
static inline void pack_pair_keys(const Problem& p, const Row* rows, int64_t count, const Panels& panels) {
  const int64_t pairs = pair_count(p);
  int32_t rounded[kLanes * kMostPairDepth / 2] = {};
  float* scales = pair_scales(p, panels);
  for (int64_t j = 0; j < (count + kTileColumns - 1) / kTileColumns * kTileColumns; j += kLanes) {
    const int64_t n = clamp(count - j, 0, kLanes);
    auto load_row = [&](int64_t i, int64_t d, int64_t size) __attribute__((always_inline)) {
      return size == kLanes ? load(rows[j + i] + d) : load_n(rows[j + i] + d, size);
    };
    round_rows(n, p.depth, largest_of_pairs(p.depth), reinterpret_cast<int16_t*>(rounded), 2 * pairs, scales + j,
               load_row);
    if constexpr (kScaledRows<Row>)
      for (int64_t i = 0; i < n; ++i) scales[j + i] *= row_scale(rows[j + i], 1, p.depth);
    transpose_pairs(rounded, pairs, pairs,
                    pair_keys(panels) + j / kTileColumns * kTileColumns * pairs + j % kTileColumns);
  }
}

template <typename Row>
static inline void pack_values(const Problem& p, const Row* rows, int64_t count, const Panels& panels) {
  auto value_of = [&](int64_t j) __attribute__((always_inline)) {
    if constexpr (kScaledRows<Row>)
      return row_scale(rows[j], 1, p.value_depth);
    else
      return 1.0f;
  };
  const float* inverses = value_inverses(p, panels);
  scale_pair_values(rows, count, p.value_depth, value_inverses(p, panels), value_logs(p, panels), value_of);
  for (int64_t d = 0; d < p.value_depth; d += kTileColumns) {
    const int64_t columns = p.value_depth - d < kTileColumns ? p.value_depth - d : kTileColumns;
    pack_pair_values(rows, d, count, columns, pair_values(p, panels, d),
                     [&](int64_t j) __attribute__((always_inline)) { return value_of(j) * inverses[j]; });
  }
}

// rows[j] = where the block's key or value j begins; `x` is slot 0's.
template <typename Row>
static inline void find_rows(Row x, int64_t step, const Keys& keys, Row* rows) {
  each_stretch(keys, 0, keys.count, [&](int64_t first, int64_t count, int64_t slot) {
    for (int64_t j = 0; j < count; ++j) rows[first + j] = x + (slot + j) * step;
  });
}

// Panels of a block of one KV head's keys and values.
static inline void pack_block(const Problem& p, int64_t batch, int64_t kv_head, const Keys& keys,
                              const Panels& panels) {
  const bool one_stretch = keys.at + keys.run->length >= keys.count;
  with_rows(p.k, p.params.keys, [&](auto k) {
    decltype(k) rows[kKeyBlock];
    const int64_t step = slot_step(k, p.k);
    find_rows(head_rows(k, p.k, batch, kv_head), step, keys, rows);
    if (kVnni && p.pairs) return pack_pair_keys(p, rows, keys.count, panels);
    for (int64_t j = 0; j < keys.count; j += kTileColumns) {
      const int64_t columns = keys.count - j < kTileColumns ? keys.count - j : kTileColumns;
      float* panel = panels.keys + j * p.depth;
      if (one_stretch)
        pack_panel(rows[j], p.k.strides[3], step, p.depth, columns, panel);
      else
        pack_rows(rows + j, p.k.strides[3], p.depth, columns, panel);
      scale_keys(rows + j, p.k, p.depth, columns, panel);
    }
  });
  with_rows(p.v, p.params.values, [&](auto v) {
    decltype(v) rows[kKeyBlock];
    const int64_t step = slot_step(v, p.v);
    find_rows(head_rows(v, p.v, batch, kv_head), step, keys, rows);
    if (kVnni && p.pairs) return pack_values(p, rows, keys.count, panels);
    for (int64_t d = 0; d < p.value_depth; d += kTileColumns) {
      const int64_t columns = p.value_depth - d < kTileColumns ? p.value_depth - d : kTileColumns;
      each_stretch(keys, 0, keys.count, [&](int64_t first, int64_t count, int64_t) {
        pack_panel(rows[first] + d * p.v.strides[3], step, p.v.strides[3], count, columns,
                   panels.values + d * p.block + first * kTileColumns);
      });
    }
    scale_values(p, rows, keys.count, panels);
  });
}

// Leading rows, in whole register tiles, that may not attend to `key` or any later one: queries are in order, so that
// the first rows of a causal tile end before its last keys.
static inline int64_t leading_rows_before(const Tile& t, int64_t key) {
  int64_t done = 0;
  while (done < t.rows && t.end[done] <= key) ++done;
  return done / kTileRows * kTileRows;
}

// A packed block, keys [key, key + count), as far as the tile attends to it.
static inline void attend_packed(const Problem& p, Tile* t, int64_t key, int64_t count, const Panels& panels) {
  const int64_t first = clamp(t->first_key - key, 0, count) / kTileColumns * kTileColumns,
                last = clamp(t->last_key - key, 0, count);
  if (first >= last) return;
  t->done = leading_rows_before(*t, key + first);
  if (p.pairs && !t->rounded) round_queries(p, t);
  panel_scores(p, *t, panels, first, last - first, t->scores);
  kVnni&& p.pairs ? weigh_many<kVnni>(p, t, key + first, last - first, t->scores, value_inverses(p, panels) + first,
                                      value_logs(p, panels) + first)
                  : weigh_many<false>(p, t, key + first, last - first, t->scores, nullptr, nullptr);
  panel_values(p, *t, panels, first, last - first, t->scores);
}

// A block of keys, for tiles of one KV head.
static inline void attend_block(const Problem& p, Tile* tiles, int64_t tile_count, const Keys& keys,
                                const Panels& panels) {
  pack_block(p, tiles[0].batch, tiles[0].first / p.queries / p.group, keys, panels);
  for (int64_t i = 0; i < tile_count; ++i) attend_packed(p, &tiles[i], keys.first, keys.count, panels);
}

// Row r of the tile is o / l.
static inline void write_output(const Problem& p, const Tile& t, int64_t r, float l, float* o) {
  const int64_t head = (t.first + r) / p.queries, query = (t.first + r) % p.queries;
  const float inverse = l == 0 ? 0.0f : 1.0f / l;
  for (int64_t d = 0; d < p.o_row; d += kLanes) store(o + d, load(o + d) * inverse);
  const int64_t at = t.batch * p.y.strides[0] + head * p.y.strides[1] + query * p.y.strides[2];
  write_row(p.y.data, p.y.type, at, p.y.strides[3], p.value_depth, o);
}

}  // namespace SITU_ISA
}  // namespace situ
