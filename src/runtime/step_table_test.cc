#include "runtime/step_table.h"

#include <gtest/gtest.h>

#include "runtime/program.h"

namespace situ {
namespace {

Segment token_of(const std::vector<Run>& runs, int64_t keys, int64_t source_slot = 0) {
  Segment s;
  s.count = 1;
  s.past = keys - 1;
  s.keys = keys;
  s.runs = runs.data();
  s.run_count = static_cast<int>(runs.size());
  s.source_slot = source_slot;
  s.source_rows = 20;
  return s;
}

TEST(StepTable, KnowsWhichKeysAreShared) {
  const std::vector<situ::Run> a{{0, 10}, {30, 5}}, b{{0, 4}, {4, 6}, {30, 2}, {50, 3}}, c{{60, 15}};
  EXPECT_EQ(shared_keys(a.data(), a.data(), 15), 15);
  EXPECT_EQ(shared_keys(a.data(), b.data(), 15), 12);
  EXPECT_EQ(shared_keys(b.data(), a.data(), 11), 11);
  EXPECT_EQ(shared_keys(a.data(), c.data(), 15), 0);
}

TEST(StepTable, BeamsOfAPromptAndASourceShareThem) {
  const std::vector<situ::Run> first{{0, 10}, {20, 2}}, second{{0, 10}, {22, 2}}, longer{{0, 10}, {24, 3}};
  const std::vector<Segment> segments{token_of(first, 12), token_of(second, 12), token_of(longer, 13),
                                      token_of(first, 12, 40)};
  StepTable table;
  table.build(segments);
  ASSERT_EQ(table.tokens().size(), 4u);
  EXPECT_EQ(table.tokens()[1].shared, 10);
  EXPECT_EQ(table.tokens()[2].shared, 0);  // its blocks are others
  EXPECT_EQ(table.tokens()[3].shared, 0);
  EXPECT_EQ(table.tokens()[3].first_row, 3);
  EXPECT_EQ(table.sources()[0].shared, 0);
  EXPECT_EQ(table.sources()[1].shared, 20);
  EXPECT_EQ(table.sources()[2].shared, 20);
  EXPECT_EQ(table.sources()[3].shared, 0);
  EXPECT_EQ(table.sources()[3].runs->first_slot, 40);
  EXPECT_EQ(table.sources()[3].keys, 20);
}

// Pieces of prompts have other sums, and other windows dropped other tokens.
TEST(StepTable, PiecesAndOtherWindowsShareNothing) {
  const std::vector<situ::Run> runs{{0, 12}};
  std::vector<Segment> segments(4, token_of(runs, 12));
  segments[1].prompt = true;
  segments[3].past += 5;
  StepTable table;
  table.build(segments);
  for (const StepSegment& s : table.tokens()) EXPECT_EQ(s.shared, 0);
}

}  // namespace
}  // namespace situ
