// tokenizer.json, read by the Rust library.
#include <limits>

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
  explicit JsonTokenizer(situ_text_tokenizer* handle) : handle_(handle) {}

  Result<std::vector<int64_t>> encode(std::string_view text, bool add_special_tokens, const Stop& stop) const override {
    Ids ids;
    OwnedText error;
    const situ_text_stop when = stop.for_call();
    if (situ_text_encode(handle_.get(), text.data(), text.size(), add_special_tokens, &when, &ids, error.get()) != 0)
      return stop.status(error);
    return std::vector<int64_t>(ids.data, ids.data + ids.size);
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

  int64_t vocab_size() const override { return static_cast<int64_t>(situ_text_vocab_size(handle_.get())); }
  const situ_text_tokenizer* handle() const override { return handle_.get(); }

 private:
  static bool is_narrow(int64_t id) { return id >= 0 && id <= std::numeric_limits<uint32_t>::max(); }

  std::unique_ptr<situ_text_tokenizer, Free> handle_;
};

}  // namespace

Result<std::unique_ptr<TokenizerModel>> load_json_tokenizer(const std::filesystem::path& file) {
  const std::string path = file.string();
  situ_text_tokenizer* handle = nullptr;
  OwnedText error;
  if (situ_text_tokenizer_create(path.data(), path.size(), nullptr, &handle, error.get()) != 0) return error.status();
  return std::unique_ptr<TokenizerModel>(std::make_unique<JsonTokenizer>(handle));
}

}  // namespace situ
