#include "speech/speech_tokens.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "text/test_models.h"

namespace situ {
namespace {

using nlohmann::json;
using Ids = std::vector<int64_t>;

// Text 0..3, then the special tokens from 4 on, then three timestamps: 18 ids.
const std::vector<std::string> kSpecial = {"<|endoftext|>", "<|startoftranscript|>",
                                           "<|en|>",        "<|de|>",
                                           "<|translate|>", "<|transcribe|>",
                                           "<|startoflm|>", "<|startofprev|>",
                                           "<|nospeech|>",  "<|notimestamps|>",
                                           "<|0.00|>",      "<|0.02|>",
                                           "<|0.04|>",      "<|yue|>"};

json tokenizer(const std::vector<std::string>& special = kSpecial) {
  json added = json::array();
  for (size_t i = 0; i < special.size(); ++i)
    added.push_back({{"id", 4 + i},
                     {"content", special[i]},
                     {"single_word", false},
                     {"lstrip", false},
                     {"rstrip", false},
                     {"normalized", false},
                     {"special", true}});
  return {{"version", "1.0"},
          {"truncation", nullptr},
          {"padding", nullptr},
          {"added_tokens", added},
          {"normalizer", nullptr},
          {"pre_tokenizer", nullptr},
          {"post_processor", nullptr},
          {"decoder", {{"type", "Fuse"}}},
          {"model", {{"type", "BPE"}, {"vocab", {{" ", 0}, {"a", 1}, {"(", 2}, {"-", 3}}}, {"merges", json::array()}}}};
}

// What is read of generation_config.json; null: there is none.
Result<SpeechTokens> read(const json& config, int64_t vocabulary = 18, const json& of = tokenizer()) {
  testing::TempFolder folder;
  folder.write("tokenizer.json", of.dump());
  if (!config.is_null()) folder.write("generation_config.json", config.dump());
  Result<FolderTokenizer> t = FolderTokenizer::load(folder.path());
  if (!t.is_ok()) throw std::runtime_error(t.status().message());
  ModelFolder model;
  model.folder = folder.path();
  return read_speech_tokens(model, *t, vocabulary);
}

std::string error_of(const Result<SpeechTokens>& read) { return read.is_ok() ? "" : read.status().message(); }

TEST(SpeechTokens, ComeFromTheTokenizerWhereNoFileSaysThem) {
  const Result<SpeechTokens> read_tokens = read({{"is_multilingual", true}});
  ASSERT_TRUE(read_tokens.is_ok()) << read_tokens.status().message();
  const SpeechTokens& t = *read_tokens;
  EXPECT_EQ(t.end, 4);
  EXPECT_EQ(t.start, 5);
  EXPECT_EQ(t.translate, 8);
  EXPECT_EQ(t.transcribe, 9);
  EXPECT_EQ(t.previous, 11);
  EXPECT_EQ(t.no_speech, 12);
  EXPECT_EQ(t.no_timestamps, 13);
  EXPECT_EQ(t.first_timestamp, 14);
  EXPECT_EQ(t.max_initial_timestamp, 50);
  EXPECT_EQ(t.languages, (std::map<std::string, int64_t>{{"en", 6}, {"de", 7}}));  // <|yue|> is no language there
  // Signs that are one token ("-(" without what the vocabulary lacks), the first token of " -", what only a prompt has.
  EXPECT_EQ(t.suppressed, (Ids{0, 2, 3, 5, 8, 9, 10, 11, 12}));
  EXPECT_EQ(t.suppressed_first, (Ids{0, 4}));
  EXPECT_TRUE(t.alignment_heads.empty());
}

TEST(SpeechTokens, TheFileComesFirst) {
  const Result<SpeechTokens> read_tokens =
      read({{"decoder_start_token_id", 6},
            {"eos_token_id", {4}},
            {"no_timestamps_token_id", 12},
            {"prev_sot_token_id", 10},
            {"lang_to_id", {{"<|fr|>", 7}, {"<|yue|>", 17}, {"<|xx|>", 18}, {"de", 6}}},
            {"task_to_id", {{"transcribe", 8}, {"translate", 9}}},
            {"max_initial_timestamp_index", 1},
            {"suppress_tokens", {1, 99, -1}},
            {"begin_suppress_tokens", json::array()},
            {"alignment_heads", {{0, 1}, {1, 0}}}});
  ASSERT_TRUE(read_tokens.is_ok()) << read_tokens.status().message();
  const SpeechTokens& t = *read_tokens;
  EXPECT_EQ(t.start, 6);
  EXPECT_EQ(t.first_timestamp, 13);
  EXPECT_EQ(t.previous, 10);
  EXPECT_EQ(t.languages, (std::map<std::string, int64_t>{{"fr", 7}, {"yue", 17}}));
  EXPECT_EQ(t.transcribe, 8);
  EXPECT_EQ(t.max_initial_timestamp, 1);
  EXPECT_EQ(t.suppressed, (Ids{1, 6, 8, 9, 10, 12}));
  EXPECT_TRUE(t.suppressed_first.empty());
  EXPECT_EQ(t.alignment_heads, (std::vector<std::pair<int64_t, int64_t>>{{0, 1}, {1, 0}}));
}

TEST(SpeechTokens, EnglishAloneWhereTheFileSaysSoOrTheVocabularyIsThatSmall) {
  EXPECT_FALSE(read({{"is_multilingual", false}})->multilingual());
  EXPECT_FALSE(read(json())->multilingual());
  EXPECT_TRUE(read({{"is_multilingual", true}})->multilingual());
}

TEST(SpeechTokens, NoSpeechHasTwoNamesAndItsPlace) {
  std::vector<std::string> special = kSpecial;
  special[8] = "<|nocaptions|>";
  EXPECT_EQ(read(json(), 18, tokenizer(special))->no_speech, 12);
  special[8] = "<|unnamed|>";
  EXPECT_EQ(read(json(), 18, tokenizer(special))->no_speech, 12);
}

TEST(SpeechTokens, RefusesWhatIsMissingOrOutside) {
  std::vector<std::string> special = kSpecial;
  special[1] = "<|begin|>";
  EXPECT_NE(
      error_of(read(json(), 18, tokenizer(special))).find("no decoder_start_token_id and no <|startoftranscript|>"),
      std::string::npos);
  special = kSpecial;
  special[9] = "<|times|>";
  EXPECT_NE(error_of(read(json(), 18, tokenizer(special))).find("<|notimestamps|>"), std::string::npos);
  EXPECT_NE(error_of(read({{"eos_token_id", 18}})).find("<|endoftext|> is token 18, outside the vocabulary of 18"),
            std::string::npos);
  EXPECT_NE(error_of(read({{"eos_token_id", -1}})).find("token -1"), std::string::npos);
  EXPECT_NE(error_of(read(json(), 14)).find("<|0.00|> would be token 14"), std::string::npos);
  EXPECT_NE(error_of(read(json::array())).find("generation_config.json"), std::string::npos);
}

// What is read of these files of a folder; null: the file is not there.
Result<SpeechTokens> read_both(const json& generation, const json& config) {
  testing::TempFolder folder;
  folder.write("tokenizer.json", tokenizer().dump());
  if (!generation.is_null()) folder.write("generation_config.json", generation.dump());
  if (!config.is_null()) folder.write("config.json", config.dump());
  Result<FolderTokenizer> t = FolderTokenizer::load(folder.path());
  if (!t.is_ok()) throw std::runtime_error(t.status().message());
  ModelFolder model;
  model.folder = folder.path();
  return read_speech_tokens(model, *t, 18);
}

TEST(SpeechTokens, LanguageAndTaskThatFilesAskFor) {
  const auto expect = [](const json& generation, const json& config, const std::string& language,
                         const std::string& task) {
    const Result<SpeechTokens> t = read_both(generation, config);
    ASSERT_TRUE(t.is_ok()) << t.status().message();
    EXPECT_EQ(t->asked_language, language) << generation << config;
    EXPECT_EQ(t->asked_task, task) << generation << config;
  };
  const json ids = {{1, 7}, {2, 8}, {3, 13}}, open = {{1, nullptr}, {2, 9}}, known = {{"is_multilingual", true}};
  const auto with = [&](json more) {
    more.update(known);
    return more;
  };
  expect(known, nullptr, "", "");
  expect(with({{"language", "<|de|>"}, {"task", "translate"}}), nullptr, "<|de|>", "translate");
  expect(with({{"language", nullptr}, {"task", nullptr}}), nullptr, "", "");
  expect(with({{"forced_decoder_ids", ids}}), nullptr, "de", "translate");
  expect(with({{"forced_decoder_ids", open}}), nullptr, "", "transcribe");
  expect(with({{"forced_decoder_ids", nullptr}}), nullptr, "", "");
  expect(with({{"forced_decoder_ids", ids}, {"language", "English"}}), nullptr, "English", "translate");
  expect(with({{"language", 3}}), nullptr, "3", "");
  expect(with({{"forced_decoder_ids", json::array()}}), nullptr, "", "");
  for (const json& wrong :
       {json("x"), json{{"1", 7}}, json{1, 7}, json{{1, 7, 2}}, json{{1, "<|de|>"}}, json{{1, 7.5}}}) {
    const std::string refused = read_both(with({{"forced_decoder_ids", wrong}}), nullptr).status().message();
    EXPECT_NE(refused.find("generation_config.json: forced_decoder_ids is not a list of pairs"), std::string::npos)
        << wrong << refused;
  }
  // config.json's count where there is no other file.
  expect(known, {{"forced_decoder_ids", ids}}, "", "");
  const json languages = {{"forced_decoder_ids", ids}, {"suppress_tokens", nullptr}};
  const Result<SpeechTokens> t = read_both(nullptr, languages);
  ASSERT_TRUE(t.is_ok());
  EXPECT_EQ(t->asked_task, "translate");
  EXPECT_TRUE(t->settings.ends_with("config.json"));
  EXPECT_FALSE(t->suppressed.empty());
}

}  // namespace
}  // namespace situ
