// The work of attention of single tokens, as data: which thread sums which blocks of keys, for which tokens and heads.
//
// The keys that a token attends to are cut into blocks by their number alone (attention_blocks). Tokens side by side
// that share keys (StepSegment::shared) are a group: its rows are worked on together, so that shared keys are read
// once. The list of units, (group, tiles of some KV heads, block of keys), is cut into a stretch for each thread.
#pragma once

#include "kernels/attention_blocks.h"
#include "kernels/isa.h"
#include "kernels/kernel.h"

namespace situ {
namespace SITU_ISA {

static inline bool is_token(const StepSegment& s) { return s.rows == 1 && !s.piece; }

struct TokenStep {
  const StepSegment* segments;
  int count;
  int64_t window, first;              // AttentionParams
  int64_t batch, kv_heads, group;     // `group` query heads of each KV head
  int64_t fit;                        // rows that a thread's scratch holds
  int64_t slots, blocks, space_rows;  // of the workspace; 0: none, threads share tokens and heads, but no keys
};

constexpr int64_t kBlockParts = 4;

// The keys of a token, in blocks.
struct TokenBlocks {
  int64_t first, end, count;

  TokenBlocks(const TokenStep& step, int64_t keys) {
    first = step.window > 0 && step.first <= 0 && keys > step.window ? keys - step.window : 0;
    end = keys;
    count = attention_blocks(end - first);
  }
  // The sums of blocks are merged in order within each of up to four parts, then those of the parts: a thread that has
  // all blocks of a part leaves the others one sum of it.
  int64_t parts() const { return count < kBlockParts ? count : kBlockParts; }
  int64_t part_begin(int64_t part) const { return part * count / parts(); }
  // Scores of whole vectors need no mask.
  int64_t begin_of(int64_t block) const {
    return first + (block * (end - first) / count + kBlockGrain - 1) / kBlockGrain * kBlockGrain;
  }
  int64_t end_of(int64_t block) const { return block + 1 < count ? begin_of(block + 1) : end; }
};

// How the rows of `tokens` tokens are cut into tiles, and how many are worked on side by side.
struct TokenTiles {
  int64_t per_head, rows;  // tiles of a KV head; rows of a tile, the last one of a head may have fewer
  int64_t count;           // tiles of a token
  int64_t heads, tokens;   // side by side: tiles of a token, and tokens

  TokenTiles(const TokenStep& step, int64_t group_tokens) {
    const auto at_most = [](int64_t x, int64_t most) { return x < most ? x : most; };
    const auto at_least_1 = [](int64_t x) { return x < 1 ? 1 : x; };
    const int64_t most = at_least_1(at_most(step.fit, kMostTileRows));
    per_head = (step.group + most - 1) / most;
    rows = at_least_1((step.group + per_head - 1) / at_least_1(per_head));
    count = step.kv_heads * per_head;
    const int64_t together = at_least_1(at_most(kTilesTogether, at_most(kSharingRows, step.fit) / rows));
    const int64_t parts = (group_tokens + together - 1) / together;
    tokens = (group_tokens + parts - 1) / parts;
    heads = at_least_1(at_most(tokens > 1 ? together / tokens : step.fit / rows, at_most(count, kHeadsTogether)));
    const int64_t turns = (count + heads - 1) / heads;  // as many in each, for the threads' sake
    heads = (count + turns - 1) / at_least_1(turns);
  }
};

// Blocks [from, to) of the keys of tokens [segment, segment + tokens) of the table, for tiles [tile, tile + tiles) of
// each.
struct TokenUnits {
  int segment, tokens;
  int64_t batch, tile, tiles;
  int64_t from, to;
  int slot;        // of the workspace, where sums are left; -1: these are all blocks
  uint32_t whole;  // bit p: part p of the blocks is one thread's, whichever
};

// Tokens [a, next_reader) of those from `segment` on read the keys up to `end` together.
static inline int next_reader(const StepSegment* segment, int a, int tokens, int64_t end) {
  int next = a + 1;
  while (next < tokens && segment[next].shared >= end) ++next;
  return next;
}

// Calls body(first, count) for the groups of a table.
template <typename Body>
static inline void each_group(const TokenStep& step, Body body) {
  for (int i = 0, next; i < step.count; i = next) {
    next = i + 1;
    if (!is_token(step.segments[i])) continue;
    const TokenBlocks blocks(step, step.segments[i].keys);
    while (next < step.count && is_token(step.segments[next]) && step.segments[next].shared >= blocks.end_of(0) &&
           blocks.end > 0)
      ++next;
    body(i, next - i, blocks);
  }
}

constexpr int64_t kUnitCost = 8;  // what a block costs beside its keys, in keys
static inline int64_t cost_of(const TokenBlocks& b, int64_t tiles) {
  return 2 * tiles * (b.end - b.first + b.count * kUnitCost);
}

// Parts of the cost of all units: those whose middle lies in a thread's part are its units.
struct Stretch {
  int64_t total;
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

// This thread's blocks of one group's tiles, whose cost begins at `begin`.
static inline void find_blocks(const Stretch& mine, const TokenBlocks& blocks, int64_t tiles, int64_t begin,
                               bool share_keys, TokenUnits* u) {
  const auto middle_of = [&](int64_t b) {
    const int64_t keys = blocks.begin_of(b) - blocks.first + (blocks.end_of(b) - blocks.begin_of(b)) / 2;
    return begin + 2 * tiles * (keys + b * kUnitCost + kUnitCost / 2);
  };
  u->from = u->to = 0;
  u->slot = -1;
  u->whole = ~0u;
  if (!share_keys) {
    if (mine.has(begin + cost_of(blocks, tiles) / 2)) u->to = blocks.count;
    return;
  }
  while (u->from < blocks.count && !mine.has(middle_of(u->from))) ++u->from;
  u->to = u->from;
  while (u->to < blocks.count && mine.has(middle_of(u->to))) ++u->to;
  if (u->from == u->to || (u->from == 0 && u->to == blocks.count)) return;
  u->slot = mine.owner(middle_of(0));
  u->whole = 0;
  for (int64_t p = 0; p < blocks.parts(); ++p)
    if (mine.owner(middle_of(blocks.part_begin(p))) == mine.owner(middle_of(blocks.part_begin(p + 1) - 1)))
      u->whole |= 1u << p;
}

// Calls body(units, blocks) for the units of one thread.
template <typename Body>
static inline void each_units(const TokenStep& step, int thread, int threads, Body body) {
  Stretch mine{0, thread, threads};
  int groups = 0;
  bool share_keys = threads > 1 && step.slots + 1 >= threads;
  each_group(step, [&](int, int tokens, const TokenBlocks& blocks) {
    const TokenTiles cut(step, tokens);
    share_keys = share_keys && step.blocks >= blocks.count && step.space_rows >= cut.tokens * cut.heads * cut.rows;
    mine.total += cost_of(blocks, step.batch * cut.count * tokens);
    ++groups;
  });
  int64_t at = 0;
  each_group(step, [&](int first, int count, const TokenBlocks& blocks) {
    const TokenTiles cut(step, count);
    const int64_t end = at + cost_of(blocks, step.batch * cut.count * count);
    if (end <= mine.border(thread) || at >= mine.border(thread + 1)) {
      at = end;
      return;
    }
    // Where threads share no keys, they share heads.
    const bool by_heads = threads > 1 && (!share_keys || (blocks.count == 1 && groups < threads));
    const int64_t part = (cut.count + threads - 1) / threads, heads = by_heads && part < cut.heads ? part : cut.heads;
    for (int64_t token = 0; token < count; token += cut.tokens)
      for (int64_t batch = 0; batch < step.batch; ++batch)
        for (int64_t tile = 0; tile < cut.count; tile += heads) {
          const int64_t tokens = count - token < cut.tokens ? count - token : cut.tokens,
                        tiles = cut.count - tile < heads ? cut.count - tile : heads;
          TokenUnits units{first + static_cast<int>(token), static_cast<int>(tokens), batch, tile, tiles, 0, 0, -1, 0};
          find_blocks(mine, blocks, tokens * tiles, at, share_keys, &units);
          at += cost_of(blocks, tokens * tiles);
          if (units.from < units.to) body(units, cut, blocks);
        }
  });
}

}  // namespace SITU_ISA
}  // namespace situ
