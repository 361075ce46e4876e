// Folders without tokenizer.json, and the tokens of languages.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

#include "text/decode_stream.h"
#include "text/language_tokens.h"
#include "text/piece_model.h"
#include "text/test_models.h"
#include "text/test_pieces.h"
#include "text/tokenizer.h"

namespace situ {
namespace {

using nlohmann::json;
using testing::chars_map;
using testing::kPieces;
using testing::Piece;
using testing::piece_model;
using testing::TempFolder;
using Ids = std::vector<int64_t>;

// {"piece": id} of the pieces after the first three, from `first` on.
json vocabulary(int64_t first, json others) {
  for (size_t i = 3; i < kPieces.size(); ++i) others[kPieces[i].text] = first++;
  return others;
}

void write_folder(const TempFolder& folder, const std::string& kind) {
  const auto languages = [](std::vector<std::string> tokens) {
    return json{{"additional_special_tokens", tokens}}.dump();
  };
  if (kind == "marian") {
    folder.write("source.spm", piece_model());
    folder.write("target.spm", piece_model());
    json ids = vocabulary(2, {{"</s>", 0}, {"<unk>", 1}, {"<pad>", 40}, {">>fra<<", 30}, {">>deu<<", 31}});
    folder.write("vocab.json", ids.dump());
    return;
  }
  folder.write("sentencepiece.bpe.model", piece_model());
  if (kind == "m2m") {
    folder.write("vocab.json", vocabulary(4, {{"<s>", 0}, {"<pad>", 1}, {"</s>", 2}, {"<unk>", 3}}).dump());
    folder.write("tokenizer_config.json", R"({"tokenizer_class": "M2M100Tokenizer", "src_lang": "af"})");
    folder.write("special_tokens_map.json", languages({"__af__", "__am__", "__ar__", "__ast__"}));
  } else if (kind == "nllb") {
    folder.write("tokenizer_config.json", R"({"tokenizer_class": "NllbTokenizer", "src_lang": "ace_Latn",
        "added_tokens_decoder": {"17": {"content": "<mask>", "special": true, "lstrip": true},
        "18": {"content": "ace_Arab", "special": true}, "19": {"content": "ace_Latn", "special": true}}})");
  } else {
    if (kind == "mbart50") folder.write("tokenizer_config.json", R"({"tokenizer_class": "MBart50Tokenizer"})");
    if (kind == "mbart") folder.write("config.json", R"({"model_type": "mbart"})");
    folder.write("special_tokens_map.json", languages({"ar_AR", "cs_CZ", "de_DE", "en_XX"}));
  }
}

Result<FolderTokenizer> load(const std::string& kind) {
  TempFolder folder;
  write_folder(folder, kind);
  return FolderTokenizer::load(folder.path());
}

// Recorded from the slow tokenizers of transformers 4.57.6 on the same files.
struct Recorded {
  const char *kind, *text;
  Ids ids;
  const char* decoded;  // without special tokens
};
const Recorded kRecorded[] = {
    {"marian", "the cat sat, the cats", {3, 4, 11, 12, 13, 3, 4, 5, 0}, "the cat sat, the cats"},
    {"marian", " the  cat </s> at", {3, 4, 0, 2, 12, 0}, "the cat at"},
    {"marian", "x cat", {2, 1, 4, 0}, "cat"},
    {"marian", "", {0}, ""},
    {"marian", ">>fra<< the cat", {30, 3, 4, 0}, ">>fra<< the cat"},
    {"marian", "the __am__ cat", {3, 2, 1, 6, 1, 4, 0}, "the a cat"},
    {"marian", "en_XX the cat ", {2, 10, 14, 1, 3, 4, 0}, "en the cat"},
    {"m2m", "the cat sat, the cats", {17, 5, 6, 13, 14, 15, 5, 6, 7, 2}, "the cat sat, the cats"},
    {"m2m", " the  cat </s> at", {17, 5, 6, 2, 4, 14, 2}, "the cat at"},
    {"m2m", "x cat", {17, 4, 3, 6, 2}, "cat"},
    {"m2m", "", {17, 2}, ""},
    {"m2m", ">>fra<< the cat", {17, 4, 3, 8, 3, 5, 6, 2}, "a the cat"},
    {"m2m", "the __am__ cat", {17, 5, 18, 6, 2}, "the cat"},
    {"m2m", "en_XX the cat ", {17, 4, 12, 16, 3, 5, 6, 2}, "en the cat"},
    {"mbart", "the cat sat, the cats", {5, 6, 13, 14, 15, 5, 6, 7, 2, 20}, "the cat sat, the cats"},
    {"mbart", " the  cat </s> at", {5, 6, 2, 4, 14, 2, 20}, "the cat at"},
    {"mbart", "x cat", {4, 3, 6, 2, 20}, "cat"},
    {"mbart", "", {2, 20}, ""},
    {"mbart", ">>fra<< the cat", {4, 3, 8, 3, 5, 6, 2, 20}, "a the cat"},
    {"mbart", "the __am__ cat", {5, 4, 3, 8, 3, 6, 2, 20}, "the a cat"},
    {"mbart", "en_XX the cat ", {20, 5, 6, 2, 20}, "the cat"},
    {"mbart50", "the cat sat, the cats", {20, 5, 6, 13, 14, 15, 5, 6, 7, 2}, "the cat sat, the cats"},
    {"mbart50", " the  cat </s> at", {20, 5, 6, 2, 4, 14, 2}, "the cat at"},
    {"mbart50", "x cat", {20, 4, 3, 6, 2}, "cat"},
    {"mbart50", "", {20, 2}, ""},
    {"mbart50", ">>fra<< the cat", {20, 4, 3, 8, 3, 5, 6, 2}, "a the cat"},
    {"mbart50", "the __am__ cat", {20, 5, 4, 3, 8, 3, 6, 2}, "the a cat"},
    {"mbart50", "en_XX the cat ", {20, 20, 5, 6, 2}, "the cat"},
    {"nllb", "the cat sat, the cats", {19, 5, 6, 13, 14, 15, 5, 6, 7, 2}, "the cat sat, the cats"},
    {"nllb", " the  cat </s> at", {19, 5, 6, 2, 4, 14, 2}, "the cat at"},
    {"nllb", "x cat", {19, 4, 3, 6, 2}, "cat"},
    {"nllb", "", {19, 2}, ""},
    {"nllb", ">>fra<< the cat", {19, 4, 3, 8, 3, 5, 6, 2}, "a the cat"},
    {"nllb", "the __am__ cat", {19, 5, 4, 3, 8, 3, 6, 2}, "the a cat"},
    {"nllb", "en_XX the cat ", {19, 4, 12, 16, 3, 5, 6, 2}, "en the cat"},
};

TEST(PieceTokenizer, GivesTheIdsOfTransformers) {
  for (const char* kind : {"marian", "m2m", "mbart", "mbart50", "nllb"}) {
    const FolderTokenizer tokenizer = load(kind).value();
    for (const Recorded& want : kRecorded) {
      if (want.kind != std::string(kind)) continue;
      SCOPED_TRACE(std::string(kind) + ": " + want.text);
      EXPECT_EQ(tokenizer.encode(want.text, true).value(), want.ids);
      EXPECT_EQ(tokenizer.decode(want.ids, true).value(), want.decoded);
      DecodeStream stream(tokenizer);
      std::string streamed;
      for (const int64_t id : want.ids) streamed += stream.push(id).value();
      EXPECT_EQ(streamed + stream.finish().value(), want.decoded);
    }
    EXPECT_FALSE(tokenizer.encode("\xFF", true).is_ok());
    EXPECT_FALSE(tokenizer.decode(Ids{-1}, true).is_ok());
    EXPECT_EQ(tokenizer.decode(Ids{1000000}, true).value(), "");
  }
}

TEST(PieceTokenizer, TranslationsNameTheirLanguages) {
  const std::tuple<const char*, std::optional<std::string>, const char*, Ids, Ids, std::optional<int64_t>> says[] = {
      {"m2m", "ar", "am", {19}, {2}, 18},
      {"m2m", std::nullopt, "__am__", {17}, {2}, 18},
      {"mbart", "cs_CZ", "de_DE", {}, {2, 18}, 19},
      {"mbart50", "cs_CZ", "de_DE", {18}, {2}, 19},
      {"nllb", "ace_Arab", "ace_Latn", {18}, {2}, 19},
      {"marian", std::nullopt, "fra", {30}, {0}, std::nullopt}};
  for (const auto& [kind, source, target, prefix, suffix, forced] : says) {
    SCOPED_TRACE(kind);
    const TranslationTokens tokens = translation_tokens(load(kind).value(), source, target).value();
    EXPECT_EQ(tokens.prefix, prefix);
    EXPECT_EQ(tokens.suffix, suffix);
    EXPECT_EQ(tokens.forced_bos, forced);
  }
  const std::tuple<const char*, std::optional<std::string>, std::optional<std::string>, const char*> wrong[] = {
      {"m2m", std::nullopt, "xx", "target language 'xx' is not known; known are af, am, ar, ast"},
      {"mbart", "en", std::nullopt, "source language 'en' is not known; known are ar_AR, cs_CZ, de_DE, en_XX"},
      {"marian", "fra", std::nullopt, "say their target's language only"},
      {"marian", std::nullopt, "eng", "known are deu, fra"}};
  for (const auto& [kind, source, target, words] : wrong) {
    const Status refused = translation_tokens(load(kind).value(), source, target).status();
    EXPECT_NE(refused.message().find(words), std::string::npos) << refused.message();
  }
}

// By tokenizer.json alone: its template shows where the language stands.
TEST(PieceTokenizer, LanguagesOfATokenizerJson) {
  for (const bool before : {true, false}) {
    json model = testing::byte_level_tokenizer();
    model["added_tokens"].push_back({{"id", 261},
                                     {"content", "en_XX"},
                                     {"special", true},
                                     {"single_word", false},
                                     {"lstrip", false},
                                     {"rstrip", false},
                                     {"normalized", false}});
    model["added_tokens"].push_back({{"id", 262},
                                     {"content", "ro_RO"},
                                     {"special", true},
                                     {"single_word", false},
                                     {"lstrip", false},
                                     {"rstrip", false},
                                     {"normalized", false}});
    const json language = {{"SpecialToken", {{"id", "en_XX"}, {"type_id", 0}}}},
               text = {{"Sequence", {{"id", "A"}, {"type_id", 0}}}},
               end = {{"SpecialToken", {{"id", "</s>"}, {"type_id", 0}}}};
    model["post_processor"] = {
        {"type", "TemplateProcessing"},
        {"single", before ? json::array({language, text, end}) : json::array({text, end, language})},
        {"pair", json::array()},
        {"special_tokens",
         {{"en_XX", {{"id", "en_XX"}, {"ids", {261}}, {"tokens", {"en_XX"}}}},
          {"</s>", {{"id", "</s>"}, {"ids", {259}}, {"tokens", {"</s>"}}}}}}};
    TempFolder folder;
    folder.write("tokenizer.json", model.dump());
    const FolderTokenizer tokenizer = FolderTokenizer::load(folder.path()).value();
    const int64_t english = *tokenizer.token_to_id("en_XX"), romanian = *tokenizer.token_to_id("ro_RO");
    const TranslationTokens tokens = translation_tokens(tokenizer, "ro_RO", "en_XX").value();
    EXPECT_EQ(tokens.prefix, before ? Ids{romanian} : Ids{});
    EXPECT_EQ(tokens.suffix, before ? Ids{259} : (Ids{259, romanian}));
    EXPECT_EQ(tokens.forced_bos, english);
  }
  TempFolder plain;
  plain.write("tokenizer.json", testing::byte_level_tokenizer().dump());
  EXPECT_NE(translation_tokens(FolderTokenizer::load(plain.path()).value(), "en", "ro")
                .status()
                .message()
                .find("has no tokens of languages"),
            std::string::npos);
}

TEST(PieceTokenizer, NamesTheFileThatIsMissing) {
  TempFolder folder;
  EXPECT_EQ(FolderTokenizer::missing_file(folder.path()), "tokenizer.json");
  folder.write("vocab.json", "{}");
  EXPECT_EQ(FolderTokenizer::missing_file(folder.path()), "tokenizer.json");
  folder.write("source.spm", piece_model());
  EXPECT_EQ(FolderTokenizer::missing_file(folder.path()), "target.spm");
  folder.write("target.spm", piece_model());
  EXPECT_EQ(FolderTokenizer::missing_file(folder.path()), "");
  // vocab.json without an unknown token, or no vocabulary at all.
  EXPECT_NE(FolderTokenizer::load(folder.path()).status().message().find("has no token '<unk>'"), std::string::npos);
  for (const char* bad : {"[]", "{", "{\"a\": -1}", "{\"a\": \"b\"}", "{\"a\": 99999999999}", ""}) {
    folder.write("vocab.json", bad);
    const Status refused = FolderTokenizer::load(folder.path()).status();
    EXPECT_NE(refused.message().find("vocab.json: "), std::string::npos) << bad << refused.message();
  }
}

TEST(PieceModel, ReplacesCharacters) {
  const std::string replacements("t\0", 2);
  const std::string good = piece_model(kPieces, chars_map(0, 1 << 10 | 1 << 8 | 'a', 0, replacements));
  ASSERT_TRUE(check_piece_model(good).is_ok()) << check_piece_model(good).message();
  TempFolder folder;
  folder.write("x.model", good);
  EXPECT_EQ(PieceModel::load(folder.path() / "x.model")->encode("a").value(),
            (std::vector<std::string>{SITU_SPACE, "t"}));
}

TEST(PieceModel, HostileFilesAreRefused) {
  const uint32_t leaf = 1 << 10 | 1 << 8 | 'a';
  const std::string text("t\0", 2);
  std::vector<Piece> endless = kPieces, unscored = kPieces, cut = kPieces;
  cut[3].text = std::string("a\0b", 3);
  endless[3].text = std::string(2000, 'a');
  unscored[4].score = std::numeric_limits<float>::quiet_NaN();
  const std::pair<std::string, const char*> wrong[] = {
      {"", "it has no pieces"},
      {"no model at all", "is no SentencePiece model"},
      {piece_model(endless), "piece 3 has 2000 bytes"},
      {piece_model(unscored), "piece 4 has no finite score"},
      {piece_model(cut), "piece 3 holds a NUL character"},
      {piece_model(kPieces, "abc"), "has no size"},
      {piece_model(kPieces, chars_map(0, leaf, 0, text).substr(0, 600)), "a table of 1024 bytes in 596"},
      {piece_model(kPieces, chars_map(0x3FFFFF << 10, leaf, 0, text)), "unit 0 points to unit"},
      {piece_model(kPieces, chars_map(0, 0x1FFFFF << 10 | 'a', 0, text)), "unit 97 points to unit"},
      {piece_model(kPieces, chars_map(0, leaf, 5, text)), "begins at byte 5 of 2"},
      {piece_model(kPieces, chars_map(0, leaf, 0, "t")), "has no end"},
      {piece_model(kPieces, chars_map(0, leaf, 0, std::string(1000, 't') + std::string(1, 0))),
       "1000 bytes, the limit"}};
  for (const auto& [bytes, words] : wrong) {
    TempFolder folder;
    folder.write("x.model", bytes);
    const Status refused = PieceModel::load(folder.path() / "x.model").status();
    EXPECT_NE(refused.message().find("x.model: "), std::string::npos) << words;
    EXPECT_NE(refused.message().find(words), std::string::npos) << refused.message();
  }
}

TEST(PieceModel, DamagedFilesNeverDoHarm) {
  std::mt19937 random(5);
  const std::string good = piece_model(kPieces, chars_map(0, 1 << 10 | 1 << 8 | 'a', 0, std::string("t\0", 2)));
  const TempFolder folder;
  int loaded = 0;
  for (int round = 0; round < 400; ++round) {
    std::string bytes = good;
    for (unsigned i = 1 + random() % 4; i-- > 0;) bytes[random() % bytes.size()] = static_cast<char>(random());
    if (random() % 5 == 0) bytes.resize(random() % bytes.size());
    folder.write("x.model", bytes);
    const Result<PieceModel> model = PieceModel::load(folder.path() / "x.model");
    if (!model.is_ok()) continue;
    ++loaded;
    const Result<std::vector<std::string>> pieces = model->encode("the cat sat, \xC3\xA9 cats aaa");
    EXPECT_TRUE(!pieces.is_ok() || model->decode(*pieces).is_ok());
  }
  EXPECT_GT(loaded, 20);
}

}  // namespace
}  // namespace situ
