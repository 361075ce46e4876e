// Tokenizers of folders without tokenizer.json: SentencePiece models, whose pieces have the ids of a vocabulary.
// Source: MarianTokenizer, M2M100Tokenizer, MBartTokenizer, MBart50Tokenizer and NllbTokenizer of transformers, the
// slow ones.
#include <algorithm>
#include <unordered_map>

#include "text/language_tokens.h"
#include "text/mark.h"
#include "text/piece_model.h"
#include "text/tokenizer_model.h"
#include "text/vocabulary_file.h"

namespace situ {
namespace {

namespace fs = std::filesystem;

// Tokens by id and ids by token; of equal tokens the last one counts.
struct Vocabulary {
  std::unordered_map<std::string, int64_t> ids;
  std::unordered_map<int64_t, std::string> tokens;

  void put(const std::string& token, int64_t id) {
    ids[token] = id;
    tokens[id] = token;
  }
  std::optional<int64_t> id(std::string_view token) const {
    const auto found = ids.find(std::string(token));
    return found == ids.end() ? std::nullopt : std::optional(found->second);
  }
};

Result<Vocabulary> read_vocabulary(const fs::path& path) {
  const Result<TokenIds> tokens = read_token_ids(path);
  if (!tokens.is_ok()) return tokens.status();
  Vocabulary vocabulary;
  for (const auto& [token, id] : *tokens) vocabulary.put(token, id);
  return vocabulary;
}

// fairseq's ids: its own four, then those of the model in its order but for its first three (<unk>, <s>, </s>).
Vocabulary fairseq_vocabulary(const PieceModel& model) {
  Vocabulary v;
  for (int64_t i = 3; i < model.size(); ++i) v.put(model.piece(i), i + 1);
  int64_t id = 0;
  for (const char* token : {"<s>", "<pad>", "</s>", "<unk>"}) v.put(token, id++);
  return v;
}

class PieceTokenizer : public TokenizerModel {
 public:
  PieceTokenizer(PieceModel source, std::optional<PieceModel> target, Vocabulary source_vocabulary,
                 std::optional<Vocabulary> target_vocabulary)
      : source_(std::move(source)),
        target_(std::move(target)),
        vocabulary_(std::move(source_vocabulary)),
        target_vocabulary_(std::move(target_vocabulary)) {}

  // Special and added tokens, whose texts are never cut into pieces. Languages that have no id get the next ones.
  Status add_tokens(const TokenizerConfig& config, bool mask_at_end) {
    for (const auto& [id, token] : config.added_tokens) add(token, id);
    std::map<std::string, std::string> special = {
        {"eos_token", "</s>"}, {"unk_token", "<unk>"}, {"pad_token", "<pad>"}};
    for (const auto& [name, token] : config.special_tokens) special[name] = token;
    int64_t next = 0;
    for (const auto& [token, id] : vocabulary_.ids) next = std::max(next, id + 1);
    for (const std::string& token : config.additional_special_tokens) {
      const std::optional<int64_t> id = vocabulary_.id(token);
      if (!id && language_of(token).empty()) continue;  // the ids of others are not known
      add({token, true}, id ? *id : next++);
    }
    if (mask_at_end && special.contains("mask_token") && !vocabulary_.id(special["mask_token"]))
      add({special["mask_token"], true, true}, next);
    for (const auto& [name, token] : special)
      if (const std::optional<int64_t> id = vocabulary_.id(token)) add({token, true, name == "mask_token"}, *id);
    const std::optional<int64_t> unknown = vocabulary_.id(special["unk_token"]),
                                 end = vocabulary_.id(special["eos_token"]);
    if (!unknown || !end)
      return Status::error("the vocabulary has no token '" + (unknown ? special["eos_token"] : special["unk_token"]) +
                           "'");
    unknown_ = *unknown, end_ = *end;
    return Status::ok();
  }

  // The text's own ids, and the end token: a language's tokens are the caller's.
  Result<std::vector<int64_t>> encode(std::string_view text, bool add_special_tokens, char32_t mark, int64_t most,
                                      const Stop&) const override {
    std::vector<int64_t> ids;
    size_t begin = 0;
    bool strip_left = false;  // an added token has taken the spaces behind it
    for (size_t at = 0; at <= text.size();) {
      const Added* found = at < text.size() ? added_at(text.substr(at)) : nullptr;
      if (!found && at < text.size()) {
        ++at;
        continue;
      }
      SITU_RETURN_IF_ERROR(encode_plain(without_mark(text.substr(begin, at - begin), mark), strip_left,
                                        found && found->token.lstrip, ids));
      if (!found || (most > 0 && std::ssize(ids) > most)) break;
      ids.push_back(found->id);
      strip_left = found->token.rstrip;
      begin = at += found->token.text.size();
    }
    if (add_special_tokens) ids.push_back(end_);
    return ids;
  }

  Result<std::string> break_special(std::string_view text, char32_t mark) const override {
    std::string broken;
    for (size_t at = 0; at < text.size(); ++at) {
      const Added* found = added_at(text.substr(at));
      broken += text[at];
      if (found && found->token.special) broken += utf8_of(mark);
    }
    return broken;
  }

  Result<std::string> decode(std::span<const int64_t> ids, bool skip_special_tokens, const Stop&) const override {
    std::string text;
    std::vector<std::string> pieces;
    const auto flush = [&] {
      Result<std::string> more = (target_ ? *target_ : source_).decode(pieces);
      pieces.clear();
      if (more.is_ok()) text += *more;
      return more.status();
    };
    for (const int64_t id : ids) {
      if (id < 0) return Status::error("decode: " + std::to_string(id) + " is not a token id");
      const std::optional<std::string> token = id_to_token(id);
      if (!token || (is_special(id) && skip_special_tokens)) continue;
      if (!is_special(id)) {
        pieces.push_back(*token);
        continue;
      }
      SITU_RETURN_IF_ERROR(flush());
      text += *token + (target_ ? " " : "");
    }
    SITU_RETURN_IF_ERROR(flush());
    constexpr std::string_view kSpace = "\xE2\x96\x81";  // of pieces that the model does not know
    for (size_t at = 0; (at = text.find(kSpace, at)) != std::string::npos; ++at) text.replace(at, kSpace.size(), " ");
    const size_t first = text.find_first_not_of(" \n\t\r"), last = text.find_last_not_of(" \n\t\r");
    return first == std::string::npos ? std::string() : text.substr(first, last - first + 1);
  }

  std::optional<int64_t> token_to_id(std::string_view token) const override { return vocabulary_.id(token); }
  std::optional<std::string> id_to_token(int64_t id) const override {
    const Vocabulary& v = target_vocabulary_ ? *target_vocabulary_ : vocabulary_;
    const auto found = v.tokens.find(id);
    return found == v.tokens.end() ? std::nullopt : std::optional(found->second);
  }
  bool is_special(int64_t id) const override {
    return std::any_of(added_.begin(), added_.end(), [&](const Added& a) { return a.id == id && a.token.special; });
  }
  int64_t vocab_size() const override {
    int64_t size = 0;
    for (const auto& [id, token] : vocabulary_.tokens) size = std::max(size, id + 1);
    return size;
  }

 private:
  struct Added {
    TokenizerConfig::AddedToken token;
    int64_t id;
  };

  void add(const TokenizerConfig::AddedToken& token, int64_t id) {
    if (token.text.empty()) return;
    const auto same =
        std::find_if(added_.begin(), added_.end(), [&](const Added& a) { return a.token.text == token.text; });
    if (same != added_.end()) {
      same->token.special |= token.special;
      return;
    }
    vocabulary_.put(token.text, id);
    if (target_vocabulary_) target_vocabulary_->put(token.text, id);
    const auto longer = [](const Added& a, const Added& b) { return a.token.text.size() > b.token.text.size(); };
    const Added one{token, id};
    added_.insert(std::upper_bound(added_.begin(), added_.end(), one, longer), one);
  }

  // The longest one that begins the text.
  const Added* added_at(std::string_view text) const {
    for (const Added& a : added_)
      if (text.starts_with(a.token.text)) return &a;
    return nullptr;
  }

  // Text without added tokens. Marian's may begin with the language that it is translated to.
  Status encode_plain(std::string_view text, bool strip_left, bool strip_right, std::vector<int64_t>& ids) const {
    constexpr std::string_view kSpaces = " \n\t\r";
    if (strip_left) text.remove_prefix(std::min(text.find_first_not_of(kSpaces), text.size()));
    if (strip_right) text = text.substr(0, text.find_last_not_of(kSpaces) + 1);
    if (text.empty()) return Status::ok();
    const size_t close = target_ && text.starts_with(">>") ? text.find("<<") : std::string_view::npos;
    if (close != std::string_view::npos) {
      ids.push_back(id_or_unknown(text.substr(0, close + 2)));
      text.remove_prefix(close + 2);
    }
    Result<std::vector<std::string>> pieces = source_.encode(text);
    if (!pieces.is_ok()) return pieces.status();
    for (const std::string& piece : *pieces) ids.push_back(id_or_unknown(piece));
    return Status::ok();
  }
  int64_t id_or_unknown(std::string_view token) const { return vocabulary_.id(token).value_or(unknown_); }

  PieceModel source_;
  std::optional<PieceModel> target_;  // decodes; else the other
  Vocabulary vocabulary_;
  std::optional<Vocabulary> target_vocabulary_;
  std::vector<Added> added_;  // longest first
  int64_t unknown_ = 0, end_ = 0;
};

}  // namespace

Result<std::unique_ptr<TokenizerModel>> load_piece_tokenizer(const fs::path& folder, const TokenizerConfig& config) {
  std::error_code unknown;
  const bool marian = fs::exists(folder / "source.spm", unknown),
             has_vocabulary = marian || fs::exists(folder / "vocab.json", unknown);
  Result<PieceModel> source = PieceModel::load(folder / (marian ? "source.spm" : "sentencepiece.bpe.model"));
  if (!source.is_ok()) return source.status();
  std::optional<PieceModel> target;
  if (marian) {
    Result<PieceModel> loaded = PieceModel::load(folder / "target.spm");
    if (!loaded.is_ok()) return loaded.status();
    target = std::move(*loaded);
  }
  Result<Vocabulary> vocabulary =
      has_vocabulary ? read_vocabulary(folder / "vocab.json") : Result<Vocabulary>(fairseq_vocabulary(*source));
  if (!vocabulary.is_ok()) return vocabulary.status();
  std::optional<Vocabulary> target_vocabulary;
  if (marian && config.separate_vocabs) {
    Result<Vocabulary> read = read_vocabulary(folder / "target_vocab.json");
    if (!read.is_ok()) return read.status();
    target_vocabulary = std::move(*read);
  }
  auto tokenizer = std::make_unique<PieceTokenizer>(std::move(*source), std::move(target), std::move(*vocabulary),
                                                    std::move(target_vocabulary));
  SITU_RETURN_IF_ERROR(tokenizer->add_tokens(config, !has_vocabulary).with_context(folder.string()));
  return std::unique_ptr<TokenizerModel>(std::move(tokenizer));
}

}  // namespace situ
