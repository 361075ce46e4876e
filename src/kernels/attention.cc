// situ.Attention: softmax(scale * q k^T + bias) v with masks, over keys that may lie in runs of slots.
//
// Rows are the (head, query) pairs of one batch; a tile is up to kMaxRows consecutive rows that share a KV
// head, so one read of a key serves all of them. Keys come in blocks; the softmax is online: per row the running
// maximum m, the sum l of exp(s - m) and the output o, rescaled whenever m grows. Threads never wait for each
// other: each takes whole rows.
//   few rows (decode):    scores are dot products, values are added row by row
//   many rows (prefill):  both products run in register tiles, keys transposed into a panel
#include "kernels/dots.h"
#include "kernels/params.h"
#include "kernels/rows.h"
#include "kernels/tile.h"

namespace situ {
namespace SITU_ISA {
namespace {

// Rows of a tile: K and V are packed once for all of them. A multiple of kTileRows. 96 and 192 rows were tried: slower
// (512 queries over 512 keys: 4.3, 4.8, 6.5 ms), because more of a causal tile is masked.
constexpr int64_t kMaxRows = 48;
constexpr int64_t kSharedRows = 48;  // up to here per thread rows are shared out evenly, whatever their heads
constexpr int64_t kKeyBlock = 128;  // keys per step of the online softmax
constexpr int64_t kFewRows = 7;     // up to here dot products beat packing the keys
static_assert(kKeyBlock % kTileColumns == 0);

struct Problem {
  const KernelCall& call;
  const AttentionParams& params;
  const View &q, &k, &v, &y;
  const View *bias, *slopes, *sink;
  int64_t batch, heads, queries, keys, depth, value_depth, group;
};

// One thread's working memory.
struct Tile {
  float* q;        // [rows][depth], scaled
  float* o;        // [rows][o_row]
  float* scores;   // [rows][kKeyBlock]
  float* panel;    // [max(depth, kKeyBlock)][kTileColumns]
  float* addend;   // [kKeyBlock]: a row of bias
  int64_t o_row;   // value_depth rounded up to whole tiles
  int64_t capacity;
  int64_t batch, first, rows;  // rows first .. first + rows of batch `batch`
  int64_t done;                // rows below it, of many, may not attend to this block of keys any more
  float m[kMaxRows], l[kMaxRows];
  int64_t begin[kMaxRows], end[kMaxRows];  // keys that each row may attend to
};

const View* operand(const KernelCall& call, int i) {
  return i < call.in_count && call.in[i].present() ? &call.in[i] : nullptr;
}

int64_t clamp(int64_t x, int64_t low, int64_t high) { return x < low ? low : (x > high ? high : x); }

Problem make_problem(const KernelCall& call) {
  const View &q = call.in[0], &k = call.in[1], &v = call.in[2];
  Problem p{call,    *static_cast<const AttentionParams*>(call.params), q, k, v, call.out[0], operand(call, 3),
            operand(call, 4), operand(call, 5), q.dims[0], q.dims[1], q.dims[2], k.dims[2], q.dims[3], v.dims[3], 1};
  if (call.runs != nullptr) {
    p.keys = 0;
    for (int i = 0; i < call.run_count; ++i) p.keys += call.runs[i].length;
  }
  p.group = k.dims[1] > 0 ? p.heads / k.dims[1] : 1;
  return p;
}

void lay_out_scratch(const Problem& p, std::byte* scratch, Tile* t) {
  const int64_t panel_rows = p.depth > kKeyBlock ? p.depth : kKeyBlock;
  t->o_row = (p.value_depth + kTileColumns - 1) / kTileColumns * kTileColumns;
  const int64_t shared = panel_rows * kTileColumns + kKeyBlock;
  const int64_t per_row = p.depth + t->o_row + kKeyBlock;
  t->capacity = clamp((kScratchBytes / 4 - shared) / per_row, 1, kMaxRows);
  t->panel = reinterpret_cast<float*>(scratch);
  t->addend = t->panel + panel_rows * kTileColumns;
  t->o = t->addend + kKeyBlock;
  t->scores = t->o + t->capacity * t->o_row;
  t->q = t->scores + t->capacity * kKeyBlock;
}

void start_tile(const Problem& p, Tile* t) {
  for (int64_t r = 0; r < t->rows; ++r) {
    const int64_t head = (t->first + r) / p.queries, query = (t->first + r) % p.queries;
    const int64_t at = t->batch * p.q.strides[0] + head * p.q.strides[1] + query * p.q.strides[2];
    float* q = t->q + r * p.depth;
    read_row(p.q.data, p.q.type, at, p.q.strides[3], p.depth, q);
    for (int64_t d = 0; d < p.depth; ++d) q[d] *= p.params.scale;
    for (int64_t d = 0; d < t->o_row; ++d) t->o[r * t->o_row + d] = 0;
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
  }
}

// -- scores[r][j] = q[r] . key j, for `count` keys from `k` on, `step` elements apart; `scores` is where key 0's go
template <int R, typename T>
SITU_INLINE void dot_scores(const Tile& t, int64_t depth, int64_t r0, const T* k, int64_t step, int64_t count, float* scores) {
  constexpr int C = kLanes / R > 0 ? kLanes / R : 1;  // R * C sums fill one vector
  const float* q[R];
  for (int r = 0; r < R; ++r) q[r] = t.q + (r0 + r) * depth;
  float* s = scores + r0 * kKeyBlock;
  int64_t j = 0;
  for (; j + C <= count; j += C) dots<R, C>(q, k + j * step, step, depth, s + j, kKeyBlock);
  for (; j < count; ++j) dots<R, 1>(q, k + j * step, step, depth, s + j, kKeyBlock);
}

template <typename T>
void few_scores(const Tile& t, int64_t depth, const T* k, int64_t step, int64_t count, float* scores) {
  for (int64_t r = 0; r < t.rows; ++r) {
    for (int64_t j = 0; j < count; ++j) scores[r * kKeyBlock + j] = 0;
  }
  int64_t r = 0;
  for (; r + 4 <= t.rows; r += 4) dot_scores<4>(t, depth, r, k, step, count, scores);
  if (r + 3 <= t.rows) {
    dot_scores<3>(t, depth, r, k, step, count, scores);
    r += 3;
  }
  for (; r + 2 <= t.rows; r += 2) dot_scores<2>(t, depth, r, k, step, count, scores);
  if (r < t.rows) dot_scores<1>(t, depth, r, k, step, count, scores);
}

template <typename T>
void scores_of(const Problem& p, const Tile& t, const T* k, int64_t step, int64_t count) {
  if (t.rows <= kFewRows && p.k.strides[3] == 1) return few_scores(t, p.depth, k, step, count, t.scores);
  for (int64_t j = 0; j < count; j += kTileColumns) {
    const int64_t columns = count - j < kTileColumns ? count - j : kTileColumns;
    pack_panel(k + j * step, p.k.strides[3], step, p.depth, columns, t.panel);
    if (p.depth == 0) {
      for (int64_t r = t.done; r < t.rows; ++r) {
        for (int64_t i = 0; i < columns; ++i) t.scores[r * kKeyBlock + j + i] = 0;
      }
      continue;
    }
    tile_rows(t.rows - t.done, p.depth, t.q + t.done * p.depth, p.depth, t.panel, kTileColumns, t.scores + t.done * kKeyBlock + j, kKeyBlock, false);
  }
}

// -- o[r] += sum_j scores[r][j] * value j
template <int R, int V, typename T>
SITU_INLINE void add_values(const Tile& t, int64_t r0, int64_t column, const T* v, int64_t step, int64_t count, const float* scores) {
  constexpr int U = R == 1 ? 2 : 1;  // one row alone needs two chains to hide the latency of its sums
  VecF acc[U][R][V] = {};
  int64_t j = 0;
  for (; j + U <= count; j += U) {
#pragma GCC unroll 2
    for (int u = 0; u < U; ++u) {
      VecF value[V];
#pragma GCC unroll 4
      for (int i = 0; i < V; ++i) value[i] = load(v + (j + u) * step + column + i * kLanes);
#pragma GCC unroll 4
      for (int r = 0; r < R; ++r) {
        const VecF weight = splat(scores[(r0 + r) * kKeyBlock + j + u]);
#pragma GCC unroll 4
        for (int i = 0; i < V; ++i) acc[u][r][i] += weight * value[i];
      }
    }
  }
  for (; j < count; ++j) {
    for (int r = 0; r < R; ++r) {
      const VecF weight = splat(scores[(r0 + r) * kKeyBlock + j]);
      for (int i = 0; i < V; ++i) acc[0][r][i] += weight * load(v + j * step + column + i * kLanes);
    }
  }
  for (int r = 0; r < R; ++r) {
    for (int i = 0; i < V; ++i) {
      float* o = t.o + (r0 + r) * t.o_row + column + i * kLanes;
      VecF sum = load(o) + acc[0][r][i];
      if constexpr (U == 2) sum += acc[1][r][i];
      store(o, sum);
    }
  }
}

template <int R, typename T>
SITU_INLINE void value_rows(const Tile& t, int64_t r0, int64_t depth, const T* v, int64_t step, int64_t count, const float* scores) {
  constexpr int V = kVectorRegisters == 32 || R < 4 ? 4 : 2;
  int64_t d = 0;
  for (; d + V * kLanes <= depth; d += V * kLanes) add_values<R, V>(t, r0, d, v, step, count, scores);
  for (; d + kLanes <= depth; d += kLanes) add_values<R, 1>(t, r0, d, v, step, count, scores);
  for (int64_t j = 0; j < count && d < depth; ++j) {
    const VecF value = load_n(v + j * step + d, depth - d);
    for (int r = 0; r < R; ++r) {
      float* o = t.o + (r0 + r) * t.o_row + d;
      store(o, load(o) + splat(scores[(r0 + r) * kKeyBlock + j]) * value);
    }
  }
}

template <typename T>
void few_values(const Tile& t, int64_t depth, const T* v, int64_t step, int64_t count, const float* scores) {
  int64_t r = 0;
  for (; r + 4 <= t.rows; r += 4) value_rows<4>(t, r, depth, v, step, count, scores);
  if (r + 3 <= t.rows) {
    value_rows<3>(t, r, depth, v, step, count, scores);
    r += 3;
  }
  for (; r + 2 <= t.rows; r += 2) value_rows<2>(t, r, depth, v, step, count, scores);
  if (r < t.rows) value_rows<1>(t, r, depth, v, step, count, scores);
}

template <typename T>
void values_of(const Problem& p, const Tile& t, const T* v, int64_t step, int64_t count) {
  const int64_t unit = p.v.strides[3];
  if (t.rows <= kFewRows && unit == 1) return few_values(t, p.value_depth, v, step, count, t.scores);
  for (int64_t d = 0; d < p.value_depth; d += kTileColumns) {
    const int64_t columns = p.value_depth - d < kTileColumns ? p.value_depth - d : kTileColumns;
    pack_panel(v + d * unit, step, unit, count, columns, t.panel);
    tile_rows(t.rows - t.done, count, t.scores + t.done * kKeyBlock, kKeyBlock, t.panel, kTileColumns, t.o + t.done * t.o_row + d, t.o_row, true);
  }
}

// -- masks and softmax of one row's block of scores, keys [key, key + count)
void add_bias(const Problem& p, Tile* t, int64_t r, int64_t key, int64_t count, float* s) {
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

// Turns scores into weights exp(s - m) and rescales the row's sum and output.
void online_softmax(Tile* t, int64_t r, int64_t count, float* s) {
  const VecF low = splat(-__builtin_inff());
  const int64_t padded = (count + kLanes - 1) / kLanes * kLanes;
  for (int64_t j = count; j < padded; ++j) s[j] = -__builtin_inff();
  VecF largest = low;
  for (int64_t j = 0; j < padded; j += kLanes) largest = vmax(load(s + j), largest);
  const float m = max_lanes(vmax(largest, splat(t->m[r])));
  if (!(m > -__builtin_inff())) {  // nothing to attend to so far; NaN scores fall through below
    bool nan = false;
    for (int64_t j = 0; j < count; ++j) nan |= s[j] != s[j];
    for (int64_t j = 0; j < padded && !nan; ++j) s[j] = 0;
    if (!nan) return;
  }
  VecF sum{};
  for (int64_t j = 0; j < padded; j += kLanes) {
    const VecF weight = exp(load(s + j) - m);
    sum += weight;
    store(s + j, weight);
  }
  if (t->m[r] != m) {
    const float shrink = exp(splat(t->m[r] - m))[0];
    t->l[r] *= shrink;
    for (int64_t d = 0; d < t->o_row; d += kLanes) store(t->o + r * t->o_row + d, load(t->o + r * t->o_row + d) * shrink);
    t->m[r] = m;
  }
  t->l[r] += sum_lanes(sum);
}

void weigh_block(const Problem& p, Tile* t, int64_t key, int64_t count) {
  for (int64_t r = t->done; r < t->rows; ++r) {
    float* s = t->scores + r * kKeyBlock;
    if (p.params.softcap > 0) {
      const float cap = p.params.softcap, inverse = 1.0f / cap;
      for (int64_t j = 0; j < count; j += kLanes) store(s + j, tanh(load(s + j) * inverse) * cap);
    }
    if (p.bias != nullptr) add_bias(p, t, r, key, count, s);
    if (p.slopes != nullptr) {
      const int64_t head = (t->first + r) / p.queries;
      const float slope = read_float(p.slopes->data, p.slopes->type, head * p.slopes->strides[0]);
      // By distance, not by position: at 100,000 keys a slope of 0.84 times the position keeps two decimals.
      const int64_t own = p.keys - p.queries + (t->first + r) % p.queries;
      for (int64_t j = 0; j < count; ++j) s[j] += slope * static_cast<float>(key + j - own);
    }
    const int64_t from = clamp(t->begin[r] - key, 0, count), to = clamp(t->end[r] - key, 0, count);
    for (int64_t j = 0; j < from; ++j) s[j] = -__builtin_inff();
    for (int64_t j = to; j < count; ++j) s[j] = -__builtin_inff();
    online_softmax(t, r, count, s);
  }
}

// Keys [key, key + count), which lie in consecutive slots from `slot` on.
void attend_block(const Problem& p, Tile* t, int64_t key, int64_t slot, int64_t count) {
  const int64_t kv_head = t->first / p.queries / p.group;
  const int64_t k = t->batch * p.k.strides[0] + kv_head * p.k.strides[1] + slot * p.k.strides[2];
  const int64_t v = t->batch * p.v.strides[0] + kv_head * p.v.strides[1] + slot * p.v.strides[2];
  // Queries in order: the first rows of a causal tile end before its last keys.
  t->done = 0;
  while (t->rows > kFewRows && t->done + 1 < t->rows && t->end[t->done] <= key) ++t->done;
  if (p.k.type == DType::kF32) scores_of(p, *t, p.k.as<const float>() + k, p.k.strides[2], count);
  else if (p.k.type == DType::kF16) scores_of(p, *t, p.k.as<const Half>() + k, p.k.strides[2], count);
  else scores_of(p, *t, p.k.as<const BFloat>() + k, p.k.strides[2], count);
  weigh_block(p, t, key, count);
  if (p.v.type == DType::kF32) values_of(p, *t, p.v.as<const float>() + v, p.v.strides[2], count);
  else if (p.v.type == DType::kF16) values_of(p, *t, p.v.as<const Half>() + v, p.v.strides[2], count);
  else values_of(p, *t, p.v.as<const BFloat>() + v, p.v.strides[2], count);
}

void attend_run(const Problem& p, Tile* t, int64_t key, int64_t slot, int64_t length, int64_t begin, int64_t end) {
  const int64_t from = clamp(begin - key, 0, length), to = clamp(end - key, 0, length);
  for (int64_t i = from; i < to; i += kKeyBlock) {
    attend_block(p, t, key + i, slot + i, to - i < kKeyBlock ? to - i : kKeyBlock);
  }
}

void finish_tile(const Problem& p, Tile* t) {
  for (int64_t r = 0; r < t->rows; ++r) {
    const int64_t head = (t->first + r) / p.queries, query = (t->first + r) % p.queries;
    float* o = t->o + r * t->o_row;
    const float inverse = t->l[r] == 0 ? 0.0f : 1.0f / t->l[r];
    for (int64_t d = 0; d < p.value_depth; ++d) o[d] *= inverse;
    const int64_t at = t->batch * p.y.strides[0] + head * p.y.strides[1] + query * p.y.strides[2];
    write_row(p.y.data, p.y.type, at, p.y.strides[3], p.value_depth, o);
  }
}

// Rows [first, first + rows) of a batch; they share a KV head.
void run_tile(const Problem& p, Tile* t, int64_t batch, int64_t first, int64_t rows) {
  t->batch = batch;
  t->first = first;
  t->rows = rows;
  start_tile(p, t);
  int64_t begin = p.keys, end = 0;  // keys that any of the rows may attend to
  for (int64_t r = 0; r < rows; ++r) {
    if (t->begin[r] >= t->end[r]) continue;
    begin = t->begin[r] < begin ? t->begin[r] : begin;
    end = t->end[r] > end ? t->end[r] : end;
  }
  if (p.call.runs == nullptr) {
    attend_run(p, t, 0, 0, p.keys, begin, end);
  } else {
    int64_t key = 0;
    for (int i = 0; i < p.call.run_count && key < end; ++i) {
      attend_run(p, t, key, p.call.runs[i].first_slot, p.call.runs[i].length, begin, end);
      key += p.call.runs[i].length;
    }
  }
  finish_tile(p, t);
}

// Few rows: every thread takes an equal part of them, also across KV heads, so that two threads share three
// heads evenly. Reading a key head twice costs less than waiting.
void run_few(const Problem& p, Tile* t, int thread, int threads) {
  const int64_t per_batch = p.heads * p.queries, per_kv_head = p.group * p.queries;
  int64_t row, last;
  split_range(p.batch * per_batch, thread, threads, &row, &last);
  while (row < last) {
    const int64_t in_batch = row % per_batch;
    int64_t rows = per_kv_head - in_batch % per_kv_head;
    rows = rows < last - row ? rows : last - row;
    rows = rows < t->capacity ? rows : t->capacity;
    run_tile(p, t, row / per_batch, in_batch, rows);
    row += rows;
  }
}

// Many rows: tiles go round the threads; with causal masks later tiles cost more, so neighbours go to
// different threads and every other head starts with the other one.
void run_many(const Problem& p, Tile* t, int thread, int threads) {
  const int64_t per_kv_head = p.group * p.queries, kv_heads = p.k.dims[1];
  const int64_t tiles = (per_kv_head + t->capacity - 1) / t->capacity;
  for (int64_t head = 0; head < p.batch * kv_heads; ++head) {
    for (int64_t i = 0; i < tiles; ++i) {
      if ((i + head) % threads != thread) continue;
      const int64_t first = i * t->capacity, rest = per_kv_head - first;
      run_tile(p, t, head / kv_heads, head % kv_heads * per_kv_head + first, rest < t->capacity ? rest : t->capacity);
    }
  }
}

// -- one token over a split of the keys
constexpr int kSplitHeads = 8;  // KV heads whose rows are worked on side by side, so that slots are read front to back

// Tiles for the rows of up to `most` KV heads, in this thread's scratch; how many of them fit. At least one does: the pass
// that splits attention (passes/split_attention.cc) leaves larger groups and heads alone.
int64_t lay_out_tiles(const Problem& p, std::byte* scratch, int64_t most, Tile* tiles) {
  const int64_t panel_rows = p.depth > kKeyBlock ? p.depth : kKeyBlock;
  const int64_t o_row = (p.value_depth + kTileColumns - 1) / kTileColumns * kTileColumns;
  float* panel = reinterpret_cast<float*>(scratch);
  const int64_t shared = panel_rows * kTileColumns + kKeyBlock, per_tile = p.group * (p.depth + o_row + kKeyBlock);
  const int64_t fit = clamp((kScratchBytes / 4 - shared) / per_tile, 1, most);
  float* at = panel + shared;
  for (int64_t i = 0; i < fit; ++i, at += per_tile) {
    Tile& t = tiles[i];
    t.o_row = o_row;
    t.panel = panel;
    t.addend = panel + panel_rows * kTileColumns;
    t.o = at;
    t.scores = t.o + p.group * o_row;
    t.q = t.scores + p.group * kKeyBlock;
    t.capacity = p.group;
  }
  return fit;
}

// Calls body(pointer to element 0) with the type of v's elements.
template <typename Body>
SITU_INLINE void with_type(const View& v, Body body) {
  if (v.type == DType::kF32) return body(v.as<const float>());
  if (v.type == DType::kF16) return body(v.as<const Half>());
  body(v.as<const BFloat>());
}

constexpr int64_t kInterleave = 16;  // slots that all heads read before the next ones

// Asks for part `part` of `parts` of the rows of slots [slot, slot + count): the arithmetic on one group of slots takes
// about as long as fetching the next.
SITU_INLINE void prefetch_slots(const View& v, int64_t slot, int64_t count, int64_t part, int64_t parts) {
  const int64_t row = v.strides[2] * dtype_bytes(v.type), bytes = count * row;
  const std::byte* begin = v.data + slot * row;
  for (int64_t i = bytes * part / parts / 64 * 64; i < bytes * (part + 1) / parts; i += 64) __builtin_prefetch(begin + i);
}

// Keys [key, key + count) in consecutive slots, for all tiles. A slot holds all heads side by side: heads take turns every
// few slots, so that memory is read in order. `follow`: slots that come next in the same run.
void attend_slots(const Problem& p, Tile* tiles, int64_t tile_count, int64_t key, int64_t slot, int64_t count, int64_t follow) {
  const int64_t first_head = tiles[0].first / p.group;
  with_type(p.k, [&](const auto* k) {
    for (int64_t j = 0; j < count; j += kInterleave) {
      const int64_t n = count - j < kInterleave ? count - j : kInterleave;
      const int64_t ahead = count - j - n < kInterleave ? count - j - n : kInterleave;
      for (int64_t h = 0; h < tile_count; ++h) {
        if (ahead > 0) prefetch_slots(p.k, slot + j + n, ahead, h, tile_count);
        else prefetch_slots(p.v, slot, count < kInterleave ? count : kInterleave, h, tile_count);
        few_scores(tiles[h], p.depth, k + (first_head + h) * p.k.strides[1] + (slot + j) * p.k.strides[2], p.k.strides[2], n, tiles[h].scores + j);
      }
    }
  });
  for (int64_t h = 0; h < tile_count; ++h) weigh_block(p, &tiles[h], key, count);
  with_type(p.v, [&](const auto* v) {
    for (int64_t j = 0; j < count; j += kInterleave) {
      const int64_t n = count - j < kInterleave ? count - j : kInterleave;
      const int64_t ahead = count - j - n < kInterleave ? count - j - n : kInterleave;
      for (int64_t h = 0; h < tile_count; ++h) {
        if (ahead > 0) prefetch_slots(p.v, slot + j + n, ahead, h, tile_count);
        else prefetch_slots(p.k, slot + count, follow < kInterleave ? follow : kInterleave, h, tile_count);
        few_values(tiles[h], p.value_depth, v + (first_head + h) * p.v.strides[1] + (slot + j) * p.v.strides[2], p.v.strides[2], n, tiles[h].scores + j);
      }
    }
  });
}

// Keys [begin, end) of all tiles, block by block: a block of slots is read once, for all its heads.
void attend_tiles(const Problem& p, Tile* tiles, int64_t count, int64_t begin, int64_t end) {
  int64_t key = 0;
  const Run whole{0, p.keys};
  const Run* runs = p.call.runs != nullptr ? p.call.runs : &whole;
  const int run_count = p.call.runs != nullptr ? p.call.run_count : 1;
  const bool few = p.group <= kFewRows && p.k.strides[3] == 1 && p.v.strides[3] == 1;
  for (int i = 0; i < run_count && key < end; ++i) {
    const int64_t from = clamp(begin - key, 0, runs[i].length), to = clamp(end - key, 0, runs[i].length);
    for (int64_t j = from; j < to; j += kKeyBlock) {
      const int64_t length = to - j < kKeyBlock ? to - j : kKeyBlock, slot = runs[i].first_slot + j;
      for (int64_t h = 0; h < count; ++h) tiles[h].done = 0;
      if (few) attend_slots(p, tiles, count, key + j, slot, length, to - j - length);
      else
        for (int64_t h = 0; h < count; ++h) attend_block(p, &tiles[h], key + j, slot, length);
    }
    key += runs[i].length;
  }
}

// Rows of one tile as the merge reads them: m, l, o (not divided by l).
void write_partial(const Problem& p, const Tile& t, int64_t split) {
  for (int64_t r = 0; r < t.rows; ++r) {
    float* row = p.y.as<float>() + split * p.y.strides[0] + (t.first + r) * p.y.strides[1];
    row[0] = t.m[r];
    row[1] = t.l[r];
    for (int64_t d = 0; d < p.value_depth; ++d) row[2 + d] = t.o[r * t.o_row + d];
  }
}

void run_split(const Problem& p, std::byte* scratch, int64_t split, int64_t splits) {
  const int64_t kv_heads = p.k.dims[1], first = p.params.window > 0 && p.keys > p.params.window ? p.keys - p.params.window : 0;
  const int64_t begin = first + (p.keys - first) * split / splits, end = first + (p.keys - first) * (split + 1) / splits;
  Tile tiles[kSplitHeads];
  for (int64_t head = 0; head < kv_heads;) {
    const int64_t count = lay_out_tiles(p, scratch, kv_heads - head < kSplitHeads ? kv_heads - head : kSplitHeads, tiles);
    for (int64_t h = 0; h < count; ++h) {
      Tile& t = tiles[h];
      t.batch = 0;
      t.first = (head + h) * p.group;
      t.rows = p.group;
      start_tile(p, &t);
      // A sink takes part in the denominator once.
      for (int64_t r = 0; r < t.rows && split > 0; ++r) {
        t.m[r] = -__builtin_inff();
        t.l[r] = 0;
      }
    }
    attend_tiles(p, tiles, count, begin, end);
    for (int64_t h = 0; h < count; ++h) write_partial(p, tiles[h], split);
    head += count;
  }
}

}  // namespace

// y [splits, H, Dv + 2] of one token: each split of the keys gives every row its m, l and o. Threads take splits.
void attention_partial(const KernelCall& call, int thread, int threads) {
  const Problem p = make_problem(call);
  const int64_t splits = call.out[0].dims[0];
  for (int64_t split = thread; split < splits; split += threads) run_split(p, call.scratch, split, splits);
}

// y [1, H, 1, Dv] = sum of the splits' o, each weighted by exp(m - largest m), over the sum of their l weighted alike.
void attention_merge(const KernelCall& call, int thread, int threads) {
  const View &x = call.in[0], &y = call.out[0];
  const int64_t splits = x.dims[0], depth = x.dims[2] - 2;
  float* o = reinterpret_cast<float*>(call.scratch);
  int64_t begin, end;
  split_range(x.dims[1], thread, threads, &begin, &end);
  for (int64_t h = begin; h < end; ++h) {
    const float* rows = x.as<const float>() + h * x.strides[1];
    float largest = -__builtin_inff(), sum = 0;
    for (int64_t s = 0; s < splits; ++s) largest = rows[s * x.strides[0]] > largest ? rows[s * x.strides[0]] : largest;
    for (int64_t d = 0; d < depth; ++d) o[d] = 0;
    for (int64_t s = 0; s < splits; ++s) {
      const float* row = rows + s * x.strides[0];
      if (row[1] == 0) continue;  // no key
      const float weight = exp(splat(row[0] - largest))[0];
      sum += row[1] * weight;
      for (int64_t d = 0; d < depth; ++d) o[d] += row[2 + d] * weight;
    }
    const float inverse = sum == 0 ? 0.0f : 1.0f / sum;
    for (int64_t d = 0; d < depth; ++d) o[d] *= inverse;
    write_row(y.data, y.type, h * y.strides[1], y.strides[3], depth, o);
  }
}

void attention(const KernelCall& call, int thread, int threads) {
  const Problem p = make_problem(call);
  if (p.batch * p.heads * p.queries == 0) return;
  Tile t;
  lay_out_scratch(p, call.scratch, &t);
  if (p.batch * p.heads * p.queries <= threads * kSharedRows) run_few(p, &t, thread, threads);
  else run_many(p, &t, thread, threads);
}

}  // namespace SITU_ISA
}  // namespace situ
