#include "text/tokenizer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <thread>

#include "text/test_models.h"

namespace situ {
namespace {

using nlohmann::json;
using testing::TempFolder;
using Ids = std::vector<int64_t>;

FolderTokenizer load_or_die(const std::filesystem::path& folder) {
  Result<FolderTokenizer> tokenizer = FolderTokenizer::load(folder);
  if (!tokenizer.is_ok()) throw std::runtime_error(tokenizer.status().message());
  return std::move(tokenizer).value();
}

FolderTokenizer load_or_die(const json& tokenizer, const json& config = json::object()) {
  TempFolder folder;
  folder.write("tokenizer.json", tokenizer.dump());
  folder.write("tokenizer_config.json", config.dump());
  return load_or_die(folder.path());
}

std::string error_of(const std::string& tokenizer_json, const std::string& config = "{}") {
  TempFolder folder;
  folder.write("tokenizer.json", tokenizer_json);
  folder.write("tokenizer_config.json", config);
  return FolderTokenizer::load(folder.path()).status().message();
}

TEST(FolderTokenizer, EncodesAndDecodesBytes) {
  const FolderTokenizer tokenizer = load_or_die(testing::byte_level_tokenizer());
  EXPECT_EQ(tokenizer.encode("hello", false).value(), (Ids{256, 257}));
  EXPECT_EQ(tokenizer.encode("hello", true).value(), (Ids{258, 256, 257}));
  EXPECT_EQ(tokenizer.encode("", false).value(), Ids{});
  EXPECT_EQ(tokenizer.encode("\xF0\x9F\x98\x80", false).value(), (Ids{0xF0, 0x9F, 0x98, 0x80}));
  EXPECT_EQ(tokenizer.encode(std::string_view("a\0b", 3), false).value(), (Ids{'a', 0, 'b'}));
  EXPECT_EQ(tokenizer.decode(Ids{258, 256, 257, 259}, true).value(), "hello");
  EXPECT_EQ(tokenizer.decode(Ids{258, 256, 257, 259}, false).value(), "<s>hello</s>");
  EXPECT_EQ(tokenizer.decode(Ids{256, 9999, 257}, true).value(), "hello") << "ids above the vocabulary have no text";
  EXPECT_EQ(tokenizer.decode(Ids{}, true).value(), "");
}

// Bytes that no token spells are left out, and tell nothing of the number of tokens.
TEST(FolderTokenizer, LeastTokensAreFoundWithoutThem) {
  json some = testing::byte_level_tokenizer(), trimmed = some, normalized = some;
  for (const int byte : {0, 4, 0xC0, 0xF1, 0xFF}) some["model"]["vocab"].erase(byte_symbol(byte));
  for (const json& rules : {testing::byte_level_tokenizer(), some}) {
    const FolderTokenizer tokenizer = load_or_die(rules);
    const int64_t longest = tokenizer.longest_token();
    EXPECT_EQ(longest, 4);  // </s>
    EXPECT_EQ(tokenizer.least_tokens("hello hello"), 3);
    for (const std::string& text :
         {std::string("hello"), std::string(40, 'h'), std::string("a\0\4b\xF1\x80\x80\x80", 8)})
      EXPECT_LE(tokenizer.least_tokens(text), std::ssize(*tokenizer.encode(text, false)));
  }
  EXPECT_EQ(load_or_die(some).spelled_bytes(std::string("a\0\4b\xF1\x80\x80\x80", 8)), 5);
  for (json& token : trimmed["added_tokens"]) token["lstrip"] = true;
  normalized["normalizer"] = {{"type", "NFC"}};
  for (const json& rules : {trimmed, normalized}) EXPECT_EQ(load_or_die(rules).least_tokens("hello"), 0);
}

// A text in which special tokens are no tokens has the ids that a tokenizer gives which has none, whatever its rules.
TEST(FolderTokenizer, EncodesPlainTexts) {
  json normalized = testing::byte_level_tokenizer(), greedy = normalized,
       metaspace = testing::byte_fallback_tokenizer();
  for (json& token : normalized["added_tokens"]) token["normalized"] = true;
  for (json& token : greedy["added_tokens"]) token["lstrip"] = token["rstrip"] = true;
  metaspace["normalizer"] = nullptr;
  metaspace["pre_tokenizer"] = {
      {"type", "Metaspace"}, {"replacement", "\xE2\x96\x81"}, {"prepend_scheme", "first"}, {"split", true}};
  for (const json& rules :
       {testing::byte_level_tokenizer(), normalized, greedy, testing::byte_fallback_tokenizer(), metaspace}) {
    json without = rules;
    without["added_tokens"] = json::array();
    without["post_processor"] = nullptr;
    const FolderTokenizer tokenizer = load_or_die(rules), plain = load_or_die(without);
    for (const std::string text : {"<s>", "a <s> b", "hello</s><s>he", "</s", "<<s>s>", "a b", "", "\xEF\xB7\x90<s>"})
      EXPECT_EQ(tokenizer.encode_plain(text, false).value(), plain.encode(text, false).value()) << text;
    // Beside text that is parsed: the special token is the one that stands in it.
    const char32_t mark = *FolderTokenizer::free_mark("<s>");
    const std::string broken = *tokenizer.break_special("<s>", mark);
    const Ids beside = tokenizer.encode("<s>" + broken + "<s>", false, mark).value();
    EXPECT_EQ(std::count(beside.begin(), beside.end(), *tokenizer.token_to_id("<s>")), 2);
  }
}

// A word of the vocabulary that is a special token, too.
TEST(FolderTokenizer, WordsThatAreSpecialTokensAreSplit) {
  json words = testing::tokenizer_json({{"a", 0}, {"<s>", 1}, {"?", 2}}, json::array());
  words["model"] = {{"type", "WordLevel"}, {"vocab", words["model"]["vocab"]}, {"unk_token", "?"}};
  words["pre_tokenizer"] = {{"type", "WhitespaceSplit"}};
  words["added_tokens"] = json::array({testing::special(1, "<s>")});
  const FolderTokenizer tokenizer = load_or_die(words);
  EXPECT_EQ(tokenizer.encode("a <s>", false).value(), (Ids{0, 1}));
  EXPECT_EQ(tokenizer.encode_plain("a <s>", false).value(), (Ids{0, 2, 2}));
}

TEST(FolderTokenizer, BytesOfATokenMayBeAPartOfACharacter) {
  const FolderTokenizer bytes = load_or_die(testing::byte_level_tokenizer()),
                        fallback = load_or_die(testing::byte_fallback_tokenizer());
  EXPECT_EQ(bytes.bytes_of(0xF0), "\xF0");
  EXPECT_EQ(bytes.bytes_of(256), "he");
  EXPECT_EQ(bytes.bytes_of(258), "<s>");
  EXPECT_EQ(bytes.bytes_of(9999), std::nullopt);
  EXPECT_EQ(fallback.bytes_of(0xC3), "\xC3");
  EXPECT_EQ(fallback.bytes_of(259), " a");
}

TEST(FolderTokenizer, LooksTokensUp) {
  const FolderTokenizer tokenizer = load_or_die(testing::byte_level_tokenizer(), {{"eos_token", "</s>"}});
  EXPECT_EQ(tokenizer.token_to_id("llo"), 257);
  EXPECT_EQ(tokenizer.token_to_id("nothing"), std::nullopt);
  EXPECT_EQ(tokenizer.id_to_token(259), "</s>");
  EXPECT_EQ(tokenizer.id_to_token(-1), std::nullopt);
  EXPECT_EQ(tokenizer.id_to_token(9999), std::nullopt);
  EXPECT_TRUE(tokenizer.is_special(258));
  EXPECT_FALSE(tokenizer.is_special(257));
  EXPECT_EQ(tokenizer.vocab_size(), 261);
  EXPECT_EQ(tokenizer.special_token_id("eos_token"), 259);
  EXPECT_EQ(tokenizer.special_token_id("bos_token"), std::nullopt);
}

TEST(FolderTokenizer, ConfigurationDecidesOnBosAndEos) {
  json config = {{"tokenizer_class", "LlamaTokenizerFast"},
                 {"bos_token", {{"content", "<s>"}, {"lstrip", false}}},
                 {"eos_token", "</s>"},
                 {"add_bos_token", false},
                 {"add_eos_token", true}};
  const json model = testing::byte_level_tokenizer();
  EXPECT_EQ(load_or_die(model, config).encode("he", true).value(), (Ids{256, 259}));
  EXPECT_EQ(load_or_die(model, config).encode("he", false).value(), (Ids{256}));
  config["add_bos_token"] = true;
  EXPECT_EQ(load_or_die(model, config).encode("he", true).value(), (Ids{258, 256, 259}));
  config["tokenizer_class"] = "WhisperTokenizer";
  EXPECT_EQ(load_or_die(model, config).encode("he", true).value(), (Ids{258, 256})) << "as tokenizer.json says";
  config["tokenizer_class"] = "LlamaTokenizer";
  config["bos_token"] = "<none>";
  EXPECT_EQ(error_of(model.dump(), config.dump()), "tokenizer_config.json: bos_token '<none>' has no id");
}

TEST(FolderTokenizer, ConfigurationDecidesOnABertNormalizer) {
  const json model = {{"version", "1.0"},
                      {"added_tokens", json::array()},
                      {"normalizer",
                       {{"type", "BertNormalizer"},
                        {"clean_text", true},
                        {"handle_chinese_chars", true},
                        {"strip_accents", nullptr},
                        {"lowercase", true}}},
                      {"pre_tokenizer", {{"type", "WhitespaceSplit"}}},
                      {"model",
                       {{"type", "WordLevel"},
                        {"vocab", {{"Ä", 0}, {"ä", 1}, {"a", 2}, {"A", 3}, {"中", 4}, {"中中", 5}, {"[UNK]", 6}}},
                        {"unk_token", "[UNK]"}}}};
  const auto ids = [&](const json& config) { return load_or_die(model, config).encode("Ä 中中", false).value(); };
  EXPECT_EQ(ids({{"do_lower_case", false}}), (Ids{2, 4, 4})) << "of no class";
  EXPECT_EQ(ids({{"tokenizer_class", "PreTrainedTokenizerFast"}, {"do_lower_case", false}}), (Ids{2, 4, 4}));
  EXPECT_EQ(ids({{"tokenizer_class", "BertTokenizer"}}), (Ids{2, 4, 4}));
  EXPECT_EQ(ids({{"tokenizer_class", "BertTokenizerFast"}, {"do_lower_case", false}}), (Ids{0, 4, 4}));
  EXPECT_EQ(ids({{"tokenizer_class", "ElectraTokenizer"}, {"strip_accents", false}}), (Ids{1, 4, 4}));
  EXPECT_EQ(ids({{"tokenizer_class", "BertTokenizer"}, {"do_lower_case", false}, {"strip_accents", true}}),
            (Ids{3, 4, 4}));
  EXPECT_EQ(ids({{"tokenizer_class", "BertTokenizer"}, {"tokenize_chinese_chars", false}}), (Ids{2, 5}));
  EXPECT_EQ(ids({{"tokenizer_class", "MPNetTokenizer"}, {"tokenize_chinese_chars", false}}), (Ids{2, 4, 4}));
}

TEST(FolderTokenizer, LeavesStoredPaddingAndTruncationOut) {
  json model = testing::byte_level_tokenizer();
  model["padding"] = {{"strategy", {{"Fixed", 4000000000u}}},
                      {"direction", "Right"},
                      {"pad_to_multiple_of", nullptr},
                      {"pad_id", 0},
                      {"pad_type_id", 0},
                      {"pad_token", "!"}};
  model["truncation"] = {{"direction", "Right"}, {"max_length", 1}, {"strategy", "LongestFirst"}, {"stride", 0}};
  EXPECT_EQ(load_or_die(model).encode("hello", false).value(), (Ids{256, 257}));
}

TEST(FolderTokenizer, CutsTextsToATokenCount) {
  const std::string_view text[] = {"abcdef"};
  const FolderTokenizer right = load_or_die(testing::byte_level_tokenizer()),
                        left = load_or_die(testing::byte_level_tokenizer(), {{"truncation_side", "left"}});
  const EncodedTexts whole = right.encode_texts(text, 7).value();
  EXPECT_EQ(whole.ids, (Ids{258, 'a', 'b', 'c', 'd', 'e', 'f'}));
  EXPECT_EQ(whole.types, Ids(7, 0));
  EXPECT_FALSE(whole.cut);
  EXPECT_TRUE(right.encode_texts(text, 4).value().cut);
  EXPECT_EQ(right.encode_texts(text, 4).value().ids, (Ids{258, 'a', 'b', 'c'}));
  EXPECT_EQ(left.encode_texts(text, 4).value().ids, (Ids{258, 'd', 'e', 'f'}));
  EXPECT_EQ(right.encode_texts(text, 1).value().ids, Ids{258});
  EXPECT_EQ(right.encode_texts(text, 0).value().ids.size(), 7u);
}

TEST(FolderTokenizer, CutsTheLongerTextOfAPairFirst) {
  const TextEnds ends{{1}, {2}};
  const auto joined = [&](size_t a, size_t b, int64_t most, bool left = false) {
    Ids first(a), second(b);
    std::iota(first.begin(), first.end(), 10);
    std::iota(second.begin(), second.end(), 20);
    return join_texts({first, second}, ends, most, left).value();
  };
  EXPECT_EQ(joined(2, 1, 0).ids, (Ids{1, 10, 11, 2, 1, 20, 2}));
  EXPECT_EQ(joined(2, 1, 0).types, (Ids{0, 0, 0, 0, 1, 1, 1}));
  EXPECT_EQ(joined(5, 2, 8).ids, (Ids{1, 10, 11, 2, 1, 20, 21, 2}));
  EXPECT_EQ(joined(1, 5, 8, true).ids, (Ids{1, 10, 2, 1, 22, 23, 24, 2}));
  EXPECT_EQ(joined(5, 5, 9).ids, (Ids{1, 10, 11, 2, 1, 20, 21, 22, 2}));
  EXPECT_EQ(joined(6, 5, 9).ids, (Ids{1, 10, 11, 12, 2, 1, 20, 21, 2}));
  EXPECT_EQ(joined(5, 6, 9).ids, (Ids{1, 10, 11, 2, 1, 20, 21, 22, 2}));
  EXPECT_FALSE(join_texts({{5}}, ends, 1, false).is_ok());
}

TEST(FolderTokenizer, BadFilesAreErrors) {
  TempFolder empty;
  EXPECT_NE(FolderTokenizer::load(empty.path()).status().message().find("tokenizer.json"), std::string::npos);
  const std::string good = testing::byte_level_tokenizer().dump();
  for (size_t size = 0; size < good.size(); size += 1 + good.size() / 50) {
    EXPECT_NE(error_of(good.substr(0, size)), "") << size;
  }
  EXPECT_NE(error_of("null"), "");
  EXPECT_NE(error_of(std::string(1000000, '[')), "");
  std::string nested = "{\"normalizer\":";
  for (int i = 0; i < 100000; ++i) nested += "{\"type\":\"Sequence\",\"normalizers\":[";
  EXPECT_NE(error_of(nested), "");
  EXPECT_NE(error_of(good, "["), "");
  EXPECT_NE(error_of(good, "[]"), "");
  EXPECT_NE(error_of(good, std::string(1000000, '[')), "");
  EXPECT_NE(error_of(good, "{\"x\": \"\xFF\"}"), "");

  json model = testing::byte_level_tokenizer();
  model["normalizer"] = {{"type", "Precompiled"}, {"precompiled_charsmap", "//////////////8AAAA="}};
  EXPECT_NE(error_of(model.dump()).find("shorter than the table"), std::string::npos);
  model["normalizer"] = nullptr;
  for (const char* regex : {"(", "a{100000}{100000}", "(?<n>a\\g<n>)"}) {
    model["pre_tokenizer"] = {
        {"type", "Split"}, {"pattern", {{"Regex", regex}}}, {"behavior", "Isolated"}, {"invert", false}};
    EXPECT_NE(error_of(model.dump()), "") << regex;
  }
}

TEST(FolderTokenizer, BadCallsAreErrors) {
  json model = testing::byte_level_tokenizer();
  const FolderTokenizer tokenizer = load_or_die(model);
  EXPECT_EQ(tokenizer.encode("ab\xC3(", false).status().message(),
            "the text to encode is not valid UTF-8: first bad byte at offset 2");
  EXPECT_FALSE(tokenizer.encode("\xED\xA0\x80", false).is_ok()) << "a surrogate is not UTF-8";
  EXPECT_FALSE(tokenizer.decode(Ids{-1}, true).is_ok());
  EXPECT_FALSE(tokenizer.decode(Ids{int64_t{1} << 32}, true).is_ok());
  EXPECT_FALSE(tokenizer.token_to_id("\xFF").has_value());
  // A regular expression that would try for years gives up, aloud.
  model["pre_tokenizer"] = {
      {"type", "Split"}, {"pattern", {{"Regex", "(a|aa)+$"}}}, {"behavior", "Isolated"}, {"invert", false}};
  EXPECT_FALSE(load_or_die(model).encode(std::string(60, 'a') + "!", false).is_ok());
}

TEST(FolderTokenizer, ServesManyThreads) {
  const FolderTokenizer tokenizer = load_or_die(testing::byte_level_tokenizer());
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&tokenizer] {
      for (int i = 0; i < 200; ++i) {
        const std::string text = "hello hell " + std::to_string(i % 7);
        EXPECT_EQ(tokenizer.decode(tokenizer.encode(text, true).value(), true).value(), text);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(FolderTokenizer, MovesLeaveTheSourceEmpty) {
  FolderTokenizer a = load_or_die(testing::byte_level_tokenizer());
  FolderTokenizer b = std::move(a);
  a = std::move(b);
  EXPECT_EQ(a.encode("he", false).value(), (Ids{256}));
}

TEST(SmolLm2, GivesTheIdsOfTheReference) {
  const std::filesystem::path folder = testing::shared_model("smollm2-135m-instruct-int4");
  const json cases = testing::expected_cases(folder);
  if (cases.empty()) GTEST_SKIP() << "no model in " << folder;
  const FolderTokenizer tokenizer = load_or_die(folder);
  for (const json& test : cases) {
    const std::string prompt = test["prompt"];
    EXPECT_EQ(tokenizer.encode(prompt, false).value(), test["prompt_ids"].get<Ids>()) << test["name"];
    EXPECT_EQ(tokenizer.encode(prompt, true).value(), test["prompt_ids"].get<Ids>()) << test["name"];
    EXPECT_EQ(tokenizer.decode(test["prompt_ids"].get<Ids>(), false).value(), prompt) << test["name"];
    EXPECT_EQ(tokenizer.decode(test["greedy_ids"].get<Ids>(), false).value(), test["text"].get<std::string>())
        << test["name"];
  }
  EXPECT_EQ(tokenizer.special_token_id("eos_token"), 2);
  EXPECT_EQ(tokenizer.vocab_size(), 49152);
}

}  // namespace
}  // namespace situ
