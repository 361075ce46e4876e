// Files that make terabytes of a word, or take years for it, without the bounds in rust/src/bounded.rs and checks.rs.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "base/sweep_for_tests.h"
#include "text/test_models.h"
#include "text/tokenizer.h"

namespace situ {
namespace {

using nlohmann::json;

json sequence(const std::string& list, const json& step, int times) {
  return {{"type", "Sequence"}, {list, json::array_t(times, step)}};
}

json replace(const json& pattern, const std::string& content) {
  return {{"type", "Replace"}, {"pattern", pattern}, {"content", content}};
}

json byte_level() {
  return {{"type", "ByteLevel"}, {"add_prefix_space", true}, {"trim_offsets", true}, {"use_regex", false}};
}

// The file with one part replaced.
Result<FolderTokenizer> load(const std::string& part, const json& value) {
  testing::TempFolder folder;
  json model = testing::byte_level_tokenizer();
  model[json::json_pointer(part)] = value;
  folder.write("tokenizer.json", model.dump());
  return FolderTokenizer::load(folder.path());
}

std::string load_error(const std::string& part, const json& value) {
  const Result<FolderTokenizer> tokenizer = load(part, value);
  return tokenizer.is_ok() ? "none" : tokenizer.status().message();
}

std::string encode_error(const std::string& part, const json& value, const std::string& text = "hello there") {
  const Result<FolderTokenizer> tokenizer = load(part, value);
  if (!tokenizer.is_ok()) return "load: " + tokenizer.status().message();
  const auto ids = tokenizer->encode(text, false);
  return ids.is_ok() ? "none" : ids.status().message();
}

std::string decode_error(const json& decoder) {
  const Result<FolderTokenizer> tokenizer = load("/decoder", decoder);
  if (!tokenizer.is_ok()) return "load: " + tokenizer.status().message();
  const auto text = tokenizer->decode(std::vector<int64_t>{256, 257}, false);
  return text.is_ok() ? "none" : text.status().message();
}

#define EXPECT_REFUSED(error, start, name)            \
  EXPECT_TRUE((error).starts_with(start)) << (error); \
  EXPECT_NE((error).find(name), std::string::npos) << (error)

TEST(HostileTokenizer, NormalizersThatLengthen) {
  const std::string many(1000, 'l');
  for (const json& step : {
           replace({{"String", "l"}}, many),
           replace({{"String", ""}}, "x"),
           replace({{"Regex", "."}}, many),
           replace({{"Regex", ""}}, "x"),
           replace({{"Regex", "q*"}}, "x"),
           replace({{"Regex", "(?=l)"}}, "ll"),
           replace({{"Regex", "l\\K"}}, "l"),
           replace({{"Regex", "\\b"}}, "l-l"),
           json{{"type", "Prepend"}, {"prepend", std::string(100000, 'x')}},
       }) {
    const std::string error = encode_error("/normalizer", sequence("normalizers", step, 30));
    // Which of the two limits is met first, hangs on the machine and on what else it does.
    EXPECT_REFUSED(error,
                   "encode: ", error.find(" could make ") != std::string::npos ? " could make " : "takes more than");
  }
  const json step = {{"type", "ByteLevel"}};
  EXPECT_REFUSED(encode_error("/normalizer", sequence("normalizers", step, 64), "\xC3\xA9"), "encode: ", "ByteLevel");
  const json nested = sequence("normalizers", sequence("normalizers", replace({{"String", "l"}}, many), 4), 4);
  EXPECT_REFUSED(encode_error("/normalizer", nested), "encode: ", "Replace");
  EXPECT_EQ(encode_error("/normalizer", replace({{"String", "l"}}, many)), "none");
}

// Every piece between two special tokens is normalized alone.
TEST(HostileTokenizer, PiecesCountTogether) {
  std::string text;
  for (int i = 0; i < 1000; ++i) text += "l<s>";
  const json once = replace({{"String", "l"}}, std::string(100000, 'l'));
  EXPECT_EQ(encode_error("/normalizer", once, "l"), "none");
  EXPECT_REFUSED(encode_error("/normalizer", once, text), "encode: ", "Replace");
}

TEST(HostileTokenizer, AddedTokensAreNormalizedAtLoad) {
  testing::TempFolder folder;
  json model = testing::byte_level_tokenizer();
  model["normalizer"] = sequence("normalizers", replace({{"String", "l"}}, std::string(1000, 'l')), 4);
  json token = testing::special(261, "<l>");
  token["normalized"] = true;
  model["added_tokens"].push_back(token);
  folder.write("tokenizer.json", model.dump());
  const Result<FolderTokenizer> tokenizer = FolderTokenizer::load(folder.path());
  ASSERT_FALSE(tokenizer.is_ok());
  EXPECT_REFUSED(tokenizer.status().message(), folder.path().string(), "Replace could make");
}

TEST(HostileTokenizer, PreTokenizersThatLengthen) {
  EXPECT_REFUSED(encode_error("/pre_tokenizer", sequence("pretokenizers", byte_level(), 64)), "encode: ", "ByteLevel");
}

TEST(HostileTokenizer, DecodersThatLengthen) {
  for (const json& step : {
           replace({{"Regex", "."}}, "xxxxxxxxxx"),
           replace({{"String", ""}}, "xxx"),
           json{{"type", "BPEDecoder"}, {"suffix", ""}},
       }) {
    EXPECT_REFUSED(decode_error(sequence("decoders", step, 30)), "decode: ", " could make ");
  }
  const Result<FolderTokenizer> long_token = load("/model/vocab/" + std::string(3 << 20, 'x'), 261);
  ASSERT_TRUE(long_token.is_ok());
  const auto text = long_token->decode(std::vector<int64_t>(1000, 261), false);
  ASSERT_FALSE(text.is_ok());
  EXPECT_REFUSED(text.status().message(), "decode: ", "vocabulary could make");
}

TEST(HostileTokenizer, PostProcessorsThatRepeat) {
  const json special = {{"SpecialToken", {{"id", "<s>"}, {"type_id", 0}}}};
  const json text = {{"Sequence", {{"id", "A"}, {"type_id", 0}}}};
  const auto processor = [](const json& single, int ids, const std::string& token) {
    const json tokens = {{"id", "<s>"}, {"ids", json::array_t(ids, 258)}, {"tokens", json::array_t(ids, token)}};
    return json{
        {"type", "TemplateProcessing"},
        {"single", single},
        {"pair", {{{"Sequence", {{"id", "A"}, {"type_id", 0}}}}, {{"Sequence", {{"id", "B"}, {"type_id", 1}}}}}},
        {"special_tokens", {{"<s>", tokens}}}};
  };
  const auto error = [](const json& value) { return load_error("/post_processor", value); };
  EXPECT_NE(error(processor(json::array_t(1000, special), 1000, "x")).find("adds 1000000 tokens"), std::string::npos);
  EXPECT_NE(error(processor(json::array_t(70000, special), 0, "x")).find("the limit is 65536"), std::string::npos);
  EXPECT_NE(error(processor(json::array_t(100, special), 100, std::string(1000, 'x'))).find("bytes of text"),
            std::string::npos);
  EXPECT_NE(error(processor(json::array_t(17, text), 1, "x")).find("repeats the text 17 times"), std::string::npos);
  EXPECT_NE(error(sequence("processors", processor(json::array_t(2, text), 1, "x"), 5)).find("32 times"),
            std::string::npos);
  EXPECT_NE(error(sequence("processors", processor(json::array_t(100, special), 100, "x"), 7)).find("tokens or more"),
            std::string::npos);
  EXPECT_EQ(error(sequence("processors", processor({special, text, special}, 1, "<s>"), 1)), "none");
}

TEST(HostileTokenizer, ModelsWithLongParts) {
  EXPECT_NE(load_error("/model/unk_token", std::string(257, 'u')).find("unk_token"), std::string::npos);
  EXPECT_NE(load_error("/model/end_of_word_suffix", std::string(17, 'u')).find("end_of_word_suffix"),
            std::string::npos);
  const json words = {{"type", "WordPiece"},
                      {"unk_token", "[UNK]"},
                      {"continuing_subword_prefix", "##"},
                      {"max_input_chars_per_word", 1000000},
                      {"vocab", {{"[UNK]", 0}}}};
  EXPECT_NE(load_error("/model", words).find("max_input_chars_per_word"), std::string::npos);
  const json vocab = json::array({json::array({"<unk>", 0.0}), json::array({std::string(513, 'a'), -1.0})});
  const json pieces = {{"type", "Unigram"}, {"unk_id", 0}, {"vocab", vocab}};
  EXPECT_NE(load_error("/model", pieces).find("513 bytes"), std::string::npos);
}

// What tokenizers in use have: far below the bounds, for a long text too.
TEST(HostileTokenizer, UsualOnesPass) {
  std::string text;
  for (int i = 0; i < 20000; ++i) text += i % 100 ? "a b  " : "\xEF\xB7\xBA ";  // U+FDFA: 33 bytes in NFKC
  const json steps = {{{"type", "NFKC"}},
                      {{"type", "Lowercase"}},
                      replace({{"String", "``"}}, "\""),
                      replace({{"Regex", " {2,}"}}, "\xE2\x96\x81"),
                      replace({{"String", " "}}, "\xE2\x96\x81"),
                      {{"type", "Prepend"}, {"prepend", "\xE2\x96\x81"}}};
  const json normalizer = {{"type", "Sequence"}, {"normalizers", steps}};
  EXPECT_EQ(encode_error("/normalizer", normalizer, text), "none");
  EXPECT_EQ(encode_error("/normalizer", normalizer, ""), "none");
  const json spaces = {{"type", "Metaspace"}, {"replacement", "\xE2\x96\x81"}, {"prepend_scheme", "always"}};
  const json pre_tokenizer = {{"type", "Sequence"}, {"pretokenizers", {spaces, byte_level()}}};
  EXPECT_EQ(encode_error("/pre_tokenizer", pre_tokenizer, text), "none");
}

// Runs for minutes in one search, and never reaches the engine's limit for one attempt.
constexpr const char* kSlow = "(a|aa){1,20}$";
std::string slow_text() { return std::string(4000, 'a') + "!"; }

json split(const std::string& regex) {
  return {{"type", "Split"}, {"pattern", {{"Regex", regex}}}, {"behavior", "Isolated"}, {"invert", false}};
}

// Which limit is reached first, that of the CPU time or that of the search, is the machine's.
bool too_long(const std::string& error) {
  return error.find("the tokenizer takes more than 3 seconds") != std::string::npos ||
         error.find("a regular expression of the tokenizer gives up: retry-limit-in-search") != std::string::npos;
}

TEST(HostileTokenizer, SearchesThatTakeTooLong) {
  EXPECT_PRED1(too_long, encode_error("/pre_tokenizer", split(kSlow), slow_text()));
}

TEST(HostileTokenizer, SearchesElsewhereThatTakeTooLong) {
  if (!sweeping()) return;  // five seconds each
  EXPECT_PRED1(too_long, encode_error("/normalizer", replace({{"Regex", kSlow}}, "x"), slow_text()));
  // Where the regular expression is a decoder's, and the text a token.
  testing::TempFolder folder;
  json model = testing::byte_level_tokenizer();
  model["decoder"] = replace({{"Regex", kSlow}}, "x");
  model["model"]["vocab"][slow_text()] = 261;
  folder.write("tokenizer.json", model.dump());
  const FolderTokenizer tokenizer = std::move(FolderTokenizer::load(folder.path())).value();
  EXPECT_EQ(tokenizer.decode(std::vector<int64_t>{256}, false).value(), "he");
  const auto text = tokenizer.decode(std::vector<int64_t>{261}, false);
  ASSERT_FALSE(text.is_ok());
  EXPECT_PRED1(too_long, text.status().message());
}

TEST(HostileTokenizer, AFlagEndsASearch) {
  FolderTokenizer tokenizer = std::move(load("/pre_tokenizer", split(kSlow))).value();
  std::atomic<bool> flag{false};
  tokenizer.interrupt_when(&flag);
  std::thread other([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    flag = true;
  });
  const Status ended = tokenizer.encode(slow_text(), false).status();
  EXPECT_EQ(ended.message(), "encode: interrupted");
  EXPECT_EQ(ended.code(), Code::kInterrupted);
  other.join();
  EXPECT_EQ(tokenizer.encode("he", false).status().message(), "encode: interrupted");
  flag = false;
  EXPECT_EQ(tokenizer.encode("he", false).value(), (std::vector<int64_t>{256}));
  tokenizer.interrupt_when(nullptr);
}

TEST(HostileTokenizer, CountsOfTheFile) {
  EXPECT_REFUSED(load_error("/normalizer", json::array_t(70000, json::array())), "", "normalizer has more than");
  EXPECT_REFUSED(load_error("/pre_tokenizer", split(std::string(70000, 'a'))), "", "the limit is 65536");
  EXPECT_REFUSED(load_error("/normalizer", sequence("normalizers", {{"type", "NFC"}}, 257)), "", "257 steps");
}

}  // namespace
}  // namespace situ
