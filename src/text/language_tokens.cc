#include "text/language_tokens.h"

#include <algorithm>
#include <cctype>

#include "text/tokenizer.h"

namespace situ {
namespace {

bool all_lower(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return c >= 'a' && c <= 'z'; });
}

// xx or xxx, and a region or a script: en_XX, eng_Latn.
bool is_code(std::string_view text, bool with_region) {
  const size_t line = text.find('_');
  const std::string_view language = text.substr(0, line);
  if (language.size() < 2 || language.size() > 3 || !all_lower(language)) return false;
  if (line == std::string_view::npos) return !with_region;
  const std::string_view region = text.substr(line + 1);
  return region.size() >= 2 && region.size() <= 4 && region[0] >= 'A' && region[0] <= 'Z' &&
         std::all_of(region.begin(), region.end(), [](unsigned char c) { return std::isalpha(c) != 0; });
}

// A few of them, in order.
std::string names(const std::map<std::string, int64_t>& known) {
  std::string text;
  for (const auto& [code, id] : known) text += (text.empty() ? "" : ", ") + code;
  return text;
}

Result<int64_t> find(const std::map<std::string, int64_t>& known, const std::string& code, const char* which) {
  const auto found = known.find(language_of(code).empty() ? code : language_of(code));
  if (found != known.end()) return found->second;
  return Status::error(std::string(which) + " language '" + code + "' is not known; known are " + names(known));
}

// Where tokenizer.json puts the token: encodes a letter with and without special tokens.
std::optional<LanguageLayout> layout_by_example(const FolderTokenizer& tokenizer,
                                                const std::map<std::string, int64_t>& known) {
  const Result<std::vector<int64_t>> with = tokenizer.encode("a", true), without = tokenizer.encode("a", false);
  if (!with.is_ok() || !without.is_ok()) return std::nullopt;
  const auto text = std::search(with->begin(), with->end(), without->begin(), without->end());
  for (const auto& [code, id] : known) {
    const auto at = std::find(with->begin(), with->end(), id);
    if (at != with->end()) return LanguageLayout{at < text, code};
  }
  return std::nullopt;
}

}  // namespace

std::string language_of(std::string_view token) {
  const auto inside = [&](std::string_view open, std::string_view close) -> std::string_view {
    const bool both = token.size() > open.size() + close.size() && token.starts_with(open) && token.ends_with(close);
    return both ? token.substr(open.size(), token.size() - open.size() - close.size()) : std::string_view();
  };
  if (const std::string_view code = inside("__", "__"); is_code(code, false)) return std::string(code);
  if (const std::string_view code = inside(">>", "<<"); !code.empty()) return std::string(code);
  return is_code(token, true) ? std::string(token) : std::string();
}

std::optional<LanguageLayout> language_layout(const std::string& tokenizer_class, bool legacy_behaviour) {
  if (tokenizer_class == "M2M100Tokenizer") return LanguageLayout{true, "en"};
  if (tokenizer_class == "MBart50Tokenizer") return LanguageLayout{true, "en_XX"};
  if (tokenizer_class == "NllbTokenizer") return LanguageLayout{!legacy_behaviour, "eng_Latn"};
  if (tokenizer_class == "MBartTokenizer") return LanguageLayout{false, "en_XX"};
  return std::nullopt;
}

std::map<std::string, int64_t> languages(const FolderTokenizer& tokenizer) {
  std::map<std::string, int64_t> known;
  for (int64_t id = 0; id < tokenizer.vocab_size(); ++id) {
    const std::optional<std::string> token = tokenizer.id_to_token(id);
    if (!token || token->size() < 4 || !(tokenizer.is_special(id) || token->starts_with(">>"))) continue;
    if (std::string code = language_of(*token); !code.empty()) known.emplace(std::move(code), id);
  }
  return known;
}

Result<TranslationTokens> translation_tokens(const FolderTokenizer& tokenizer, const std::optional<std::string>& source,
                                             const std::optional<std::string>& target) {
  const std::map<std::string, int64_t> known = languages(tokenizer);
  if (known.empty()) return Status::error("the tokenizer has no tokens of languages");
  const Result<std::vector<int64_t>> ends = tokenizer.encode("", true);
  if (!ends.is_ok()) return ends.status();
  TranslationTokens tokens;
  std::optional<LanguageLayout> layout =
      language_layout(tokenizer.config().tokenizer_class, tokenizer.config().legacy_behaviour);
  if (!layout) layout = layout_by_example(tokenizer, known);
  // Marian's source begins with the language of its target.
  const bool marian = !layout && tokenizer.id_to_token(known.begin()->second)->starts_with(">>");
  if (!layout && !marian) return Status::error("texts of this tokenizer do not say their language");
  if (marian && source)
    return Status::error("source language '" + *source + "': texts of this tokenizer say their target's language only");
  if (target) {
    Result<int64_t> id = find(known, *target, "target");
    if (!id.is_ok()) return id.status();
    if (marian)
      tokens.prefix.push_back(*id);
    else
      tokens.forced_bos = *id;
  }
  if (marian) {
    tokens.suffix = *ends;
    return tokens;
  }
  const std::string& usual =
      tokenizer.config().source_language.empty() ? layout->source : tokenizer.config().source_language;
  Result<int64_t> id = find(known, source.value_or(usual), "source");
  if (!id.is_ok()) return id.status();
  const std::optional<int64_t> end = tokenizer.special_token_id("eos_token");
  if (layout->before) tokens.prefix.push_back(*id);
  if (end || tokenizer.token_to_id("</s>")) tokens.suffix.push_back(end ? *end : *tokenizer.token_to_id("</s>"));
  if (!layout->before) tokens.suffix.push_back(*id);
  return tokens;
}

}  // namespace situ
