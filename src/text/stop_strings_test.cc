#include "text/stop_strings.h"

#include <gtest/gtest.h>

#include <random>

namespace situ {
namespace {

using Strings = std::vector<std::string>;

// What push() gives for each piece, then what finish() gives.
Strings stream(const Strings& stop, const Strings& pieces) {
  StopStrings stops(stop);
  Strings out;
  for (const std::string& piece : pieces) out.push_back(stops.push(piece));
  if (!stops.stopped()) out.push_back(stops.finish());
  return out;
}

TEST(StopStrings, HoldBackWhatCouldBeOne) {
  EXPECT_EQ(stream({"</end>"}, {"a<", "/en", "d", ">b", "c"}), (Strings{"a", "", "", "", ""}));
  EXPECT_EQ(stream({"</end>"}, {"a<", "/en", "x"}), (Strings{"a", "", "</enx", ""}));
  EXPECT_EQ(stream({"</end>"}, {"a<", "<"}), (Strings{"a", "<", "<"}));
  EXPECT_EQ(stream({"aab"}, {"a", "a", "a", "b"}), (Strings{"", "", "a", ""}));
  EXPECT_EQ(stream({"\n\n"}, {"x\n", "y\n\nz"}), (Strings{"x", "\ny"}));
  EXPECT_EQ(stream({}, {"a", "", "b"}), (Strings{"a", "", "b", ""}));
  EXPECT_EQ(stream({"a"}, {"", "a"}), (Strings{"", ""}));
}

TEST(StopStrings, TheFirstToEndWinsThenTheFirstToBegin) {
  EXPECT_EQ(stream({"abcd", "bc"}, {"xabcd"}), (Strings{"xa"}));
  EXPECT_EQ(stream({"bc", "abc"}, {"xabcd"}), (Strings{"x"}));
  EXPECT_EQ(stream({"abcd", "bx"}, {"ab", "cx", "abx"}), (Strings{"", "abcx", "a"}));
}

TEST(StopStrings, TellWhichHasCome) {
  for (const auto& [text, found] : {std::pair{"xabcd", "bc"}, {"xzabc", "zabc"}, {"xab", ""}}) {
    StopStrings stops({"abcd", "bc", "zabc"});
    for (const char* c = text; *c != 0; ++c) stops.push({c, 1});
    EXPECT_EQ(stops.found(), found) << text;
  }
}

TEST(StopStrings, CutBetweenCharacters) {
  const std::string e = "\xC3\xA9", smile = "\xF0\x9F\x98\x80", weary = "\xF0\x9F\x98\xA9";
  EXPECT_EQ(stream({smile}, {e, weary, smile}), (Strings{e, weary, ""}));
  EXPECT_EQ(stream({e + smile}, {"a" + e, weary, e, smile}), (Strings{"a", e + weary, "", ""}));
}

// The text before the match that ends first and, of those that end there, begins first.
std::string naive(const Strings& stop, const std::string& text) {
  for (size_t end = 1; end <= text.size(); ++end) {
    size_t longest = 0;
    for (const std::string& s : stop)
      if (std::string_view(text).substr(0, end).ends_with(s)) longest = std::max(longest, s.size());
    if (longest > 0) return text.substr(0, end - longest);
  }
  return text;
}

TEST(StopStrings, FuzzAgainstANaiveSearch) {
  std::mt19937 random(4);
  const Strings alphabet{"a", "b", "ab", "\xC3\xA9", "\xC3\xA8", "\xE2\x82\xAC"};
  const auto text = [&](size_t most) {
    std::string t;
    for (size_t n = random() % (most + 1); n > 0; --n) t += alphabet[random() % alphabet.size()];
    return t;
  };
  int stopped = 0;
  for (int round = 0; round < 20000; ++round) {
    Strings stop;
    for (size_t n = random() % 4; n > 0; --n) stop.push_back("a" + text(4));
    for (std::string& s : stop)
      if (random() % 2) s = alphabet[random() % alphabet.size()] + s;
    Strings pieces;
    std::string all;
    for (size_t n = random() % 12; n > 0; --n) pieces.push_back(text(4)), all += pieces.back();
    StopStrings stops(stop);
    std::string out;
    const std::string expected = naive(stop, all);
    for (const std::string& piece : pieces) {
      out += stops.push(piece);
      ASSERT_TRUE(expected.starts_with(out)) << all;  // nothing of a stop string is ever out, not even for a while
    }
    stopped += stops.stopped();
    EXPECT_EQ(stops.stopped(), expected != all);
    if (!stops.stopped()) out += stops.finish();
    ASSERT_EQ(out, expected) << all;
  }
  EXPECT_GT(stopped, 2000);
  EXPECT_LT(stopped, 18000);
}

}  // namespace
}  // namespace situ
