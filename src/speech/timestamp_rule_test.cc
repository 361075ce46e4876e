#include "speech/timestamp_rule.h"

#include <gtest/gtest.h>

#include <cmath>

#include "generate/bans.h"

namespace situ {
namespace {

// Text 0..9, end 10, start 11, no speech 12, no timestamps 13, timestamps 14..33: 0.00 to 0.38.
SpeechTokens small_tokens() {
  SpeechTokens t;
  t.end = 10;
  t.start = 11;
  t.no_speech = 12;
  t.no_timestamps = 13;
  t.first_timestamp = 14;
  t.max_initial_timestamp = 5;
  return t;
}

// Which of 34 tokens are left where text is as probable as said and timestamps are improbable.
std::vector<int64_t> left(std::vector<int64_t> generated, float text = 1, float time = -9) {
  std::vector<float> scores(34, text);
  for (size_t i = 14; i < 34; ++i) scores[i] = time;
  TimestampRule(small_tokens()).apply(generated, scores);
  std::vector<int64_t> ids;
  for (size_t i = 0; i < scores.size(); ++i)
    if (scores[i] > kBanned) ids.push_back(static_cast<int64_t>(i));
  return ids;
}

std::vector<int64_t> range(int64_t from, int64_t to) {
  std::vector<int64_t> ids;
  for (int64_t i = from; i < to; ++i)
    if (i != 13) ids.push_back(i);
  return ids;
}

TEST(TimestampRule, TheFirstTokenIsATimeAndNotTooLate) { EXPECT_EQ(left({}), range(14, 20)); }
TEST(TimestampRule, AfterTheFirstTimeComesText) { EXPECT_EQ(left({14}), range(0, 14)); }
TEST(TimestampRule, TextGoesOnOrEndsLaterThanItBegan) {
  std::vector<int64_t> want = range(0, 14), times = range(17, 34);
  want.insert(want.end(), times.begin(), times.end());
  EXPECT_EQ(left({16, 3}), want);
}
TEST(TimestampRule, AnEndIsFollowedByABeginningThatIsNoEarlierOrByTheEnd) {
  std::vector<int64_t> want = range(10, 13), times = range(20, 34);
  want.insert(want.end(), times.begin(), times.end());
  EXPECT_EQ(left({16, 3, 20}), want);
}
TEST(TimestampRule, APairIsFollowedByText) { EXPECT_EQ(left({16, 3, 20, 20}), range(0, 14)); }
TEST(TimestampRule, ManyImprobableTimesTogetherAreATime) {
  // 17 times at -2 are as probable as one at log(17) - 2 = 0.83.
  EXPECT_EQ(left({16, 3}, 0.8f, -2), range(17, 34));
  EXPECT_EQ(left({16, 3}, 0.9f, -2).front(), 0);
}

}  // namespace
}  // namespace situ
