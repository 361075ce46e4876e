// The work list of attention of single tokens: every key of every token and head once, shared keys read once.
#include "kernels/attention_units.h"

#include <gtest/gtest.h>

#include <map>
#include <tuple>
#include <vector>

namespace situ {
namespace {

using namespace SITU_ISA;

constexpr int64_t kKvHeads = 12, kFit = 300, kPlentyOfBlocks = 64, kPlentyOfRows = 384;

// How often keys are read, and summed for a token.
struct Counts {
  std::map<std::tuple<int, int64_t, int64_t>, int> summed;  // by token, tile, key
  int64_t read = 0;                                         // keys of one tile
  std::map<int, int64_t> left;                              // blocks in each slot of the workspace
  std::vector<int64_t> cost;                                // of each thread
};

Counts count(const std::vector<StepSegment>& segments, int threads, int64_t group = 1, int64_t window = 0) {
  Counts counts;
  const TokenStep step{segments.data(),
                       static_cast<int>(segments.size()),
                       window,
                       0,
                       1,
                       kKvHeads,
                       group,
                       kFit,
                       threads - 1,
                       kPlentyOfBlocks,
                       kPlentyOfRows};
  for (int thread = 0; thread < threads; ++thread) {
    counts.cost.push_back(0);
    each_units(step, thread, threads, [&](const auto& u, const auto& cut, const auto& blocks) {
      EXPECT_LE(u.tokens * u.tiles * cut.rows, kPlentyOfRows);
      if (u.slot >= 0) counts.left[u.slot] += u.to - u.from;
      for (int64_t b = u.from; b < u.to; ++b)
        for (int first = 0, last; first < u.tokens; first = last) {
          const StepSegment* tokens = segments.data() + u.segment;
          last = next_reader(tokens, first, u.tokens, blocks.end_of(b));
          counts.read += u.tiles * (blocks.end_of(b) - blocks.begin_of(b));
          for (int t = first; t < last; ++t)
            for (int64_t tile = u.tile; tile < u.tile + u.tiles; ++tile)
              for (int64_t key = blocks.begin_of(b); key < blocks.end_of(b); ++key) {
                ++counts.summed[{u.segment + t, tile, key}];
                ++counts.cost.back();
              }
        }
    });
  }
  return counts;
}

StepSegment token(int64_t row, int64_t keys, int64_t shared) { return {row, 1, false, nullptr, 0, keys, 0, shared}; }

void expect_all_once(const Counts& counts, size_t keys) {
  EXPECT_EQ(counts.summed.size(), keys * kKvHeads);
  for (const auto& [key, times] : counts.summed) ASSERT_EQ(times, 1);
}

TEST(AttentionUnits, BeamsOfOneSourceReadItsKeysOnce) {
  for (const int beams : {2, 4, 6, 8})
    for (const int threads : {1, 2, 3, 5, 16}) {
      std::vector<StepSegment> segments;
      for (int i = 0; i < beams; ++i) segments.push_back(token(i, 500, i == 0 ? 0 : 500));
      const Counts counts = count(segments, threads);
      expect_all_once(counts, static_cast<size_t>(beams) * 500);
      EXPECT_EQ(counts.read, 500 * kKvHeads) << beams << " beams, " << threads << " threads";
    }
}

TEST(AttentionUnits, BeamsOfOnePromptReadItsBlocksOnce) {
  for (const int threads : {1, 2, 3, 5}) {
    std::vector<StepSegment> segments;
    for (int i = 0; i < 4; ++i) segments.push_back(token(i, 520, i == 0 ? 0 : 400));
    const Counts counts = count(segments, threads);
    expect_all_once(counts, 4 * 520);
    // 8 blocks, of which the first 6, of 400 keys, are shared
    EXPECT_EQ(counts.read, (400 + 4 * 120) * kKvHeads);
  }
}

TEST(AttentionUnits, OtherTokensReadTheirOwn) {
  std::vector<StepSegment> segments{token(0, 700, 0), token(1, 30, 0), token(2, 3, 0), token(3, 700, 0)};
  segments.insert(segments.begin(), {0, 5, true, nullptr, 0, 40, 0, 0});  // a piece of a prompt is none
  for (const int threads : {1, 2, 3, 5, 16}) {
    const Counts counts = count(segments, threads);
    expect_all_once(counts, 700 + 30 + 3 + 700);
    EXPECT_EQ(counts.read, (700 + 30 + 3 + 700) * kKvHeads);
  }
}

TEST(AttentionUnits, WindowsHaveTheKeysInThem) {
  const Counts counts = count({token(0, 700, 0)}, 2, 1, 100);
  expect_all_once(counts, 100);
}

// Whoever leaves blocks of a token, all of them are left in one place, which nothing else uses.
TEST(AttentionUnits, BlocksOfSharedTokensMeetInOneSlot) {
  for (const int threads : {3, 5, 16}) {
    const Counts one = count({token(0, 5000, 0)}, threads);
    for (const auto& [slot, blocks] : one.left) {
      EXPECT_LT(slot, threads - 1);
      EXPECT_EQ(blocks % attention_blocks(5000), 0) << slot;
    }
    EXPECT_FALSE(one.left.empty());
  }
}

TEST(AttentionUnits, ThreadsHaveAboutAsMuch) {
  for (const int threads : {2, 4})
    for (const int64_t keys : {256, 2048, 5000}) {
      const Counts counts = count({token(0, keys, 0)}, threads);
      for (const int64_t cost : counts.cost)
        EXPECT_NEAR(static_cast<double>(cost), static_cast<double>(keys * kKvHeads) / threads,
                    0.1 * static_cast<double>(keys * kKvHeads) / threads);
    }
}

}  // namespace
}  // namespace situ
