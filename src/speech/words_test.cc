#include "speech/words.h"

#include <gtest/gtest.h>

namespace situ {
namespace {

SpeechWord word(double start, double end, const std::string& text = "x") { return {start, end, text, 1}; }

SpeechSegment segment(double start, double end, std::vector<SpeechWord> words) {
  SpeechSegment s;
  s.start = start;
  s.end = end;
  s.words = std::move(words);
  return s;
}

void expect_times(const SpeechSegment& s, double start, double end) {
  EXPECT_NEAR(s.start, start, 1e-9);
  EXPECT_NEAR(s.end, end, 1e-9);
}

TEST(MiddleLength, IsTheMedianOfWordsThatLast) {
  EXPECT_EQ(middle_length({}), 0);
  EXPECT_EQ(middle_length(std::vector{word(1, 1)}), 0);
  EXPECT_NEAR(middle_length(std::vector{word(0, 0.2), word(1, 1), word(1, 1.6), word(2, 2.4)}), 0.4, 1e-9);
  EXPECT_NEAR(middle_length(std::vector{word(0, 0.2), word(1, 1.4)}), 0.3, 1e-9);
  EXPECT_EQ(middle_length(std::vector{word(0, 3), word(4, 9)}), 0.7);
}

TEST(ShortenAtSentences, WordsBesideTheEndOfASentence) {
  std::vector<SpeechWord> words{word(0, 2), word(2, 5, "."), word(5, 9), word(9, 12), word(12, 12.5, "?")};
  shorten_at_sentences(words, 0.5);
  EXPECT_EQ(words[0].end, 2);    // the first one of all is not beside one
  EXPECT_EQ(words[1].end, 3);    // the mark
  EXPECT_EQ(words[2].start, 8);  // behind it
  EXPECT_EQ(words[3].start, 9);
  EXPECT_EQ(words[4].end, 12.5);
  shorten_at_sentences(words, 0);  // nothing lasts, nothing is known
  EXPECT_EQ(words[1].end, 3);
}

TEST(FitToWords, SegmentsEndWithTheirWords) {
  std::vector<SpeechSegment> s{segment(1, 3, {word(0.8, 1.4), word(1.4, 2.9)}),
                               segment(5, 6, {word(2.9, 5.5), word(5.5, 5.9), word(5.9, 8)}),  // over two pauses
                               segment(9, 10, {})};
  fit_to_words(s, 0.7, 0);
  expect_times(s[0], 0.8, 2.9);
  EXPECT_NEAR(s[1].words[0].start, 4.8, 1e-9);
  EXPECT_NEAR(s[1].words[2].end, 6.6, 1e-9);
  expect_times(s[2], 9, 10);
}

// The model's times and those of the words may be far apart: the words' are taken.
TEST(FitToWords, SegmentsGoWhereTheirWordsAre) {
  std::vector<SpeechSegment> s{segment(1.2, 1.8, {word(0.3, 1.0)}),
                               segment(5.96, 10.96, {word(25.9, 26.6), word(26.6, 27.3), word(27.3, 28.68)}),
                               segment(29, 29.5, {word(28.7, 28.9), word(28.9, 29.0)})};
  fit_to_words(s, 0.4, 0);
  EXPECT_NEAR(put_in_order(s, 0), 29, 1e-9);
  expect_times(s[0], 0.3, 1.0);
  expect_times(s[1], 25.9, 28.68);
  expect_times(s[2], 28.7, 29);
}

TEST(FitToWords, TheFirstWordsBehindAPauseAreShort) {
  // Nothing was said for longer than four words last: the first one lasts two.
  std::vector<SpeechSegment> s{segment(9.8, 11, {word(2, 10), word(10, 10.3), word(10.3, 11)})};
  fit_to_words(s, 0.3, 2);
  EXPECT_NEAR(s[0].words[0].start, 9.4, 1e-9);
  EXPECT_NEAR(s[0].words[0].end, 10, 1e-9);
  // Two of them share what is left.
  s = {segment(9.8, 11, {word(2, 6), word(6, 10), word(10, 11)})};
  fit_to_words(s, 0.3, 2);
  EXPECT_NEAR(s[0].words[0].start, 8.8, 1e-9);
  EXPECT_NEAR(s[0].words[0].end, 9.4, 1e-9);
  EXPECT_NEAR(s[0].words[1].start, 9.4, 1e-9);
  // Words that are as long without a pause before them stay.
  s = {segment(2, 4, {word(2, 3), word(3, 4)})};
  fit_to_words(s, 0.3, 1.9);
  EXPECT_EQ(s[0].words[0].start, 2);
}

TEST(PutInOrder, NothingBeginsBeforeWhatIsInFrontOfItEnds) {
  std::vector<SpeechSegment> s{segment(1, 2, {word(0.5, 1.5), word(1.2, 2.5)}),
                               segment(2, 3, {word(2.2, 2.4), word(2.4, 3.5)}), segment(3, 3.2, {}),
                               segment(3, 9, {word(3.6, 4)})};
  EXPECT_EQ(put_in_order(s, 0.7), 9);
  expect_times(s[0], 0.7, 2.5);
  EXPECT_EQ(s[0].words[1].start, 1.5);
  expect_times(s[1], 2.5, 3.5);
  EXPECT_EQ(s[1].words[0].end, 2.5);
  expect_times(s[2], 3.5, 3.52);  // every segment has a length
  expect_times(s[3], 3.52, 9);
}

}  // namespace
}  // namespace situ
