#include "text/decode_stream.h"

#include <gtest/gtest.h>

#include <random>

#include "text/test_models.h"

namespace situ {
namespace {

using nlohmann::json;
using Ids = std::vector<int64_t>;
using Pieces = std::vector<std::string>;

FolderTokenizer load_or_die(const json& tokenizer) {
  testing::TempFolder folder;
  folder.write("tokenizer.json", tokenizer.dump());
  Result<FolderTokenizer> result = FolderTokenizer::load(folder.path());
  if (!result.is_ok()) throw std::runtime_error(result.status().message());
  return std::move(result).value();
}

// One piece per id, then what finish() gives.
Pieces stream(const FolderTokenizer& tokenizer, const Ids& ids, bool skip_special_tokens = true) {
  DecodeStream stream(tokenizer, skip_special_tokens);
  Pieces pieces;
  for (const int64_t id : ids) pieces.push_back(stream.push(id).value());
  pieces.push_back(stream.finish().value());
  return pieces;
}

std::string joined(const Pieces& pieces) {
  std::string text;
  for (const std::string& piece : pieces) text += piece;
  return text;
}

bool is_utf8(const std::string& text) {
  try {
    return !json(text).dump().empty();
  } catch (const json::exception&) {
    return false;
  }
}

TEST(DecodeStream, WaitsForTheLastByteOfACharacter) {
  const FolderTokenizer tokenizer = load_or_die(testing::byte_level_tokenizer());
  const std::string smile = "\xF0\x9F\x98\x80";
  EXPECT_EQ(stream(tokenizer, {256, 0xF0, 0x9F, 0x98, 0x80, 257}), (Pieces{"he", "", "", "", smile, "llo", ""}));
  EXPECT_EQ(stream(tokenizer, {0xF0, 0x9F, 0x98, 0x80, 0xF0, 0x9F}),
            (Pieces{"", "", "", smile, "", "", "\xEF\xBF\xBD"}));
  EXPECT_EQ(stream(tokenizer, {0xF0, 256}), (Pieces{"", "\xEF\xBF\xBDhe", ""}));
}

TEST(DecodeStream, EmitsWhatIsCompleteBeforeAnOpenEnd) {
  // A token that ends one character and starts the next: the first one is not held back.
  json model = testing::byte_level_tokenizer();
  model["model"]["vocab"][testing::byte_symbol(0xA9) + testing::byte_symbol(0xC3)] = 261;
  const FolderTokenizer tokenizer = load_or_die(model);
  EXPECT_EQ(stream(tokenizer, {0xC3, 261, 261, 0xA9}), (Pieces{"", "é", "é", "é", ""}));
}

TEST(DecodeStream, KeepsSentencePieceSpaces) {
  const FolderTokenizer tokenizer = load_or_die(testing::byte_fallback_tokenizer());
  EXPECT_EQ(stream(tokenizer, {261, 259, 260, 258, 256, 256, 257}), (Pieces{"", "a", " b", "b", " ", " ", "a", ""}));
  EXPECT_EQ(stream(tokenizer, {256, 256, 257}), (Pieces{"", " ", "a", ""}));
  EXPECT_EQ(stream(tokenizer, {259, 261, 260}), (Pieces{"a", "", " b", ""}));
  EXPECT_EQ(stream(tokenizer, {259, 0xE4, 0xBD, 0xA0, 0xF0, 0x9F, 0x98, 0x80, 260}),
            (Pieces{"a", "", "", "你", "", "", "", "😀", " b", ""}));
}

TEST(DecodeStream, InvalidBytesDoNotTakeBackWhatWasEmitted) {
  const FolderTokenizer tokenizer = load_or_die(testing::byte_fallback_tokenizer());
  const Pieces pieces = stream(tokenizer, {0xE4, 0xBD, 0xA0, 0xF0, 259});
  EXPECT_EQ(pieces, (Pieces{"", "", "你", "", "\xEF\xBF\xBD a", ""}));
}

TEST(DecodeStream, ShowsSpecialTokensWhenAsked) {
  const FolderTokenizer tokenizer = load_or_die(testing::byte_level_tokenizer());
  EXPECT_EQ(stream(tokenizer, {258, 256, 259}, false), (Pieces{"<s>", "he", "</s>", ""}));
  EXPECT_EQ(stream(tokenizer, {258, 256, 259}, true), (Pieces{"", "he", "", ""}));
}

TEST(DecodeStream, ABadIdChangesNothing) {
  const FolderTokenizer tokenizer = load_or_die(testing::byte_level_tokenizer());
  DecodeStream stream(tokenizer);
  EXPECT_EQ(stream.push(0xC3).value(), "");
  EXPECT_FALSE(stream.push(-1).is_ok());
  EXPECT_EQ(stream.push(0xA9).value(), "é");
}

TEST(DecodeStream, EndlessInvalidBytesComeOutInTheEnd) {
  for (const json& model : {testing::byte_level_tokenizer(), testing::byte_fallback_tokenizer()}) {
    const FolderTokenizer tokenizer = load_or_die(model);
    const Pieces pieces = stream(tokenizer, Ids(1000, 0xFF));
    std::string expected;
    for (int i = 0; i < 1000; ++i) expected += "\xEF\xBF\xBD";
    EXPECT_EQ(joined(pieces), expected);
    EXPECT_FALSE(pieces[100].empty() && joined(Pieces(pieces.begin(), pieces.begin() + 100)).empty());
  }
}

TEST(DecodeStream, EqualsDecodeOnRandomIds) {
  const uint32_t seed = std::random_device()();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  const FolderTokenizer tokenizer = load_or_die(testing::byte_level_tokenizer());
  for (int round = 0; round < 200; ++round) {
    Ids ids;
    for (int i = 0; i < 40; ++i) ids.push_back(static_cast<int64_t>(random() % 263));
    const Pieces pieces = stream(tokenizer, ids);
    EXPECT_EQ(joined(pieces), tokenizer.decode(ids, true).value());
    for (const std::string& piece : pieces) EXPECT_TRUE(is_utf8(piece));
  }
}

TEST(DecodeStream, EqualsDecodeOnRandomTexts) {
  const uint32_t seed = std::random_device()();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  const Pieces parts = {"a", "b", " ", "  ", "é", "你好", "😀", "👩‍👩‍👧", "\n", "ab ba", "<s>"};
  for (const json& model : {testing::byte_level_tokenizer(), testing::byte_fallback_tokenizer()}) {
    const FolderTokenizer tokenizer = load_or_die(model);
    for (int round = 0; round < 100; ++round) {
      std::string text;
      for (int i = 0; i < 20; ++i) text += parts[random() % parts.size()];
      const Ids ids = tokenizer.encode(text, false).value();
      for (const bool skip : {true, false}) {
        EXPECT_EQ(joined(stream(tokenizer, ids, skip)), tokenizer.decode(ids, skip).value()) << text;
      }
    }
  }
}

// A special token that the normalizer changes: decoding shows what it becomes.
TEST(DecodeStream, EqualsDecodeWithNormalizedSpecialTokens) {
  for (const char* text : {"<s>", "< s >", "\xE2\x96\x81<s>"}) {
    json model = testing::byte_fallback_tokenizer();
    model["added_tokens"][0]["normalized"] = true;
    json other = testing::special(262, text);
    other["normalized"] = true;
    model["added_tokens"].push_back(other);
    const FolderTokenizer tokenizer = load_or_die(model);
    std::mt19937 random(7);
    for (int round = 0; round < 100; ++round) {
      Ids ids;
      for (int i = 0; i < 12; ++i) ids.push_back(256 + static_cast<int64_t>(random() % 7));
      for (const bool skip : {true, false})
        EXPECT_EQ(joined(stream(tokenizer, ids, skip)), tokenizer.decode(ids, skip).value()) << json(ids);
    }
  }
}

TEST(SmolLm2, StreamsTheTextOfTheReference) {
  const std::filesystem::path folder = testing::shared_model("smollm2-135m-instruct-int4");
  const json cases = testing::expected_cases(folder);
  if (cases.empty()) GTEST_SKIP() << "no model in " << folder;
  const Result<FolderTokenizer> tokenizer = FolderTokenizer::load(folder);
  ASSERT_TRUE(tokenizer.is_ok()) << tokenizer.status().message();
  for (const json& test : cases) {
    EXPECT_EQ(joined(stream(tokenizer.value(), test["greedy_ids"].get<Ids>(), false)), test["text"].get<std::string>())
        << test["name"];
  }
  const std::string text = "Καλημέρα 你好 👩‍👩‍👧 🇫🇷 naïve";
  const Ids ids = tokenizer->encode(text, false).value();
  EXPECT_EQ(joined(stream(tokenizer.value(), ids)), text);
}

}  // namespace
}  // namespace situ
