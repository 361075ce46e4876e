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
#include "situ/tokenizer.h"
#include "text/tokenizer_config.h"
#include "text/tokenizer_model.h"

namespace situ {

// In small letters, as str.lower of Python. Error: the text is not UTF-8.
Result<std::string> lower_text(std::string_view text);

// Move-only. All const members may be called by any number of threads at once; the ids and texts equal those of the
// Python packages tokenizers 0.23 and transformers 5 with clean_up_tokenization_spaces off; without tokenizer.json
// those of the slow tokenizers of transformers 4.57.
class FolderTokenizer {
 public:
  // Reads tokenizer.json, else the files of load_piece_tokenizer or load_slow_tokenizer, and what TokenizerConfig::load
  // reads. Error kNotFound: there is none of these, or a git-lfs pointer in place of one; the message says how to make
  // tokenizer.json where files of Python classes are there. Others: it takes too much time or memory (situ_text.h).
  static Result<FolderTokenizer> load(const std::filesystem::path& folder);
  // The file that a folder lacks to have a tokenizer; "": none.
  static std::string missing_file(const std::filesystem::path& folder);

  // Calls that wait end with the error kInterrupted within milliseconds when the flag is true; those of a thread with a
  // flag of its own (base/thread_flag.h) follow that one. Null: none. The flag must live as long as a call that began
  // with it.
  void interrupt_when(const std::atomic<bool>* flag) { interrupt_->store(flag); }

  // Errors: invalid UTF-8; a text that the model of tokenizer.json cannot express (no unknown token), or on which its
  // regular expression gives up or takes too long; a tokenizer.json whose rules could make far more of the text than it
  // has bytes.
  // `mark`: a character that is left out of the text once special tokens were looked for in it; 0: none. `most`: of
  // more ids than that at least one more is given, and the others may be left out; 0: all are given.
  Result<std::vector<int64_t>> encode(std::string_view text, bool add_special_tokens, char32_t mark = 0,
                                      int64_t most = 0) const;
  // The same, where the text of special tokens is text as any other.
  Result<std::vector<int64_t>> encode_plain(std::string_view text, bool add_special_tokens, int64_t most = 0) const;
  // Of the bytes that tokens spell, how many one token stands for at most; 0: it is not known.
  int64_t longest_token() const { return model_->longest_token(); }
  // How many bytes of a text tokens spell; the others become no tokens, or tokens of their own.
  int64_t spelled_bytes(std::string_view text) const { return model_->spelled_bytes(text); }
  // The text has at least so many tokens, which is found without making them; 0: it is not known.
  int64_t least_tokens(std::string_view text) const {
    const int64_t longest = longest_token();
    return longest > 0 ? (spelled_bytes(text) + longest - 1) / longest : 0;
  }
  // Texts that become ordinary tokens beside others that do not, in one text: break_special() of the former, with a
  // mark that free_mark() finds, then encode() with it. A character that `text` does not have. Error: there is none.
  static Result<char32_t> free_mark(std::string_view text);
  // The text with the mark in every special token. A special token of a single character stays one.
  Result<std::string> break_special(std::string_view text, char32_t mark) const;

  // What an encoder reads of one text, or of a pair, with special tokens. More than `most` tokens (0: any number) are
  // cut as transformers' truncation "longest_first" does: of a pair the longer text first, on the side that
  // tokenizer_config.json names. Errors: as above; `most` is less than the special tokens.
  Result<EncodedTexts> encode_texts(std::span<const std::string_view> texts, int64_t most) const;

  // Ids that the vocabulary does not have give no text (exports pad the vocabulary); a negative id is an error.
  Result<std::string> decode(std::span<const int64_t> ids, bool skip_special_tokens) const;

  std::optional<int64_t> token_to_id(std::string_view token) const;
  std::optional<std::string> id_to_token(int64_t id) const;
  // The bytes that a token stands for alone, which may be no UTF-8; of a special one its text. None: there is no such
  // token, or its text depends on its neighbours.
  std::optional<std::string> bytes_of(int64_t id) const;
  bool is_special(int64_t id) const;
  // Whether skip_special_tokens leaves this id out: special ones, but for those whose text the normalizer of
  // tokenizer.json changes.
  bool is_left_out(int64_t id) const;
  // The number of tokens, added ones included. A model's logits may be wider.
  int64_t vocab_size() const;

  // By its name in tokenizer_config.json: "bos_token", "eos_token", "pad_token", ...
  std::optional<std::string> special_token(const std::string& name) const;
  std::optional<int64_t> special_token_id(const std::string& name) const;

  const TokenizerConfig& config() const { return config_; }
  bool has_chat_template() const { return !config_.chat_templates.empty(); }
  // Whether a chat template of the folder has this name as a word of its code: a variable, or the key of a message,
  // that it does not name changes nothing.
  bool template_reads(std::string_view name) const;

  // The prompt for a conversation, a JSON array of messages. The result already holds the special tokens: encode it
  // with add_special_tokens false. `variables_json`: a JSON object with further names for the template, such as "tools"
  // or "enable_thinking".
  Result<std::string> apply_chat_template(std::string_view messages_json, bool add_generation_prompt,
                                          std::string_view variables_json = {}) const;

 private:
  friend class Grammar;
  FolderTokenizer(std::unique_ptr<TokenizerModel> model, TokenizerConfig config)
      : model_(std::move(model)), config_(std::move(config)) {}
  Status resolve_ends();

  std::unique_ptr<TokenizerModel> model_;
  TokenizerConfig config_;
  using Flag = std::atomic<const std::atomic<bool>*>;
  std::unique_ptr<Flag> interrupt_ = std::make_unique<Flag>(nullptr);
  std::optional<TextEnds> ends_;  // added around a text in place of what the model adds
};

}  // namespace situ
