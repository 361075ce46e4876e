// situ.AttentionPartial and situ.AttentionMerge: one token's attention, split over the keys (flash decoding).
#include "kernels/attention_tile.h"

namespace situ {
namespace SITU_ISA {
namespace {

constexpr int kSplitHeads = 8;  // KV heads whose rows are worked on side by side, so that slots are read front to back

// Tiles for the rows of up to `most` KV heads, in this thread's scratch; how many of them fit. At least one does: the
// pass that splits attention (passes/split_attention.cc) leaves larger groups and heads alone.
int64_t lay_out_tiles(const Problem& p, std::byte* scratch, int64_t most, Tile* tiles, Panels* panels) {
  panels->keys = reinterpret_cast<float*>(scratch);
  panels->values = panels->keys + p.depth * p.block;
  float* addend = panels->keys + panel_floats(p);
  float* at = addend + kKeyBlock;
  const int64_t per_tile = p.group * (row_floats(p) + kKeyBlock);
  const int64_t fit = clamp((kScratchBytes / 4 - (at - panels->keys)) / per_tile, 1, most);
  for (int64_t i = 0; i < fit; ++i, at += per_tile) {
    Tile& t = tiles[i];
    t.addend = addend;
    t.o = at;
    t.scores = t.o + p.group * p.o_row;
    t.q = t.scores + p.group * kKeyBlock;
  }
  return fit;
}
static_assert(kPanelFloats + kKeyBlock + 48 * (256 + 256 + kKeyBlock) <= kScratchBytes / 4);

// Slots that all heads read before the next ones: whole groups of keys whose scores fill a vector
// (kernels/attention_tile.h) and pairs of values, up to about as many bytes as are fetched while the ones before them
// are worked on. Strides do not count: sums are the same wherever slots lie. Sixteen slots of three heads of 64 halves
// (Zen 4, two threads, 2,048 keys of 30 layers, medians of five in turn): 4.9 ms, ten of them 2.9.
constexpr int64_t kSlotBytes = 4096;
int64_t slots_at_once(const Problem& p) {
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
void attend_slots(const Problem& p, Tile* tiles, int64_t tile_count, const Keys& keys, int64_t follow) {
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

// Keys [begin, end) of all tiles, block by block: a block of slots is read once, for all its heads.
void attend_tiles(const Problem& p, Tile* tiles, int64_t count, int64_t begin, int64_t end, const Panels& panels) {
  const bool few = few_rows(p, p.group);
  each_block(p, begin, end, [&](const Keys& keys) {
    for (int64_t h = 0; h < count; ++h) tiles[h].done = 0;
    if (few)
      attend_slots(p, tiles, count, keys, end - keys.first - keys.count);
    else
      for (int64_t h = 0; h < count; ++h) attend_block(p, &tiles[h], 1, keys, panels);
  });
}

// Rows of one tile as the merge reads them: m, l, o (not divided by l).
void write_partial(const Problem& p, const Tile& t, int64_t split) {
  for (int64_t r = 0; r < t.rows; ++r) {
    float* row = p.y.as<float>() + split * p.y.strides[0] + (t.first + r) * p.y.strides[1];
    row[0] = t.m[r];
    row[1] = t.l[r];
    for (int64_t d = 0; d < p.value_depth; ++d) row[2 + d] = t.o[r * p.o_row + d];
  }
}

void run_split(const Problem& p, std::byte* scratch, int64_t split, int64_t splits) {
  const int64_t kv_heads = p.k.dims[1], first = p.params.window > 0 && p.params.first <= 0 && p.keys > p.params.window
                                                    ? p.keys - p.params.window
                                                    : 0;
  const int64_t begin = first + (p.keys - first) * split / splits,
                end = first + (p.keys - first) * (split + 1) / splits;
  Tile tiles[kSplitHeads];
  Panels panels;
  for (int64_t head = 0; head < kv_heads;) {
    const int64_t count =
        lay_out_tiles(p, scratch, kv_heads - head < kSplitHeads ? kv_heads - head : kSplitHeads, tiles, &panels);
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
    attend_tiles(p, tiles, count, begin, end, panels);
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

}  // namespace SITU_ISA
}  // namespace situ
