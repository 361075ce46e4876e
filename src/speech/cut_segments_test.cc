#include "speech/cut_segments.h"

#include <gtest/gtest.h>

namespace situ {
namespace {

SpeechTokens tokens() {
  SpeechTokens t;
  t.end = 100;
  t.no_timestamps = 199;
  t.first_timestamp = 200;
  return t;
}

TEST(CutSegments, WithoutTimesTheWindowIsOneSegment) {
  const std::vector<int64_t> ids{1, 2, 3};
  const CutWindow w = cut_segments(ids, 12.5, tokens());
  ASSERT_EQ(w.segments.size(), 1u);
  EXPECT_EQ(w.segments[0].start, 0);
  EXPECT_EQ(w.segments[0].end, 12.5);
  EXPECT_EQ(w.segments[0].tokens, ids);
  EXPECT_EQ(w.next, 12.5);
}

TEST(CutSegments, OneTimeAtTheEndEndsTheOnlySegment) {
  const CutWindow w = cut_segments(std::vector<int64_t>{200, 1, 2, 750}, 30, tokens());
  ASSERT_EQ(w.segments.size(), 1u);
  EXPECT_DOUBLE_EQ(w.segments[0].end, 11);
  EXPECT_EQ(w.next, 30);  // nothing is said behind it
}

TEST(CutSegments, TheNextWindowBeginsAtTheSegmentThatWasNotFinished) {
  const CutWindow w = cut_segments(std::vector<int64_t>{200, 1, 300, 300, 2, 500, 550, 3}, 30, tokens());
  ASSERT_EQ(w.segments.size(), 2u);
  EXPECT_DOUBLE_EQ(w.segments[0].end, 2);
  EXPECT_DOUBLE_EQ(w.segments[1].start, 2);
  EXPECT_DOUBLE_EQ(w.segments[1].end, 6);
  EXPECT_DOUBLE_EQ(w.next, 6);
}

TEST(CutSegments, AnEndThatStandsAloneIsTheLastCut) {
  const CutWindow w = cut_segments(std::vector<int64_t>{200, 1, 300, 310, 2, 500}, 30, tokens());
  ASSERT_EQ(w.segments.size(), 2u);
  EXPECT_DOUBLE_EQ(w.segments[1].start, 2.2);
  EXPECT_DOUBLE_EQ(w.segments[1].end, 6);
  EXPECT_EQ(w.next, 30);
}

TEST(CutSegments, AWindowAloneKeepsTheTextThatWasNotFinished) {
  const std::vector<int64_t> ids{200, 1, 300, 300, 2, 500, 500, 3};
  const CutWindow w = cut_segments(ids, 30, tokens(), true);
  ASSERT_EQ(w.segments.size(), 3u);
  EXPECT_DOUBLE_EQ(w.segments[2].start, 6);
  EXPECT_DOUBLE_EQ(w.segments[2].end, 30);
  EXPECT_EQ(w.segments[2].tokens, (std::vector<int64_t>{500, 3}));
  EXPECT_EQ(w.next, 30);
  const std::vector<int64_t> no_text{200, 1, 300, 300};
  EXPECT_EQ(cut_segments(no_text, 30, tokens(), true).segments.size(), 1u);
}

TEST(CutSegments, TimesAreWithinTheWindowAndItMovesOn) {
  EXPECT_DOUBLE_EQ(cut_segments(std::vector<int64_t>{200, 1, 1700}, 5, tokens()).segments[0].end, 5);
  EXPECT_GT(cut_segments(std::vector<int64_t>{200, 200, 1}, 5, tokens()).next, 0);
  EXPECT_EQ(cut_segments(std::vector<int64_t>{}, 5, tokens()).next, 5);
}

}  // namespace
}  // namespace situ
