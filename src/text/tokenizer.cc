#include "text/tokenizer.h"

#include <algorithm>
#include <utility>

#include "base/lfs_pointer.h"
#include "base/thread_flag.h"
#include "text/language_tokens.h"
#include "text/mark.h"
#include "text/slow_tokenizer.h"
#include "text/stop.h"

namespace situ {

namespace fs = std::filesystem;

Status check_utf8(std::string_view text, std::string_view what) {
  OwnedText error;
  const bool good = situ_text_check_utf8(text.data(), text.size(), what.data(), what.size(), error.get()) == 0;
  return good ? Status::ok() : error.status();
}

Result<std::string> lower_text(std::string_view text) {
  OwnedText lower, error;
  if (situ_text_lower(text.data(), text.size(), lower.get(), error.get()) != 0) return error.status();
  return lower.str();
}

namespace {

bool there(const fs::path& folder, const char* name) {
  std::error_code unknown;
  return fs::exists(folder / name, unknown);
}

// What the Python classes of transformers read, and of which they write a tokenizer.json.
constexpr const char* kFilesOfClasses[] = {
    "vocab.json",          "merges.txt",         "vocab.txt",  "tokenizer.model", "sentencepiece.bpe.model",
    "sentencepiece.model", "spiece.model",       "spm.model",  "vocab.spm",       "bpe.codes",
    "qwen.tiktoken",       "tokenizer.model.v3", "tekken.json"};

// "DIR: no tokenizer.json", and how to make it where other files say the same.
Status no_file(const fs::path& folder, const std::string& missing, const std::string& of_class = "") {
  std::string found;
  for (const char* name : kFilesOfClasses)
    if (there(folder, name)) found += (found.empty() ? "" : ", ") + std::string(name);
  std::string message = folder.string() + ": no " + missing;
  if (missing == "tokenizer.json" && !found.empty())
    message += ", only " + found + (of_class.empty() ? "" : " of a " + of_class) + ": AutoTokenizer.from_pretrained('" +
               folder.string() + "').save_pretrained('" + folder.string() + "') of transformers makes it";
  return Status::error(Code::kNotFound, message);
}

}  // namespace

std::string FolderTokenizer::missing_file(const fs::path& folder) {
  if (there(folder, "tokenizer.json") || there(folder, "sentencepiece.bpe.model")) return "";
  if (there(folder, "source.spm") || there(folder, "target.spm")) {
    for (const char* name : {"source.spm", "target.spm", "vocab.json"})
      if (!there(folder, name)) return name;
    return "";
  }
  return there(folder, "vocab.json") && there(folder, "merges.txt") ? "" : "tokenizer.json";
}

Result<FolderTokenizer> FolderTokenizer::load(const fs::path& folder) {
  if (const std::string missing = missing_file(folder); !missing.empty()) return no_file(folder, missing);
  Result<TokenizerConfig> config = TokenizerConfig::load(folder);
  if (!config.is_ok()) return config.status();
  const bool json = there(folder, "tokenizer.json"),
             pieces = there(folder, "sentencepiece.bpe.model") || there(folder, "source.spm");
  if (json && holds_lfs_pointer(folder / "tokenizer.json")) return lfs_pointer_error(folder / "tokenizer.json");
  if (!json && !pieces && !is_slow_class(folder, *config))
    return no_file(folder, "tokenizer.json", config->tokenizer_class);
  Result<std::unique_ptr<TokenizerModel>> model = json     ? load_json_tokenizer(folder / "tokenizer.json")
                                                  : pieces ? load_piece_tokenizer(folder, *config)
                                                           : load_slow_tokenizer(folder, *config);
  if (!model.is_ok()) return model.status();
  FolderTokenizer tokenizer(std::move(*model), std::move(config).value());
  SITU_RETURN_IF_ERROR(tokenizer.resolve_ends());
  return tokenizer;
}

// Languages go before add_bos_token and add_eos_token: their classes know neither.
Status FolderTokenizer::resolve_ends() {
  if (language_layout(config_.tokenizer_class, config_.legacy_behaviour)) {
    const Result<TranslationTokens> tokens = translation_tokens(*this, std::nullopt, std::nullopt);
    if (tokens.is_ok()) ends_ = TextEnds{tokens->prefix, tokens->suffix};
    return Status::ok();  // a vocabulary without languages has texts without them
  }
  if (!config_.ends) return Status::ok();
  TextEnds ends;
  const auto resolve = [&](bool wanted, const char* name, std::vector<int64_t>& ids) {
    const std::optional<std::string> token = special_token(name);
    if (!wanted || !token) return Status::ok();
    const std::optional<int64_t> id = token_to_id(*token);
    if (!id) return Status::error(std::string("tokenizer_config.json: ") + name + " '" + *token + "' has no id");
    ids = {*id};
    return Status::ok();
  };
  SITU_RETURN_IF_ERROR(resolve(config_.ends->add_bos, "bos_token", ends.first));
  SITU_RETURN_IF_ERROR(resolve(config_.ends->add_eos, "eos_token", ends.last));
  ends_ = std::move(ends);
  return Status::ok();
}

Result<std::vector<int64_t>> FolderTokenizer::encode(std::string_view text, bool add_special_tokens, char32_t mark,
                                                     int64_t most) const {
  const Stop when(thread_flag_or(*interrupt_));
  if (!add_special_tokens || !ends_) return model_->encode(text, add_special_tokens, mark, most, when);
  Result<std::vector<int64_t>> ids = model_->encode(text, false, mark, most, when);
  if (!ids.is_ok()) return ids;
  ids->insert(ids->begin(), ends_->first.begin(), ends_->first.end());
  ids->insert(ids->end(), ends_->last.begin(), ends_->last.end());
  return ids;
}

Result<EncodedTexts> FolderTokenizer::encode_texts(std::span<const std::string_view> texts, int64_t most) const {
  const Stop when(thread_flag_or(*interrupt_));
  if (!ends_) return model_->encode_texts(texts, most, config_.cuts_left, when);
  std::vector<std::vector<int64_t>> plain;
  const int64_t wanted = config_.cuts_left || texts.size() > 1 ? 0 : most;  // of a pair the longer text is cut first
  for (const std::string_view text : texts) {
    Result<std::vector<int64_t>> ids = model_->encode(text, false, 0, wanted, when);
    if (!ids.is_ok()) return ids.status();
    plain.push_back(std::move(*ids));
  }
  return join_texts(std::move(plain), *ends_, most, config_.cuts_left);
}

Result<EncodedTexts> TokenizerModel::encode_texts(std::span<const std::string_view> texts, int64_t most, bool cut_left,
                                                  const Stop& stop) const {
  const Result<std::vector<int64_t>> nothing = encode("", true, 0, 0, stop);
  if (!nothing.is_ok()) return nothing.status();
  std::vector<std::vector<int64_t>> plain;
  const int64_t wanted = cut_left || texts.size() > 1 ? 0 : most;
  for (const std::string_view text : texts) {
    Result<std::vector<int64_t>> ids = encode(text, false, 0, wanted, stop);
    if (!ids.is_ok()) return ids.status();
    plain.push_back(std::move(*ids));
  }
  return join_texts(std::move(plain), {{}, *nothing}, most, cut_left);
}

Result<EncodedTexts> join_texts(std::vector<std::vector<int64_t>> texts, const TextEnds& ends, int64_t most,
                                bool cut_left) {
  const int64_t added = std::ssize(texts) * (std::ssize(ends.first) + std::ssize(ends.last)), room = most - added;
  if (most > 0 && room < 0)
    return Status::error("encode: at most " + std::to_string(most) + " tokens, and " + std::to_string(added) +
                         " are added to every text");
  EncodedTexts joined;
  int64_t all = 0;
  for (const auto& ids : texts) all += std::ssize(ids);
  joined.cut = most > 0 && all > room;
  std::vector<int64_t> kept;
  for (const auto& ids : texts) kept.push_back(std::ssize(ids));
  if (joined.cut && texts.size() == 1) kept[0] = room;
  if (joined.cut && texts.size() == 2) {
    // The longer one is cut down to what the shorter one leaves, and no further than to half of the room.
    const size_t longer = kept[0] > kept[1] ? 0 : 1;
    int64_t &more = kept[longer], &less = kept[1 - longer];
    more = std::max(less, room - less);
    if (more + less > room) {
      less = room / 2;
      more = room - less;
    }
  }
  for (size_t t = 0; t < texts.size(); ++t) {
    const auto begin = cut_left ? texts[t].end() - kept[t] : texts[t].begin();
    joined.ids.insert(joined.ids.end(), ends.first.begin(), ends.first.end());
    joined.ids.insert(joined.ids.end(), begin, begin + kept[t]);
    joined.ids.insert(joined.ids.end(), ends.last.begin(), ends.last.end());
    joined.types.resize(joined.ids.size(), static_cast<int64_t>(t));
  }
  return joined;
}

Result<std::vector<int64_t>> FolderTokenizer::encode_plain(std::string_view text, bool add_special_tokens,
                                                           int64_t most) const {
  const Result<char32_t> mark = free_mark(text);
  if (!mark.is_ok()) return mark.status();
  const Result<std::string> broken = break_special(text, *mark);
  if (!broken.is_ok()) return broken.status();
  const bool same = broken->size() == text.size();
  return encode(same ? text : std::string_view(*broken), add_special_tokens, same ? 0 : *mark, most);
}

// Noncharacters, which no text is meant to have, and normalizers leave alone.
Result<char32_t> FolderTokenizer::free_mark(std::string_view text) {
  for (char32_t mark = 0xFDD0; mark <= 0xFDEF; ++mark)
    if (text.find(utf8_of(mark)) == std::string_view::npos) return mark;
  return Status::error(Code::kInvalidArgument, "the text has all of the noncharacters U+FDD0 to U+FDEF");
}

Result<std::string> FolderTokenizer::break_special(std::string_view text, char32_t mark) const {
  return model_->break_special(text, mark);
}

Result<std::string> FolderTokenizer::decode(std::span<const int64_t> ids, bool skip_special_tokens) const {
  const Stop when(thread_flag_or(*interrupt_));
  return model_->decode(ids, skip_special_tokens, when);
}

std::optional<int64_t> FolderTokenizer::token_to_id(std::string_view token) const { return model_->token_to_id(token); }
std::optional<std::string> FolderTokenizer::id_to_token(int64_t id) const { return model_->id_to_token(id); }
std::optional<std::string> FolderTokenizer::bytes_of(int64_t id) const { return model_->bytes_of(id); }
bool FolderTokenizer::is_special(int64_t id) const { return model_->is_special(id); }
bool FolderTokenizer::is_left_out(int64_t id) const { return model_->is_left_out(id); }
int64_t FolderTokenizer::vocab_size() const { return model_->vocab_size(); }

std::optional<std::string> FolderTokenizer::special_token(const std::string& name) const {
  const auto found = config_.special_tokens.find(name);
  if (found == config_.special_tokens.end()) return std::nullopt;
  return found->second;
}

std::optional<int64_t> FolderTokenizer::special_token_id(const std::string& name) const {
  const std::optional<std::string> token = special_token(name);
  return token ? token_to_id(*token) : std::nullopt;
}

}  // namespace situ
