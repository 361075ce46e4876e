// tokenizer.json, read by the Rust library, or what slow_tokenizer.h makes of other files.
#include <algorithm>
#include <limits>

#include "text/bert_rules.h"
#include "text/slow_tokenizer.h"
#include "text/stop.h"
#include "text/tokenizer_model.h"

namespace situ {
namespace {

struct Free {
  void operator()(situ_text_tokenizer* handle) const { situ_text_tokenizer_free(handle); }
};

struct Ids : situ_text_ids {
  Ids() : situ_text_ids{} {}
  Ids(const Ids&) = delete;
  ~Ids() { situ_text_free_ids(this); }
};

class JsonTokenizer : public TokenizerModel {
 public:
  explicit JsonTokenizer(situ_text_tokenizer* handle, SlowTokenizer slow = {})
      : handle_(handle), slow_(std::move(slow)) {}

  Result<std::vector<int64_t>> encode(std::string_view text, bool add_special_tokens, char32_t mark, int64_t most,
                                      const Stop& stop) const override {
    const std::string spaced = with_space(text);
    Ids ids;
    OwnedText error;
    const situ_text_stop when = stop.for_call();
    if (situ_text_encode(handle_.get(), spaced.data(), spaced.size(), add_special_tokens, mark,
                         static_cast<size_t>(most), &when, &ids, error.get()) != 0)
      return stop.status(error);
    std::vector<int64_t> result(ids.data, ids.data + ids.size);
    SITU_RETURN_IF_ERROR(check_spelled(result, spaced));
    return result;
  }

  Result<EncodedTexts> encode_texts(std::span<const std::string_view> texts, int64_t most, bool cut_left,
                                    const Stop& stop) const override {
    std::vector<std::string> spaced;
    for (const std::string_view text : texts) spaced.push_back(with_space(text));
    std::vector<situ_text_piece> pieces;
    for (const std::string& text : spaced) pieces.push_back({text.data(), text.size()});
    Ids ids, types;
    EncodedTexts result;
    OwnedText error;
    const situ_text_stop when = stop.for_call();
    if (situ_text_encode_texts(handle_.get(), pieces.data(), pieces.size(), static_cast<size_t>(most), cut_left, &when,
                               &ids, &types, &result.cut, error.get()) != 0)
      return stop.status(error);
    result.ids.assign(ids.data, ids.data + ids.size);
    result.types.assign(types.data, types.data + types.size);
    for (const std::string& text : spaced) SITU_RETURN_IF_ERROR(check_spelled(result.ids, text));
    return result;
  }

  Result<std::string> break_special(std::string_view text, char32_t mark) const override {
    OwnedText broken, error;
    if (situ_text_break_special(handle_.get(), text.data(), text.size(), mark, broken.get(), error.get()) != 0)
      return error.status();
    return broken.str();
  }

  std::optional<std::string> bytes_of(int64_t id) const override {
    OwnedText bytes;
    if (!is_narrow(id) || !situ_text_token_bytes(handle_.get(), static_cast<uint32_t>(id), bytes.get()))
      return std::nullopt;
    return bytes.str();
  }

  Result<std::string> decode(std::span<const int64_t> ids, bool skip_special_tokens, const Stop& stop) const override {
    std::vector<uint32_t> narrow;
    narrow.reserve(ids.size());
    for (const int64_t id : ids) {
      if (!is_narrow(id)) return Status::error("decode: " + std::to_string(id) + " is not a token id");
      narrow.push_back(static_cast<uint32_t>(id));
    }
    OwnedText text, error;
    const situ_text_stop when = stop.for_call();
    if (situ_text_decode(handle_.get(), narrow.data(), narrow.size(), skip_special_tokens, &when, text.get(),
                         error.get()) != 0)
      return stop.status(error);
    return text.str();
  }

  std::optional<int64_t> token_to_id(std::string_view token) const override {
    uint32_t id = 0;
    if (!situ_text_token_to_id(handle_.get(), token.data(), token.size(), &id)) return std::nullopt;
    return id;
  }

  std::optional<std::string> id_to_token(int64_t id) const override {
    OwnedText text;
    if (!is_narrow(id) || !situ_text_id_to_token(handle_.get(), static_cast<uint32_t>(id), text.get()))
      return std::nullopt;
    return text.str();
  }

  bool is_special(int64_t id) const override {
    return is_narrow(id) && situ_text_is_special(handle_.get(), static_cast<uint32_t>(id));
  }

  bool is_left_out(int64_t id) const override {
    return is_narrow(id) && situ_text_is_left_out(handle_.get(), static_cast<uint32_t>(id));
  }

  int64_t vocab_size() const override {
    return static_cast<int64_t>(situ_text_vocab_size(handle_.get())) - (slow_.nothing >= 0 ? 1 : 0);
  }
  int64_t longest_token() const override {
    return slow_.nothing < 0 ? static_cast<int64_t>(situ_text_longest_token(handle_.get())) : 0;
  }
  int64_t spelled_bytes(std::string_view text) const override {
    return static_cast<int64_t>(situ_text_spelled_bytes(handle_.get(), text.data(), text.size()));
  }
  const situ_text_tokenizer* handle() const override { return handle_.get(); }

 private:
  static bool is_narrow(int64_t id) { return id >= 0 && id <= std::numeric_limits<uint32_t>::max(); }

  // The text as the class gives it to its model.
  std::string with_space(std::string_view text) const {
    using Space = SlowTokenizer::Space;
    const bool space =
        slow_.space == Space::kAlways || (slow_.space == Space::kUnlessThere && !text.empty() && !begins_blank(text));
    return (space ? " " : "") + std::string(text);
  }

  Status check_spelled(const std::vector<int64_t>& ids, const std::string& text) const {
    if (slow_.nothing < 0 || std::find(ids.begin(), ids.end(), slow_.nothing) == ids.end()) return Status::ok();
    return Status::error("encode: vocab.json has no token for '" + unspelled(text) + "', and no unknown token");
  }

  static bool begins_blank(std::string_view text) {
    return std::string_view(" \t\n\v\f\r").find(text[0]) != std::string_view::npos;
  }

  // The first character that no token spells, outside of added tokens.
  std::string unspelled(std::string text) const {
    for (const std::string& added : slow_.added)
      for (size_t at = 0; (at = text.find(added, at)) != std::string::npos;) text.erase(at, added.size());
    const auto is_first = [](char c) { return (c & 0xC0) != 0x80; };
    for (size_t at = 0, end = 0; at < text.size(); at = end) {
      for (end = at + 1; end < text.size() && !is_first(text[end]);) ++end;
      const std::string character = text.substr(at, end - at);
      const auto spelled = [&](char byte) { return slow_.spelled.find(byte) != std::string::npos; };
      if (!std::all_of(character.begin(), character.end(), spelled)) return character;
    }
    return text;
  }

  std::unique_ptr<situ_text_tokenizer, Free> handle_;
  SlowTokenizer slow_;  // empty of a tokenizer.json
};

}  // namespace

Result<std::unique_ptr<TokenizerModel>> load_json_tokenizer(const std::filesystem::path& file) {
  const std::string path = file.string();
  const Result<std::optional<BertRules>> rules = bert_rules(file.parent_path());
  if (!rules.is_ok()) return rules.status();
  situ_text_tokenizer* handle = nullptr;
  OwnedText error;
  const auto number = [](const std::optional<bool>& flag) { return flag ? static_cast<int>(*flag) : -1; };
  situ_text_bert bert{};
  if (*rules) bert = {(*rules)->lower, number((*rules)->accents), number((*rules)->han)};
  if (situ_text_tokenizer_create(path.data(), path.size(), *rules ? &bert : nullptr, nullptr, &handle, error.get()) !=
      0)
    return error.status();
  return std::unique_ptr<TokenizerModel>(std::make_unique<JsonTokenizer>(handle));
}

Result<std::unique_ptr<TokenizerModel>> load_slow_tokenizer(const std::filesystem::path& folder,
                                                            TokenizerConfig& config) {
  Result<SlowTokenizer> slow = read_slow_tokenizer(folder, config);
  if (!slow.is_ok()) return slow.status();
  situ_text_tokenizer* handle = nullptr;
  OwnedText error;
  if (situ_text_tokenizer_create_from(slow->json.data(), slow->json.size(), nullptr, &handle, error.get()) != 0)
    return error.status().with_context((folder / "vocab.json").string() + " and merges.txt");
  slow->json.clear();
  return std::unique_ptr<TokenizerModel>(std::make_unique<JsonTokenizer>(handle, std::move(*slow)));
}

}  // namespace situ
