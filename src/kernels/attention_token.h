// Attention of single tokens, as decoding has them. The keys that a token attends to are cut into blocks by their
// number alone (attention_blocks), each is summed on its own, and the sums are merged in order: whoever computes them,
// and whoever else is in the step, the result is the same to the bit (flash decoding).
//
// The work is a list of units, (token, tiles of up to eight KV heads, block of keys), of which each thread takes a
// stretch. All heads of a unit are read together, since a slot holds them side by side. A thread that has all blocks of
// a token merges them on the way; else each leaves its sums in the workspace, and the thread that comes last
// (KernelCall::arrivals) merges them.
#pragma once

#include "kernels/attention_tile.h"

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

// Asks for part `part` of `parts` of the slots of the block's rows [from, to): the arithmetic on one group of slots
// takes about as long as fetching the next.
SITU_INLINE void prefetch_slots(const View& v, const Keys& keys, int64_t from, int64_t to, int64_t part,
                                int64_t parts) {
  const int64_t row = v.strides[2] * dtype_bytes(v.type), begin = from + (to - from) * part / parts,
                end = from + (to - from) * (part + 1) / parts;
  // Inlined before GCC looks for calls without an effect: it takes one that only prefetches for such, and drops it.
  each_stretch(keys, begin, end, [&](int64_t, int64_t count, int64_t slot) __attribute__((always_inline)) {
    const std::byte *at = v.data + slot * row, *last = at + count * row;
    for (; at < last; at += 64) __builtin_prefetch(at);
  });
}

// A block of keys, for all tiles. A slot holds all heads side by side: heads take turns every few slots, so that memory
// is read in order. `follow`: keys that come after the block.
static inline void attend_slots(const Problem& p, Tile* tiles, int64_t tile_count, const Keys& keys, int64_t follow) {
  const int64_t first_head = tiles[0].first / p.group, count = keys.count, step = slots_at_once(p);
  auto up_to = [](int64_t j, int64_t most) { return j < most ? j : most; };
  with_type(p.k, [&](const auto* k) {
    Keys now = keys;
    for (int64_t j = 0; j < count; j += step) {
      const int64_t next = up_to(j + step, count);
      now = now.from(j);
      for (int64_t h = 0; h < tile_count; ++h) {
        if (next < count)
          prefetch_slots(p.k, now, next, up_to(next + step, count), h, tile_count);
        else
          prefetch_slots(p.v, keys, 0, up_to(step, count), h, tile_count);
        few_scores(tiles[h], p.depth, k + (first_head + h) * p.k.strides[1], p.k.strides[2], now, j, next);
      }
    }
  });
  for (int64_t h = 0; h < tile_count; ++h) {
    weigh_few(p, &tiles[h], keys.first, count, tiles[h].scores);
    shrink_rows(p, &tiles[h]);
  }
  with_type(p.v, [&](const auto* v) {
    Keys now = keys;
    for (int64_t j = 0; j < count; j += step) {
      const int64_t next = up_to(j + step, count);
      now = now.from(j);
      for (int64_t h = 0; h < tile_count; ++h) {
        if (next < count)
          prefetch_slots(p.v, now, next, up_to(next + step, count), h, tile_count);
        else
          prefetch_slots(p.k, now, count, count + up_to(step, follow), h, tile_count);
        few_values(p, tiles[h], v + (first_head + h) * p.v.strides[1], p.v.strides[2], now, j, next);
      }
    }
  });
}

// How the rows of one token are cut into tiles.
struct TokenTiles {
  int64_t per_head;  // tiles of a KV head
  int64_t rows;      // of a tile; the last one of a head may have fewer
  int64_t count;     // of all KV heads
  int64_t together;  // worked on side by side

  explicit TokenTiles(const Problem& p) {
    const int64_t per_row = p.depth + 2 * p.o_row + kKeyBlock;
    const int64_t fit = (kScratchBytes / 4 - panel_floats(p) - kKeyBlock) / per_row;
    const int64_t most = clamp(fit, 1, kMaxRows);
    per_head = (p.group + most - 1) / most;
    rows = (p.group + per_head - 1) / per_head;
    count = p.k.dims[1] * per_head;
    together = clamp(fit / rows, 1, count < kTilesTogether ? count : kTilesTogether);
  }
};

// The keys of a token, in blocks.
struct TokenBlocks {
  int64_t first, end, size, count;

  TokenBlocks(const AttentionParams& params, int64_t keys) {
    first = params.window > 0 && params.first <= 0 && keys > params.window ? keys - params.window : 0;
    end = keys;
    const int64_t n = attention_blocks(end - first);
    size = (end - first + n - 1) / n;
    count = size > 0 ? (end - first + size - 1) / size : 1;
  }
  int64_t begin_of(int64_t block) const { return first + block * size; }
  int64_t end_of(int64_t block) const { return begin_of(block) + size < end ? begin_of(block) + size : end; }
};

constexpr int64_t kMostRows = kTilesTogether * kMaxRows;

// Sums of rows: output o (not divided by l), the largest score m, and l.
struct Sums {
  float* o[kMostRows];
  float m[kMostRows], l[kMostRows];
};

// Tiles of one thread, and what their blocks are merged into.
struct TokenWork {
  Panels panels;
  int64_t count, rows;
  Tile tiles[kTilesTogether];
  float* o[kTilesTogether];  // of the tiles, [rows][o_row]
  Sums merged;
  bool empty;  // nothing is merged yet
};

// Tiles first .. first + w->count of the token, with nothing merged but sinks.
static inline void start_token(const Problem& p, std::byte* scratch, const TokenTiles& cut, int64_t batch,
                               int64_t first, int64_t count, TokenWork* w) {
  w->count = count;
  w->rows = 0;
  w->empty = p.sink == nullptr && !p.params.smooth_sink;
  w->panels.keys = reinterpret_cast<float*>(scratch);
  w->panels.values = w->panels.keys + p.depth * p.block;
  float* addend = w->panels.keys + panel_floats(p);
  float* at = addend + kKeyBlock;
  for (int64_t i = 0; i < count; ++i) {
    const int64_t head = (first + i) / cut.per_head, row = (first + i) % cut.per_head * cut.rows;
    Tile& t = w->tiles[i];
    t.batch = batch;
    t.first = head * p.group + row;
    t.rows = p.group - row < cut.rows ? p.group - row : cut.rows;
    t.addend = addend;
    t.q = at;
    t.o = w->o[i] = t.q + cut.rows * p.depth;
    float* merged = t.o + cut.rows * p.o_row;
    t.scores = merged + cut.rows * p.o_row;
    at = t.scores + cut.rows * kKeyBlock;
    start_tile(p, &t);
    for (int64_t r = 0; r < t.rows; ++r, ++w->rows) {
      w->merged.m[w->rows] = t.m[r];
      w->merged.l[w->rows] = t.l[r];
      w->merged.o[w->rows] = merged + r * p.o_row;
      for (int64_t d = 0; d < p.o_row && !w->empty; d += kLanes) store(merged + r * p.o_row + d, VecF{});
    }
  }
}

// Sums of keys [begin, end) alone. `follow`: keys that this thread goes on with.
static inline void sum_block(const Problem& p, TokenWork* w, int64_t begin, int64_t end, int64_t follow) {
  for (int64_t i = 0; i < w->count; ++i) {
    Tile& t = w->tiles[i];
    t.done = 0;
    for (int64_t r = 0; r < t.rows; ++r) {
      t.m[r] = -__builtin_inff();
      t.l[r] = 0;
      for (int64_t d = 0; d < p.o_row; d += kLanes) store(t.o + r * p.o_row + d, VecF{});
    }
  }
  const bool few = few_rows(p);
  each_block(p, begin, end, [&](const Keys& keys) {
    if (few)
      attend_slots(p, w->tiles, w->count, keys, end - keys.first - keys.count + follow);
    else
      for (int64_t i = 0; i < w->count; ++i) attend_block(p, &w->tiles[i], 1, keys, w->panels);
  });
}

// What was merged so far, and the block that follows: its m, l and o [rows]. Not inlined into its two callers, so that
// both have the same instructions.
__attribute__((noinline)) static void merge(int64_t rows, int64_t o_row, const float* m, const float* l,
                                            const float* const* block_o, Sums* to) {
  for (int64_t first = 0; first < rows; first += kLanes) {
    const int64_t n = rows - first < kLanes ? rows - first : kLanes;
    const VecF before = load_n(to->m + first, n), here = load_n(m + first, n),
               largest = before > here ? before : here,  // NaN where the block's is
        origin = largest > -__builtin_inff() ? largest : VecF{};
    const VecF kept = exp(before - origin), added = exp(here - origin);
    store_n(to->m + first, largest, n);
    store_n(to->l + first, load_n(to->l + first, n) * kept + load_n(l + first, n) * added, n);
    for (int64_t r = 0; r < n; ++r) {
      float* o = to->o[first + r];
      const float* from = block_o[first + r];
      for (int64_t d = 0; d < o_row; d += kLanes) store(o + d, load(o + d) * kept[r] + load(from + d) * added[r]);
    }
  }
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

// m and l of all rows of a block, one after the other.
struct BlockSums {
  float m[kMostRows], l[kMostRows];
};

static inline void merge_block(const Problem& p, TokenWork* w) {
  if (w->empty) {  // the block's memory becomes that of what is merged
    w->empty = false;
    for (int64_t i = 0, row = 0; i < w->count; ++i) {
      Tile& t = w->tiles[i];
      float* free = w->merged.o[row];
      for (int64_t r = 0; r < t.rows; ++r, ++row) {
        w->merged.m[row] = t.m[r];
        w->merged.l[row] = t.l[r];
        w->merged.o[row] = t.o + r * p.o_row;
      }
      t.o = free;
    }
    return;
  }
  BlockSums block;
  const float* o[kMostRows];
  for (int64_t i = 0, row = 0; i < w->count; ++i)
    for (int64_t r = 0; r < w->tiles[i].rows; ++r, ++row) {
      block.m[row] = w->tiles[i].m[r];
      block.l[row] = w->tiles[i].l[r];
      o[row] = w->tiles[i].o + r * p.o_row;
    }
  merge(w->rows, p.o_row, block.m, block.l, o, &w->merged);
}

static inline void leave_block(const Problem& p, const TokenWork& w, const Workspace& space, int64_t slot,
                               int64_t block) {
  for (int64_t i = 0, row = 0; i < w.count; ++i)
    for (int64_t r = 0; r < w.tiles[i].rows; ++r, ++row) {
      float* to = space.row(slot, block, row);
      for (int64_t d = 0; d < p.o_row; d += kLanes) store(to + d, load(w.tiles[i].o + r * p.o_row + d));
      to[p.o_row] = w.tiles[i].m[r];
      to[p.o_row + 1] = w.tiles[i].l[r];
    }
}

static inline void merge_left(const Problem& p, TokenWork* w, const Workspace& space, int64_t slot, int64_t blocks) {
  for (int64_t b = 0; b < blocks; ++b) {
    BlockSums block;
    const float* o[kMostRows];
    for (int64_t row = 0; row < w->rows; ++row) {
      o[row] = space.row(slot, b, row);
      block.m[row] = o[row][p.o_row];
      block.l[row] = o[row][p.o_row + 1];
    }
    if (!w->empty) {
      merge(w->rows, p.o_row, block.m, block.l, o, &w->merged);
      continue;
    }
    w->empty = false;
    for (int64_t row = 0; row < w->rows; ++row) {
      w->merged.m[row] = block.m[row];
      w->merged.l[row] = block.l[row];
      for (int64_t d = 0; d < p.o_row; d += kLanes) store(w->merged.o[row] + d, load(o[row] + d));
    }
  }
}

// A stretch of units: those whose middle lies in a thread's part of the cost of all.
struct Stretch {
  int64_t total;  // twice the cost
  int thread, threads;
  int64_t border(int t) const { return total * t / threads; }
  bool has(int64_t middle) const { return border(thread) <= middle && middle < border(thread + 1); }
  int owner(int64_t middle) const {
    int t = static_cast<int>(middle * threads / total);
    while (border(t) > middle) --t;
    while (border(t + 1) <= middle) ++t;
    return t;
  }
};

constexpr int64_t kUnitCost = 8;  // what a block costs beside its keys, in keys
static inline int64_t cost_of(const TokenBlocks& b, int64_t tiles) {
  return 2 * tiles * (b.end - b.first + b.count * kUnitCost);
}

// The units of `count` tiles from `first` on, whose cost begins at `begin`.
static inline void run_group(const Problem& p, std::byte* scratch, const TokenTiles& cut, const TokenBlocks& blocks,
                             const Workspace& space, int64_t batch, int64_t first, int64_t count, const Stretch& mine,
                             int64_t begin) {
  int64_t from = blocks.count, to = 0;  // this thread's blocks
  const auto middle_of = [&](int64_t b) {
    const int64_t keys = blocks.begin_of(b) - blocks.first + (blocks.end_of(b) - blocks.begin_of(b)) / 2;
    return begin + 2 * count * (keys + b * kUnitCost + kUnitCost / 2);
  };
  if (space.data == nullptr) {
    if (mine.has(begin + cost_of(blocks, count) / 2)) from = 0, to = blocks.count;
  } else {
    for (int64_t b = 0; b < blocks.count; ++b)
      if (mine.has(middle_of(b))) {
        from = from < b ? from : b;
        to = b + 1;
      }
  }
  if (from >= to) return;
  TokenWork w;
  start_token(p, scratch, cut, batch, first, count, &w);
  const bool all = from == 0 && to == blocks.count;
  const int slot = all ? 0 : mine.owner(middle_of(0));
  for (int64_t b = from; b < to; ++b) {
    sum_block(p, &w, blocks.begin_of(b), blocks.end_of(b), blocks.end_of(to - 1) - blocks.end_of(b));
    all ? merge_block(p, &w) : leave_block(p, w, space, slot, b);
  }
  if (!all) {
    uint32_t* arrived = p.call.arrivals + slot;
    if (__atomic_add_fetch(arrived, static_cast<uint32_t>(to - from), __ATOMIC_ACQ_REL) !=
        static_cast<uint32_t>(blocks.count))
      return;
    __atomic_store_n(arrived, 0, __ATOMIC_RELAXED);
    merge_left(p, &w, space, slot, blocks.count);
  }
  for (int64_t i = 0, row = 0; i < w.count; ++i)
    for (int64_t r = 0; r < w.tiles[i].rows; ++r, ++row)
      write_output(p, w.tiles[i], r, w.merged.l[row], w.merged.o[row]);
}

// All segments that are one token.
static inline void run_tokens(Problem* p, const StepSegment* segments, int count, int thread, int threads) {
  const KernelCall& call = p->call;
  TokenTiles cut(*p);
  Workspace space(call);
  if (threads == 1 || space.slots + 1 < threads || space.rows < cut.together * cut.rows || space.floats < p->o_row + 2)
    space.data = nullptr;
  const int64_t tiles = p->batch * cut.count;
  Stretch mine{0, thread, threads};
  const auto each_token = [&](auto body) __attribute__((always_inline)) {
    for (int s = 0; s < count; ++s)
      if (segments[s].rows == 1 && !segments[s].piece) body(segments[s], TokenBlocks(p->params, segments[s].keys));
  };
  each_token([&](const StepSegment&, const TokenBlocks& blocks) {
    if (space.blocks < blocks.count) space.data = nullptr;
    mine.total += cost_of(blocks, tiles);
  });
  if (space.data == nullptr && threads > 1) cut.together = 1;
  int64_t at = 0;
  each_token([&](const StepSegment& segment, const TokenBlocks& blocks) {
    const int64_t end = at + cost_of(blocks, tiles);
    if (end <= mine.border(thread) || at >= mine.border(thread + 1)) {
      at = end;
      return;
    }
    p->take(segment);
    for (int64_t b = 0; b < p->batch; ++b)
      for (int64_t first = 0; first < cut.count; first += cut.together) {
        const int64_t n = cut.count - first < cut.together ? cut.count - first : cut.together;
        run_group(*p, call.scratch, cut, blocks, space, b, first, n, mine, at);
        at += cost_of(blocks, n);
      }
  });
}

}  // namespace SITU_ISA
}  // namespace situ
