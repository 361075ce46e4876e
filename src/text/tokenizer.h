// Text to token ids and back, and chat templates, for one model folder in the Hugging Face layout.
#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "text/tokenizer_config.h"

struct situ_text_tokenizer;
struct situ_text_stop;

namespace situ {

// Error: names `what` and the first byte that is wrong.
Status check_utf8(std::string_view text, std::string_view what);

struct ChatMessage {
  std::string role;     // "system", "user", "assistant", ...
  std::string content;  // UTF-8
};

// Move-only. All const members may be called by any number of threads at once; the ids and texts equal those of the
// Python packages tokenizers 0.23 and transformers 5 with clean_up_tokenization_spaces off.
class Tokenizer {
 public:
  // Reads tokenizer.json, which must be there, and what TokenizerConfig::load reads. Error: it takes too much time or
  // memory (situ_text.h).
  static Result<Tokenizer> load(const std::filesystem::path& folder);

  // Calls that wait end with the error "interrupted" within milliseconds when the flag is true. Null: none. Not while
  // other threads use the tokenizer.
  void interrupt_when(const std::atomic<bool>* flag) { interrupt_ = flag; }

  // Errors: invalid UTF-8; a text that the model of tokenizer.json cannot express (no unknown token), or on which its
  // regular expression gives up or takes too long; a tokenizer.json whose rules could make far more of the text than it
  // has bytes.
  Result<std::vector<int64_t>> encode(std::string_view text, bool add_special_tokens) const;

  // Ids that the vocabulary does not have give no text (exports pad the vocabulary); a negative id is an error.
  Result<std::string> decode(std::span<const int64_t> ids, bool skip_special_tokens) const;

  std::optional<int64_t> token_to_id(std::string_view token) const;
  std::optional<std::string> id_to_token(int64_t id) const;
  // Whether skip_special_tokens leaves this id out.
  bool is_special(int64_t id) const;
  // The number of tokens, added ones included. A model's logits may be wider.
  int64_t vocab_size() const;

  // By its name in tokenizer_config.json: "bos_token", "eos_token", "pad_token", ...
  std::optional<std::string> special_token(const std::string& name) const;
  std::optional<int64_t> special_token_id(const std::string& name) const;

  bool has_chat_template() const { return !config_.chat_templates.empty(); }

  // The prompt for a conversation. The result already holds the special tokens: encode it with add_special_tokens
  // false. `variables_json`: a JSON object with further names for the template, such as "tools" or "enable_thinking".
  Result<std::string> apply_chat_template(const std::vector<ChatMessage>& messages, bool add_generation_prompt,
                                          std::string_view variables_json = {}) const;
  // The same with messages as a JSON array, for tool calls and for content that is a list of parts.
  Result<std::string> apply_chat_template_json(std::string_view messages_json, bool add_generation_prompt,
                                               std::string_view variables_json = {}) const;

 private:
  struct Free {
    void operator()(situ_text_tokenizer* handle) const;
  };
  friend class Grammar;
  Tokenizer(situ_text_tokenizer* handle, TokenizerConfig config) : handle_(handle), config_(std::move(config)) {}
  Status resolve_ends();
  situ_text_stop stop() const;

  std::unique_ptr<situ_text_tokenizer, Free> handle_;
  TokenizerConfig config_;
  const std::atomic<bool>* interrupt_ = nullptr;
  // Added around a text in place of what tokenizer.json adds, when config_.ends is set.
  std::optional<int64_t> first_id_;
  std::optional<int64_t> last_id_;
};

}  // namespace situ
