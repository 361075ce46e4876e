#include "text/tokenizer.h"

#include <limits>
#include <utility>

#include "text/owned_text.h"

namespace situ {

void Tokenizer::Free::operator()(situ_text_tokenizer* handle) const { situ_text_tokenizer_free(handle); }

Status check_utf8(std::string_view text, std::string_view what) {
  OwnedText error;
  const bool good = situ_text_check_utf8(text.data(), text.size(), what.data(), what.size(), error.get()) == 0;
  return good ? Status::ok() : error.status();
}

situ_text_stop Tokenizer::stop() const {
  const auto asked = [](const void* flag) {
    return flag != nullptr && static_cast<const std::atomic<bool>*>(flag)->load(std::memory_order_relaxed);
  };
  return {asked, interrupt_};
}

Result<Tokenizer> Tokenizer::load(const std::filesystem::path& folder) {
  Result<TokenizerConfig> config = TokenizerConfig::load(folder);
  if (!config.is_ok()) return config.status();
  const std::string path = (folder / "tokenizer.json").string();
  situ_text_tokenizer* handle = nullptr;
  OwnedText error;
  if (situ_text_tokenizer_create(path.data(), path.size(), nullptr, &handle, error.get()) != 0) return error.status();
  Tokenizer tokenizer(handle, std::move(config).value());
  SITU_RETURN_IF_ERROR(tokenizer.resolve_ends());
  return tokenizer;
}

Status Tokenizer::resolve_ends() {
  if (!config_.ends) return Status::ok();
  const auto resolve = [&](bool wanted, const char* name, std::optional<int64_t>& id) {
    const std::optional<std::string> token = special_token(name);
    if (!wanted || !token) return Status::ok();
    id = token_to_id(*token);
    if (!id) return Status::error(std::string("tokenizer_config.json: ") + name + " '" + *token + "' has no id");
    return Status::ok();
  };
  SITU_RETURN_IF_ERROR(resolve(config_.ends->add_bos, "bos_token", first_id_));
  return resolve(config_.ends->add_eos, "eos_token", last_id_);
}

Result<std::vector<int64_t>> Tokenizer::encode(std::string_view text, bool add_special_tokens) const {
  const bool by_file = add_special_tokens && !config_.ends;
  const bool by_config = add_special_tokens && config_.ends;
  struct Ids : situ_text_ids {
    Ids() : situ_text_ids{} {}
    Ids(const Ids&) = delete;
    ~Ids() { situ_text_free_ids(this); }
  } ids;
  OwnedText error;
  const situ_text_stop when = stop();
  if (situ_text_encode(handle_.get(), text.data(), text.size(), by_file, &when, &ids, error.get()) != 0)
    return error.status();
  std::vector<int64_t> result;
  result.reserve(ids.size + 2);
  if (by_config && first_id_) result.push_back(*first_id_);
  result.insert(result.end(), ids.data, ids.data + ids.size);
  if (by_config && last_id_) result.push_back(*last_id_);
  return result;
}

Result<std::string> Tokenizer::decode(std::span<const int64_t> ids, bool skip_special_tokens) const {
  std::vector<uint32_t> narrow;
  narrow.reserve(ids.size());
  for (const int64_t id : ids) {
    if (id < 0 || id > std::numeric_limits<uint32_t>::max()) {
      return Status::error("decode: " + std::to_string(id) + " is not a token id");
    }
    narrow.push_back(static_cast<uint32_t>(id));
  }
  OwnedText text, error;
  const situ_text_stop when = stop();
  if (situ_text_decode(handle_.get(), narrow.data(), narrow.size(), skip_special_tokens, &when, text.get(),
                       error.get()) != 0)
    return error.status();
  return text.str();
}

std::optional<int64_t> Tokenizer::token_to_id(std::string_view token) const {
  uint32_t id = 0;
  if (!situ_text_token_to_id(handle_.get(), token.data(), token.size(), &id)) return std::nullopt;
  return id;
}

std::optional<std::string> Tokenizer::id_to_token(int64_t id) const {
  OwnedText text;
  if (id < 0 || id > std::numeric_limits<uint32_t>::max()) return std::nullopt;
  if (!situ_text_id_to_token(handle_.get(), static_cast<uint32_t>(id), text.get())) return std::nullopt;
  return text.str();
}

bool Tokenizer::is_special(int64_t id) const {
  if (id < 0 || id > std::numeric_limits<uint32_t>::max()) return false;
  return situ_text_is_special(handle_.get(), static_cast<uint32_t>(id));
}

int64_t Tokenizer::vocab_size() const { return static_cast<int64_t>(situ_text_vocab_size(handle_.get())); }

std::optional<std::string> Tokenizer::special_token(const std::string& name) const {
  const auto found = config_.special_tokens.find(name);
  if (found == config_.special_tokens.end()) return std::nullopt;
  return found->second;
}

std::optional<int64_t> Tokenizer::special_token_id(const std::string& name) const {
  const std::optional<std::string> token = special_token(name);
  return token ? token_to_id(*token) : std::nullopt;
}

}  // namespace situ
