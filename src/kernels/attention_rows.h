// Attention of several rows of a sequence: each thread takes whole rows, and what a row sums depends on no other row,
// on no thread and on no cut of a prompt into steps.
#pragma once

#include "kernels/attention_tile.h"

namespace situ {
namespace SITU_ISA {

constexpr int64_t kSharedRows = 48;  // up to here per thread rows are shared out evenly, whatever their heads
constexpr int kMostTiles = 16;       // tiles of one KV head that share its packed keys and values

// One thread's scratch: panels, a row of bias, scores of one tile, then q and o of all tiles.
struct Work {
  Panels panels;
  int64_t tile_rows, tile_count;  // how many tiles there may be, and how tall
  Tile tiles[kMostTiles];
};

static inline void lay_out_scratch(const Problem& p, std::byte* scratch, Work* w) {
  w->panels.keys = reinterpret_cast<float*>(scratch);
  w->panels.values = w->panels.keys + p.depth * p.block;
  float* addend = w->panels.keys + panel_floats(p);
  float* scores = addend + kKeyBlock;
  float* rows = scores + kMaxRows * kKeyBlock;
  const int64_t fit = (kScratchBytes / 4 - (rows - w->panels.keys)) / row_floats(p);
  w->tile_rows = clamp(fit, 1, kMaxRows);
  w->tile_count = clamp(fit / w->tile_rows, 1, kMostTiles);
  for (int64_t i = 0; i < w->tile_count; ++i) {
    Tile& t = w->tiles[i];
    t.addend = addend;
    t.scores = scores;
    t.q = rows + i * w->tile_rows * row_floats(p);
    t.o = t.q + w->tile_rows * p.depth;
  }
}
static_assert(kPanelFloats + kKeyBlock + kMaxRows * kKeyBlock + 2048 <=
              kScratchBytes / 4);  // ops/attention.cc: heads of at most 1024

// The first `count` tiles, whose batch, rows and KV head are set.
static inline void run_tiles(const Problem& p, Work* w, int64_t count) {
  int64_t begin = p.keys, end = 0;  // keys that any of the rows may attend to
  for (int64_t i = 0; i < count; ++i) {
    Tile& t = w->tiles[i];
    start_tile(p, &t);
    begin = t.first_key < begin ? t.first_key : begin;
    end = t.last_key > end ? t.last_key : end;
  }
  // Sums over keys are the same where vectors of them begin at the same tokens.
  if (begin < end) begin = clamp(begin - (begin + p.dropped) % kTileColumns, 0, begin);
  each_block(p, begin, end, [&](const Keys& keys) { attend_block(p, w->tiles, count, keys, w->panels); });
  for (int64_t i = 0; i < count; ++i)
    for (int64_t r = 0; r < w->tiles[i].rows; ++r)
      write_output(p, w->tiles[i], r, w->tiles[i].l[r], w->tiles[i].o + r * p.o_row);
}

// Few rows: every thread takes an equal part of them, also across KV heads, so that two threads share three
// heads evenly. Reading a key head twice costs less than waiting.
static inline void run_few(const Problem& p, Work* w, int thread, int threads) {
  const int64_t per_batch = p.heads * p.queries, per_kv_head = p.group * p.queries;
  int64_t row, last;
  split_range(p.batch * per_batch, thread, threads, &row, &last);
  while (row < last) {
    const int64_t in_batch = row % per_batch;
    int64_t rows = per_kv_head - in_batch % per_kv_head;
    rows = rows < last - row ? rows : last - row;
    rows = rows < w->tile_rows ? rows : w->tile_rows;
    w->tiles[0].batch = row / per_batch;
    w->tiles[0].first = in_batch;
    w->tiles[0].rows = rows;
    run_tiles(p, w, 1);
    row += rows;
  }
}

// The tiles of one KV head: windows of queries, each for all heads of the group in turn, so that neighbours attend to
// nearly the same keys. Where the queries are few, tiles are rows in order instead, across heads.
struct Tiling {
  int64_t rows, count, heads, per_head;

  Tiling(const Problem& p, int64_t tile_rows) {
    const bool windows = p.queries >= tile_rows;
    heads = windows ? p.group : 1;
    per_head = windows ? p.queries : p.group * p.queries;
    const int64_t parts = (per_head + tile_rows - 1) / tile_rows;
    rows = (per_head + parts - 1) / parts;
    rows = clamp((rows + kTileRows - 1) / kTileRows * kTileRows, 1, tile_rows);  // 11 rows over cost as much as 20
    count = (per_head + rows - 1) / rows * heads;
  }
  // Tile i: its first row of the KV head's, and how many.
  int64_t first(int64_t i) const { return i % heads * per_head + i / heads * rows; }
  int64_t height(int64_t i) const { return per_head - i / heads * rows < rows ? per_head - i / heads * rows : rows; }
};

// Many rows: each thread takes tiles in order, as many as are its share of the keys to be read.
static inline void run_many(const Problem& p, Work* w, int thread, int threads) {
  const Tiling tiling(p, w->tile_rows);
  const int64_t kv_heads = p.k.dims[1], tiles = p.batch * kv_heads * tiling.count;
  auto cost = [&](int64_t i) {  // keys of the tile's last row, and what every tile costs
    const int64_t last = (tiling.first(i % tiling.count) + tiling.height(i % tiling.count) - 1) % p.queries;
    const int64_t seen = p.params.causal ? clamp(p.keys - p.queries + last + 1, 0, p.keys) : p.keys;
    return (p.params.window > 0 && seen > p.params.window + tiling.rows ? p.params.window + tiling.rows : seen) +
           kTileColumns;
  };
  int64_t total = 0, before = 0;
  for (int64_t i = 0; i < tiles; ++i) total += cost(i);
  int64_t taken = 0;
  for (int64_t i = 0; i < tiles; ++i) {
    const int64_t middle = before + cost(i) / 2;
    before += cost(i);
    if (middle >= total * thread / threads && middle < total * (thread + 1) / threads) {
      const int64_t head = i / tiling.count, in_head = i % tiling.count;
      Tile& t = w->tiles[taken++];
      t.batch = head / kv_heads;
      t.first = head % kv_heads * p.group * p.queries + tiling.first(in_head);
      t.rows = tiling.height(in_head);
    }
    const bool head_ends = i + 1 == tiles || (i + 1) % tiling.count == 0;
    if (taken == w->tile_count || (taken > 0 && head_ends)) {
      run_tiles(p, w, taken);
      taken = 0;
    }
  }
}

static inline void run_rows(const Problem& p, std::byte* scratch, int thread, int threads) {
  Work w;
  lay_out_scratch(p, scratch, &w);
  if (p.batch * p.heads * p.queries <= threads * kSharedRows)
    run_few(p, &w, thread, threads);
  else
    run_many(p, &w, thread, threads);
}

}  // namespace SITU_ISA
}  // namespace situ
