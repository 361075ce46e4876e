// Attention of single tokens, as decoding has them. Each block of a token's keys is summed on its own, and the sums are
// merged in order: whoever computes them, and whoever else is in the step, the result is the same to the bit (flash
// decoding). attention_units.h says who computes which.
//
// All heads of a unit, and all tokens that share its keys, are worked on together: a slot holds heads side by side. A
// thread that has all blocks of its tokens merges them on the way; else each leaves its sums in the workspace, and the
// thread that comes last (KernelCall::arrivals) merges them.
#pragma once

#include "kernels/attention_tile.h"
#include "kernels/attention_units.h"

namespace situ {
namespace SITU_ISA {

// Slots that all heads read before the next ones: whole groups of keys whose scores fill a vector
// (kernels/attention_tile.h) and pairs of values, up to about as many bytes as are fetched while the ones before them
// are worked on. Strides do not count: sums are the same wherever slots lie. Sixteen slots of three heads of 64 halves
// (Zen 4, two threads, 2,048 keys of 30 layers, medians of five in turn): 4.9 ms, ten of them 2.9.
constexpr int64_t kSlotBytes = 4096;
static inline int64_t slots_at_once(const Problem& p) {
  const int64_t rows = p.group < 4 ? p.group : 4, keys = kLanes / rows > 0 ? kLanes / rows : 1;
  const int64_t even = keys % 2 == 0 ? keys : 2 * keys,
                bytes = even * p.k.dims[1] * p.k.dims[3] * dtype_bytes(p.k.type);
  return bytes > 0 && 2 * bytes <= kSlotBytes ? kSlotBytes / bytes * even : even;
}

// Tiles that attend to the same keys, those of one KV head side by side.
struct TileList {
  Tile* tiles[kTilesTogether];
  int64_t count = 0;
  int64_t first_head, heads;
};

// Asks for the slots of the block's rows [begin, end), as far as the tiles' heads go: the arithmetic on one group of
// slots takes about as long as fetching the next.
SITU_INLINE void prefetch_slots(const TileList& list, const View& v, const Keys& keys, int64_t begin, int64_t end) {
  const int64_t row = v.strides[2] * dtype_bytes(v.type), head = v.strides[1] * dtype_bytes(v.type);
  const bool all = list.heads == v.dims[1] || head >= row;
  const std::byte* data = v.data + (all ? 0 : list.first_head * head);
  // Inlined before GCC looks for calls without an effect: it takes one that only prefetches for such, and drops it.
  each_stretch(keys, begin, end, [&](int64_t, int64_t count, int64_t slot) __attribute__((always_inline)) {
    const int64_t pieces = all ? 1 : count, bytes = all ? count * row : list.heads * head;
    for (int64_t i = 0; i < pieces; ++i) {
      const std::byte *at = data + (slot + i) * row, *last = at + bytes;
      for (; at < last; at += 64) __builtin_prefetch(at);
    }
  });
}

// A block of keys, for all tiles. A slot holds all heads side by side: heads take turns every few slots, so that memory
// is read in order, and once. `follow`: keys that come after the block.
static inline void attend_slots(const Problem& p, const TileList& list, const Keys& keys, int64_t follow) {
  // Heads that do not lie side by side take no turns.
  const bool apart = p.k.strides[1] > p.k.strides[2] || p.v.strides[1] > p.v.strides[2];
  const int64_t count = keys.count, step = apart ? count : slots_at_once(p);
  auto up_to = [](int64_t j, int64_t most) { return j < most ? j : most; };
  // Few slots that are left over join the ones before: in the time that they take alone, no group is fetched.
  auto end_of = [&](int64_t j) { return 2 * (count - j) < 3 * step ? count : j + step; };
  // Each tile asks for a share of the slots.
  const int64_t share = (step + list.count - 1) / list.count;
  auto ask = [&](const View& v, const Keys& of, int64_t from, int64_t to, int64_t part) __attribute__((always_inline)) {
    if (apart) return;
    const int64_t begin = from + part * share;
    prefetch_slots(list, v, of, begin, part + 1 == list.count ? to : up_to(begin + share, to));
  };
  with_rows(p.k, p.params.keys, [&](auto k) {
    Keys now = keys;
    for (int64_t j = 0, next; j < count; j = next) {
      next = end_of(j);
      now = now.from(j);
      for (int64_t i = 0; i < list.count; ++i) {
        next < count ? ask(p.k, now, next, end_of(next), i) : ask(p.v, keys, 0, end_of(0), i);
        const Tile& t = *list.tiles[i];
        few_scores(t, p.depth, head_rows(k, p.k, t.batch, t.first / p.group), slot_step(k, p.k), now, j, next);
      }
    }
  });
  for (int64_t i = 0; i < list.count; ++i) {
    weigh_few(p, list.tiles[i], keys.first, count, list.tiles[i]->scores);
    shrink_rows(p, list.tiles[i]);
  }
  with_rows(p.v, p.params.values, [&](auto v) {
    Keys now = keys;
    for (int64_t j = 0, next; j < count; j = next) {
      next = end_of(j);
      now = now.from(j);
      for (int64_t i = 0; i < list.count; ++i) {
        next < count ? ask(p.v, now, next, end_of(next), i) : ask(p.k, now, count, count + up_to(step, follow), i);
        const Tile& t = *list.tiles[i];
        few_values(p, t, head_rows(v, p.v, t.batch, t.first / p.group), slot_step(v, p.v), now, j, next);
      }
    }
  });
}

// The same where a KV head has many rows: its keys are packed once.
static inline void attend_panels(const Problem& p, const TileList& list, const Keys& keys, const Panels& panels) {
  int64_t packed = -1;
  for (int64_t i = 0; i < list.count; ++i) {
    Tile& t = *list.tiles[i];
    if (t.first / p.group != packed) pack_block(p, t.batch, packed = t.first / p.group, keys, panels);
    attend_packed(p, &t, keys.first, keys.count, panels);
  }
}

constexpr int64_t kMostRows = kHeadsTogether * kMaxRows;
static_assert(kSharingRows <= kMostRows);

// Sums of rows: output o (not divided by l), the largest score m, and l.
struct Sums {
  bool empty = true;  // of no key yet
  float* o[kMostRows];
  float m[kMostRows], l[kMostRows];
};

// Tiles of one thread, by KV head, then by token, and what their blocks are merged into.
struct TokenWork {
  Panels panels;
  const StepSegment* segments;
  int tokens;
  int64_t count, rows;
  Tile tiles[kTilesTogether];
  Sums block, part, total;
};

static inline void start_token(Problem* p, std::byte* scratch, const TokenTiles& cut, const TokenUnits& units,
                               const StepSegment* segments, TokenWork* w) {
  w->segments = segments + units.segment;
  w->tokens = units.tokens;
  w->count = units.tiles * units.tokens;
  w->rows = 0;
  w->total.empty = p->sink == nullptr && !p->params.smooth_sink;
  w->panels.keys = reinterpret_cast<float*>(scratch);
  w->panels.values = w->panels.keys + p->depth * p->block;
  float* addend = w->panels.keys + panel_floats(*p);
  float* at = addend + kKeyBlock;
  for (int64_t i = 0; i < w->count; ++i) {
    p->take(w->segments[i % w->tokens]);
    const int64_t tile = units.tile + i / w->tokens, row = tile % cut.per_head * cut.rows;
    Tile& t = w->tiles[i];
    t.batch = units.batch;
    t.first = tile / cut.per_head * p->group + row;
    t.rows = p->group - row < cut.rows ? p->group - row : cut.rows;
    t.addend = addend;
    t.q = at;
    t.o = t.q + cut.rows * p->depth;
    float *part = t.o + cut.rows * p->o_row, *total = part + cut.rows * p->o_row;
    t.scores = total + cut.rows * p->o_row;
    at = t.scores + cut.rows * kKeyBlock;
    start_tile(*p, &t);
    for (int64_t r = 0; r < t.rows; ++r, ++w->rows) {
      w->part.o[w->rows] = part + r * p->o_row;
      w->total.o[w->rows] = total + r * p->o_row;
      w->total.m[w->rows] = t.m[r];
      w->total.l[w->rows] = t.l[r];
      for (int64_t d = 0; d < p->o_row && !w->total.empty; d += kLanes) store(total + r * p->o_row + d, VecF{});
    }
  }
}
// Rows of q, scores, and o of a block, of a part and in all.
static inline int64_t token_rows_that_fit(const Problem& p) {
  return (kScratchBytes / 4 - panel_floats(p) - kKeyBlock) / (p.depth + 3 * p.o_row + kKeyBlock);
}

#ifdef SITU_BASE_ISA
constexpr bool kOwnFewRows = false;  // the base's: attention.cc
#else
constexpr bool kOwnFewRows = true;
#endif

// Sums of keys [begin, end) alone. `follow`: keys that this thread goes on with.
static inline void sum_block(Problem* p, TokenWork* w, int64_t begin, int64_t end, int64_t follow) {
  for (int64_t i = 0; i < w->count; ++i) {
    Tile& t = w->tiles[i];
    t.done = 0;
    for (int64_t r = 0; r < t.rows; ++r) {
      t.m[r] = -__builtin_inff();
      t.l[r] = 0;
      for (int64_t d = 0; d < p->o_row; d += kLanes) store(t.o + r * p->o_row + d, VecF{});
    }
  }
  for (int first = 0, last; first < w->tokens; first = last) {
    last = next_reader(w->segments, first, w->tokens, end);
    p->take(w->segments[first]);
    TileList list;
    for (int64_t i = 0; i < w->count; ++i)
      if (i % w->tokens >= first && i % w->tokens < last) list.tiles[list.count++] = &w->tiles[i];
    list.first_head = list.tiles[0]->first / p->group;
    list.heads = list.tiles[list.count - 1]->first / p->group - list.first_head + 1;
    const bool few = kOwnFewRows && few_rows(*p);
    each_block(*p, begin, end, [&](const Keys& keys) {
      if (few)
        attend_slots(*p, list, keys, end - keys.first - keys.count + follow);
      else
        attend_panels(*p, list, keys, w->panels);
    });
  }
}

// Adds the sums of keys that follow; what they lie in is free afterwards. Not inlined into its callers, so that all
// have the same instructions.
__attribute__((noinline)) static void merge(int64_t rows, int64_t o_row, Sums* from, Sums* to) {
  for (int64_t first = 0; first < rows; first += kLanes) {
    const int64_t n = rows - first < kLanes ? rows - first : kLanes;
    const VecF here = load_n(from->m + first, n), l = load_n(from->l + first, n);
    if (to->empty) {
      store_n(to->m + first, here, n);
      store_n(to->l + first, l, n);
      for (int64_t r = first; r < first + n; ++r) {
        float* o = to->o[r];
        to->o[r] = from->o[r];
        from->o[r] = o;
      }
      continue;
    }
    const VecF before = load_n(to->m + first, n), largest = before > here ? before : here,  // NaN where `here` is
        origin = largest > -__builtin_inff() ? largest : VecF{};
    const VecF kept = exp(before - origin), added = exp(here - origin);
    store_n(to->m + first, largest, n);
    store_n(to->l + first, load_n(to->l + first, n) * kept + l * added, n);
    for (int64_t r = 0; r < n; ++r) {
      float *o = to->o[first + r], *more = from->o[first + r];
      for (int64_t d = 0; d < o_row; d += kLanes) store(o + d, load(o + d) * kept[r] + load(more + d) * added[r]);
    }
  }
  to->empty = false;
}

// Where a block of a shared token leaves its sums.
struct Workspace {
  float* data = nullptr;
  int64_t slots = 0, blocks = 0, rows = 0, floats = 0;

  explicit Workspace(const KernelCall& call) {
    if (call.arrivals == nullptr || call.out_count < 2 || !call.out[1].present()) return;
    const View& v = call.out[1];
    data = v.as<float>();
    slots = v.dims[0];
    blocks = v.dims[1];
    rows = v.dims[2];
    floats = v.dims[3];
  }
  float* row(int64_t slot, int64_t block, int64_t r) const {
    return data + ((slot * blocks + block) * rows + r) * floats;
  }
};

// The tiles' sums, of one block. What is merged of them swaps memory with them.
static inline void take_block(const Problem& p, TokenWork* w) {
  for (int64_t i = 0, row = 0; i < w->count; ++i)
    for (int64_t r = 0; r < w->tiles[i].rows; ++r, ++row) {
      w->block.m[row] = w->tiles[i].m[r];
      w->block.l[row] = w->tiles[i].l[r];
      w->block.o[row] = w->tiles[i].o + r * p.o_row;
    }
}
static inline void merge_block(const Problem& p, TokenWork* w, Sums* to) {
  merge(w->rows, p.o_row, &w->block, to);
  for (int64_t i = 0, row = 0; i < w->count; row += w->tiles[i++].rows) w->tiles[i].o = w->block.o[row];
}

// Writes sums to the workspace, in the place of a block; takes them from there, where they stay.
static inline void leave(const Problem& p, const Sums& sums, int64_t rows, const Workspace& space, int64_t slot,
                         int64_t block) {
  for (int64_t row = 0; row < rows; ++row) {
    float* to = space.row(slot, block, row);
    for (int64_t d = 0; d < p.o_row; d += kLanes) store(to + d, load(sums.o[row] + d));
    to[p.o_row] = sums.m[row];
    to[p.o_row + 1] = sums.l[row];
  }
}
static inline void take_left(const Problem& p, int64_t rows, const Workspace& space, int64_t slot, int64_t block,
                             Sums* sums) {
  for (int64_t row = 0; row < rows; ++row) {
    sums->o[row] = space.row(slot, block, row);
    sums->m[row] = sums->o[row][p.o_row];
    sums->l[row] = sums->o[row][p.o_row + 1];
  }
}

// All that threads left of some tokens.
static inline void merge_left(const Problem& p, TokenWork* w, const Workspace& space, const TokenUnits& units,
                              const TokenBlocks& blocks) {
  for (int64_t part = 0; part < blocks.parts(); ++part) {
    w->part.empty = true;
    const int64_t begin = blocks.part_begin(part),
                  end = (units.whole >> part & 1) != 0 ? begin + 1 : blocks.part_begin(part + 1);
    for (int64_t b = begin; b < end; ++b) {
      take_left(p, w->rows, space, units.slot, b, &w->block);
      merge(w->rows, p.o_row, &w->block, &w->part);
    }
    merge(w->rows, p.o_row, &w->part, &w->total);
  }
}

static inline void run_units(Problem* p, std::byte* scratch, const TokenTiles& cut, const TokenUnits& units,
                             const TokenBlocks& blocks, const StepSegment* segments, const Workspace& space) {
  TokenWork w;
  start_token(p, scratch, cut, units, segments, &w);
  const bool all = units.slot < 0;
  for (int64_t part = 0; part < blocks.parts(); ++part) {
    const int64_t begin = blocks.part_begin(part), end = blocks.part_begin(part + 1);
    const bool whole = (units.whole >> part & 1) != 0;
    w.part.empty = true;
    for (int64_t b = begin > units.from ? begin : units.from; b < end && b < units.to; ++b) {
      sum_block(p, &w, blocks.begin_of(b), blocks.end_of(b), blocks.end_of(units.to - 1) - blocks.end_of(b));
      take_block(*p, &w);
      whole ? merge_block(*p, &w, &w.part) : leave(*p, w.block, w.rows, space, units.slot, b);
    }
    if (w.part.empty) continue;
    all ? merge(w.rows, p->o_row, &w.part, &w.total) : leave(*p, w.part, w.rows, space, units.slot, begin);
  }
  if (!all) {
    uint32_t* arrived = p->call.arrivals + units.slot;
    if (__atomic_add_fetch(arrived, static_cast<uint32_t>(units.to - units.from), __ATOMIC_ACQ_REL) !=
        static_cast<uint32_t>(blocks.count))
      return;
    __atomic_store_n(arrived, 0, __ATOMIC_RELAXED);
    merge_left(*p, &w, space, units, blocks);
  }
  for (int64_t i = 0, row = 0; i < w.count; ++i) {
    p->take(w.segments[i % w.tokens]);
    for (int64_t r = 0; r < w.tiles[i].rows; ++r, ++row)
      write_output(*p, w.tiles[i], r, w.total.l[row], w.total.o[row]);
  }
}

// All segments that are one token.
static inline void run_tokens(Problem* p, const StepSegment* segments, int count, int thread, int threads) {
  const Workspace space(p->call);
  const bool room = space.floats >= p->o_row + 2;
  const TokenStep step{segments,     count,    p->params.window,        p->params.first,        p->batch,
                       p->k.dims[1], p->group, token_rows_that_fit(*p), room ? space.slots : 0, space.blocks,
                       space.rows};
  each_units(step, thread, threads, [&](const TokenUnits& units, const TokenTiles& cut, const TokenBlocks& blocks) {
    run_units(p, p->call.scratch, cut, units, blocks, segments, space);
  });
}

}  // namespace SITU_ISA
}  // namespace situ
