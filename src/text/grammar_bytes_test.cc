// The bytes that grammars take a token for are those that decode() makes of it: an expression that matches only the
// text of some tokens allows these tokens, one after the other, and then ends.
#include <algorithm>
#include <numeric>

#include "text/grammar_walk.h"

namespace situ {
namespace {

using nlohmann::json;

std::string escaped(const std::string& text) {
  std::string regex;
  for (const char c : text) {
    if (std::string_view("\\.+*?()|[]{}^$#&-~/").find(c) != std::string_view::npos) regex += '\\';
    regex += c;
  }
  return regex;
}

std::string decoded(const FolderTokenizer& tokenizer, const std::vector<int64_t>& ids) {
  const auto text = tokenizer.decode(ids, false);
  EXPECT_TRUE(text.is_ok()) << text.status().message();
  return text.is_ok() ? *text : "";
}

// A decoder may strip a space at the start of a text.
void expect_exact(const FolderTokenizer& tokenizer, const std::vector<int64_t>& ids) {
  const std::string text = decoded(tokenizer, ids);
  Grammar grammar = testing::compiled(tokenizer, GrammarKind::kRegex, "( )?" + escaped(text));
  for (const int64_t id : ids) {
    const Status status = grammar.append(id);
    ASSERT_TRUE(status.is_ok()) << status.message() << " '" << *tokenizer.id_to_token(id) << "' in '" << text << "'";
  }
  EXPECT_TRUE(grammar.must_end()) << text;
}

bool is_whole(const std::string& text) { return !text.empty() && text.find("\xEF\xBF\xBD") == std::string::npos; }

// Every token that stands for whole characters, in groups of neighbours at random.
void expect_all_exact(const FolderTokenizer& tokenizer, size_t most) {
  std::vector<int64_t> ids(tokenizer.vocab_size());
  std::iota(ids.begin(), ids.end(), 0);
  std::mt19937 random(7);
  std::shuffle(ids.begin(), ids.end(), random);
  std::vector<int64_t> group;
  size_t tested = 0;
  for (const int64_t id : ids) {
    // Alone a space may be stripped.
    if (tokenizer.is_special(id) || !is_whole(decoded(tokenizer, {id, id}))) continue;
    group.push_back(id);
    if (group.size() < 16 && ++tested < most) continue;
    expect_exact(tokenizer, group);
    group.clear();
    if (tested >= most) break;
  }
  if (!group.empty()) expect_exact(tokenizer, group);
}

void expect_text_exact(const FolderTokenizer& tokenizer, const std::string& text) {
  const auto ids = tokenizer.encode(text, false);
  ASSERT_TRUE(ids.is_ok()) << ids.status().message();
  expect_exact(tokenizer, *ids);
}

// Two, three and four bytes, a sequence of emoji, spaces, controls.
const std::string kTexts[] = {"a  b\n\tba", "\xC3\xA9\xE2\x82\xAC", "\xE4\xBD\xA0\xE5\xA5\xBD",
                              "\xF0\x9F\x91\xA9\xE2\x80\x8D\xF0\x9F\x9A\x80", " a <0x41> \"\\ \x01"};

TEST(GrammarBytes, ByteLevel) {
  json model = testing::byte_level_tokenizer();
  json token = testing::special(261, "<tool> \xC3\xA9");
  token["special"] = false;
  model["added_tokens"].push_back(token);
  const FolderTokenizer tokenizer = testing::load_tokenizer(model);
  expect_all_exact(tokenizer, 1000);
  for (const std::string& text : kTexts) expect_text_exact(tokenizer, text);
}

TEST(GrammarBytes, ByteFallback) {
  const FolderTokenizer tokenizer = testing::load_tokenizer(testing::byte_fallback_tokenizer());
  expect_all_exact(tokenizer, 1000);
  for (const std::string& text : kTexts) expect_text_exact(tokenizer, text);
}

TEST(GrammarBytes, Metaspace) {
  json model = testing::byte_fallback_tokenizer();
  model["normalizer"] = nullptr;
  const json space = {{"type", "Metaspace"}, {"replacement", "\xE2\x96\x81"}, {"prepend_scheme", "always"}};
  model["pre_tokenizer"] = space;
  model["decoder"] = {{"type", "Sequence"}, {"decoders", {space, {{"type", "ByteFallback"}}, {{"type", "Fuse"}}}}};
  const FolderTokenizer tokenizer = testing::load_tokenizer(model);
  expect_all_exact(tokenizer, 1000);
  expect_text_exact(tokenizer, "a b ab");
}

TEST(GrammarBytes, SharedModels) {
  const auto folder = testing::shared_model("smollm2-135m-instruct-int4");
  if (!std::filesystem::exists(folder)) GTEST_SKIP() << folder << " is not there";
  const Result<FolderTokenizer> tokenizer = FolderTokenizer::load(folder);
  ASSERT_TRUE(tokenizer.is_ok()) << tokenizer.status().message();
  expect_all_exact(*tokenizer, 1500);
  for (const std::string& text : kTexts) expect_text_exact(*tokenizer, text);
}

std::string decoder_error(const json& decoder) {
  json model = testing::byte_fallback_tokenizer();
  model["decoder"] = decoder;
  const FolderTokenizer tokenizer = testing::load_tokenizer(model);
  const auto grammar = Grammar::compile(tokenizer, GrammarKind::kRegex, "a", tokenizer.vocab_size());
  return grammar.is_ok() ? "none" : grammar.status().message();
}

TEST(GrammarBytes, DecodersThatLookAtNeighbours) {
  const json fuse = {{"type", "Fuse"}};
  const json replace = {{"type", "Replace"}, {"pattern", {{"String", "ab"}}}, {"content", "c"}};
  const auto sequence = [](const json& steps) { return json{{"type", "Sequence"}, {"decoders", steps}}; };
  for (const auto& [decoder, name] : {
           std::pair<json, std::string>{nullptr, "it has no decoder"},
           {{{"type", "WordPiece"}, {"prefix", "##"}, {"cleanup", true}}, "decoder WordPiece"},
           {{{"type", "BPEDecoder"}, {"suffix", "</w>"}}, "decoder BPEDecoder"},
           {{{"type", "CTC"}, {"pad_token", "_"}, {"word_delimiter_token", "|"}, {"cleanup", true}}, "decoder CTC"},
           {sequence({fuse, replace}), "after the tokens were joined"},
           {sequence({{{"type", "ByteFallback"}}, replace}), "after the tokens were joined"},
           {sequence({fuse, {{"type", "Strip"}, {"content", " "}, {"start", 0}, {"stop", 1}}}), "were joined"},
       }) {
    const std::string error = decoder_error(decoder);
    EXPECT_TRUE(error.starts_with("the tokenizer's tokens have no bytes of their own: ")) << error;
    EXPECT_NE(error.find(name), std::string::npos) << error;
  }
  EXPECT_EQ(decoder_error(sequence({replace, fuse})), "none");
}

}  // namespace
}  // namespace situ
