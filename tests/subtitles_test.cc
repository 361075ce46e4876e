// Times of subtitles: what binary fractions make of hundredths of a second is rounded, not cut off.
#include "cli/subtitles.h"

#include <gtest/gtest.h>

#include <vector>

namespace situ::cli {
namespace {

TEST(Subtitles, TimesAreRoundedToMilliseconds) {
  EXPECT_EQ(time_text(2.01, ',', true), "00:00:02,010");  // 2.01 * 1000 is 2009.9999999999998
  EXPECT_EQ(time_text(0.9996, '.', false), "00:01.000");
  EXPECT_EQ(time_text(59.9994, '.', false), "00:59.999");
  EXPECT_EQ(time_text(3599.9999, '.', false), "01:00:00.000");
  EXPECT_EQ(time_text(7261.5, ',', true), "02:01:01,500");
  EXPECT_EQ(time_text(-0.01, ',', true), "00:00:00,000");
}

TEST(Subtitles, EveryFormatHasTheSameTimes) {
  SpeechSegment segment;
  segment.start = 2.01;
  segment.end = 4.1 - 0.08;
  segment.text = " one --> two\n";
  const std::vector<SpeechSegment> segments{segment};
  EXPECT_EQ(srt(segments), "1\n00:00:02,010 --> 00:00:04,020\none -> two\n\n");
  EXPECT_EQ(vtt(segments), "WEBVTT\n\n00:02.010 --> 00:04.020\none -> two\n\n");
  EXPECT_EQ(tsv(segments), "start\tend\ttext\n2010\t4020\tone -> two\n");
}

}  // namespace
}  // namespace situ::cli
