// How attention cuts the keys of a single token into blocks, and what threads need to share them: facts that the
// compiler (passes/lower/attention_workspaces.cc) and the kernel (attention_units.h) agree on.
#pragma once

#include <cstdint>

namespace situ {

// Most keys per step of the online softmax.
constexpr int64_t kKeyBlock = 128;

// The keys that one token attends to are cut into blocks by their number alone: as many as two or four threads share
// evenly, of about as many keys, each one step of the softmax. Each block is summed on its own and the sums are merged
// in the order of the keys, so that they depend neither on the number of threads nor on who else is in the step. A
// block costs about as much as 8 keys beside its own: 128 keys of SmolLM2 in four blocks took 20% longer than in two.
// One thread waits a microsecond for what another one left, in which it sums 35 keys.
constexpr int64_t kMostBlocks = 64, kBlockGrain = 16;  // blocks begin at multiples of it
constexpr int64_t attention_blocks(int64_t keys) {
  if (keys < 192) return keys < 96 ? 1 : 2;
  const int64_t blocks = 4 * ((keys + 4 * kKeyBlock - 1) / (4 * kKeyBlock));
  return blocks < kMostBlocks ? blocks : kMostBlocks;
}

// Tiles whose blocks are worked on side by side: of up to 8 KV heads of one token, each of up to 48 query heads; of
// tokens that share keys up to 32 tiles with 64 rows, which stay in the L2 cache.
constexpr int64_t kHeadsTogether = 8, kMostTileRows = 48, kTilesTogether = 32, kSharingRows = 64;
// Rows of them, where a step has up to `tokens` single tokens.
constexpr int64_t attention_rows_together(int64_t heads, int64_t kv_heads, int64_t tokens) {
  const int64_t group = kv_heads > 0 ? heads / kv_heads : heads,
                rows = kHeadsTogether * (group < kMostTileRows ? group : kMostTileRows);
  const int64_t one = rows < heads ? rows : heads, all = heads * tokens < kSharingRows ? heads * tokens : kSharingRows;
  return one > all ? one : all;
}

// What a block gives for one row: the sum of values, then its largest score and the sum of its weights.
constexpr int64_t kPartialColumns = 32;
constexpr int64_t attention_partial_floats(int64_t value_depth) {
  return (value_depth + kPartialColumns - 1) / kPartialColumns * kPartialColumns + kPartialColumns / 2;
}

}  // namespace situ
