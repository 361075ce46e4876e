// What attention works on: the operands of a call as one problem, blocks of keys that lie in runs of slots, tiles of
// rows. attention_tile.h has the arithmetic.
#pragma once

#include "kernels/attention_blocks.h"
#include "kernels/attention_pairs.h"
#include "kernels/dots.h"
#include "kernels/params.h"
#include "kernels/rows.h"
#include "kernels/stored_rows.h"
#include "kernels/tile.h"

namespace situ {
namespace SITU_ISA {

// Rows of a tile, a multiple of kTileRows: more would be masked for nothing (512 queries over 512 keys with tiles of
// 48, 96 and 192 rows: 4.3, 4.8, 6.5 ms).
constexpr int64_t kMaxRows = kMostTileRows;
constexpr int64_t kPanelFloats = 65536;  // most for the panels of a block's K and V
constexpr int64_t kFewRows = 7;          // up to here dot products beat packing the keys
static_assert(kKeyBlock % kTileColumns == 0);

struct Problem {
  const KernelCall& call;
  const AttentionParams& params;
  const View &k, &v;
  const View *bias, *slopes, *sink, *distances;
  int64_t batch, heads, depth, value_depth, group;
  int64_t o_row;  // value_depth rounded up to whole tiles
  int64_t block;  // keys per step
  bool pairs;     // products of many rows are integers (kernels/attention_pairs.h)
  // Of the segment that is worked on:
  View q, y;
  int64_t queries, keys, dropped;
  bool token;  // one row with the sums of a token (attention_token.h), not of a prompt's rows (attention_rows.h)
  const Run* runs;
  Run whole;  // of keys that lie in no runs

  void take(const StepSegment& segment) {
    auto rows = [&](const View& all, View* view) {
      view->data = all.data + segment.first_row * all.strides[2] * dtype_bytes(all.type);
      view->dims[2] = segment.rows;
    };
    rows(call.in[0], &q);
    rows(call.out[0], &y);
    queries = segment.rows;
    keys = segment.keys;
    dropped = segment.dropped;
    token = segment.rows == 1 && !segment.piece;
    whole = {0, keys};
    runs = segment.runs != nullptr ? segment.runs : &whole;
  }
};

// Keys [first, first + count) of a sequence. `run` holds those from number `at` on, counted from `first`; the runs
// after it follow.
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

// Calls body(j, n, slot) for keys j .. j + n, counted from keys.first, that lie in slots slot .. slot + n; all of them
// from `from` up to `to`.
template <typename Body>
SITU_INLINE void each_stretch(const Keys& keys, int64_t from, int64_t to, Body body) {
  const Run* run = keys.run;
  for (int64_t at = keys.at; at < to; at += run++->length) {
    const int64_t begin = at < from ? from : at, end = at + run->length < to ? at + run->length : to;
    if (begin < end) body(begin, end - begin, run->first_slot + begin - at);
  }
}

// Calls body(keys) for the blocks of keys [begin, end), in order. Those of rows are of p.block tokens of their
// sequence, wherever a step begins and whichever tokens are not kept any more.
template <typename Body>
SITU_INLINE void each_block(const Problem& p, int64_t begin, int64_t end, Body body) {
  Keys keys{begin, 0, p.runs, -begin};
  for (; keys.first < end; keys.first += keys.count, keys.at -= keys.count) {
    keys = keys.from(0);
    const int64_t most = p.token ? p.block : p.block - (keys.first + p.dropped) % p.block;
    keys.count = end - keys.first < most ? end - keys.first : most;
    body(keys);
  }
}

struct Tile {
  float* q;                    // [rows][depth], scaled
  float* o;                    // [rows][o_row]
  float* scores;               // [rows][kKeyBlock]
  float* addend;               // [kKeyBlock]: a row of bias
  int64_t batch, first, rows;  // rows first .. first + rows of batch `batch`
  int64_t done;                // rows below it, of many, may not attend to this block of keys any more
  float m[kMaxRows], l[kMaxRows];
  float shrink[kMaxRows];                  // what o must be multiplied by before more is added to it
  int64_t begin[kMaxRows], end[kMaxRows];  // keys that each row may attend to, beside AttentionParams::first
  int64_t first_key, last_key;             // [first_key, last_key): those of any row
  bool rounded;                            // q holds pairs of integers, a row where it was, each worth q_scale
  float q_scale[kMaxRows];
  float weight[kMaxRows];  // what the integer 1 among the row's weights is worth
};

// K and V of one block of keys as the register tiles read them.
struct Panels {
  float*
      keys;  // [keys / kTileColumns][depth][kTileColumns]; or pairs [..][depth / 2][kTileColumns], then scales [keys]
  float*
      values;  // [o_row / kTileColumns][keys][kTileColumns]; or pairs [..][keys / 2][kTileColumns], then scales [o_row]
};

static inline const View* operand(const KernelCall& call, int i) {
  return i < call.in_count && call.in[i].present() ? &call.in[i] : nullptr;
}

static inline int64_t clamp(int64_t x, int64_t low, int64_t high) { return x < low ? low : (x > high ? high : x); }

// Columns [from, to) of all rows of scores, times what the integers of the block's keys or values are worth; `v`: of
// slot 0.
template <typename Row>
SITU_INLINE void scale_columns(int64_t rows, Row v, int64_t step, int64_t size, const Keys& keys, int64_t from,
                               int64_t to, float* scores) {
  if constexpr (kScaledRows<Row>) {
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

// All rows of a call that names no segments.
static inline StepSegment whole_call(const KernelCall& call) {
  StepSegment all;
  all.rows = call.in[0].dims[2];
  all.keys = call.in[1].dims[2];
  return all;
}

// Whether products with rows of such a view may round to 12 bits (kernels/attention_pairs.h): halves, and bytes that
// were rounded for a user. A graph that has integers itself means their products with floats.
static inline bool may_round(const View& v, RowEncoding encoding) {
  return encoding == RowEncoding::kRowScale || (encoding == RowEncoding::kPlain && v.type != DType::kF32);
}

// Of no segment yet. Stays where it is: runs may be its own.
static inline void make_problem(Problem* p) {
  const View &q = p->call.in[0], &k = p->k, &v = p->v;
  p->bias = operand(p->call, 3);
  p->slopes = operand(p->call, 4);
  p->sink = operand(p->call, 5);
  p->distances = operand(p->call, 6);
  p->batch = q.dims[0];
  p->heads = q.dims[1];
  p->depth = q.dims[3];
  p->value_depth = p->call.out[0].dims[3];
  p->group = k.dims[1] > 0 ? p->heads / k.dims[1] : 1;
  p->o_row = (p->value_depth + kTileColumns - 1) / kTileColumns * kTileColumns;
  p->block = kKeyBlock;
  while (p->block > kTileColumns && (p->depth + p->o_row) * p->block > kPanelFloats) p->block /= 2;
  p->pairs = kVnni && may_round(k, p->params.keys) && may_round(v, p->params.values) && p->depth >= 4 &&
             p->depth <= kMostPairDepth && k.strides[3] == 1 && v.strides[3] == 1;
  p->q = q;
  p->y = p->call.out[0];
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
  if (rows - r == 3)
    body(RowCount<3>{}, r);
  else if (rows - r == 2)
    body(RowCount<2>{}, r);
  else if (rows - r == 1)
    body(RowCount<1>{}, r);
}

}  // namespace SITU_ISA
}  // namespace situ
