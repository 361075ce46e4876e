// What a FolderTokenizer rests on: tokenizer.json, or vocab.json and merges.txt, or SentencePiece models with a
// vocabulary beside them.
#pragma once

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

namespace situ {

class Stop;

// What an encoder reads of one text or of two.
struct EncodedTexts {
  std::vector<int64_t> ids, types;  // types: of which text each token is
  bool cut = false;                 // there were more tokens than were wanted
};
// Ids of one text or of two, joined with `ends` around each; cut as transformers does by "longest_first".
struct TextEnds {
  std::vector<int64_t> first, last;
};
Result<EncodedTexts> join_texts(std::vector<std::vector<int64_t>> texts, const TextEnds& ends, int64_t most,
                                bool cut_left);

// The functions are those of FolderTokenizer, and `stop` says when the caller does not wait any more; const ones may be
// called by any number of threads at once.
class TokenizerModel {
 public:
  virtual ~TokenizerModel() = default;
  virtual Result<std::vector<int64_t>> encode(std::string_view text, bool add_special_tokens, char32_t mark,
                                              int64_t most, const Stop& stop) const = 0;
  // What FolderTokenizer::encode_texts is, with the model's own special tokens.
  virtual Result<EncodedTexts> encode_texts(std::span<const std::string_view> texts, int64_t most, bool cut_left,
                                            const Stop& stop) const;
  virtual Result<std::string> break_special(std::string_view text, char32_t mark) const = 0;
  virtual Result<std::string> decode(std::span<const int64_t> ids, bool skip_special_tokens,
                                     const Stop& stop) const = 0;
  virtual std::optional<int64_t> token_to_id(std::string_view token) const = 0;
  virtual std::optional<std::string> id_to_token(int64_t id) const = 0;
  // None: there is no such token, or its text depends on its neighbours.
  virtual std::optional<std::string> bytes_of(int64_t) const { return std::nullopt; }
  virtual bool is_special(int64_t id) const = 0;
  virtual bool is_left_out(int64_t id) const { return is_special(id); }
  virtual int64_t vocab_size() const = 0;
  virtual int64_t longest_token() const { return 0; }
  virtual int64_t spelled_bytes(std::string_view text) const { return std::ssize(text); }
  // For grammars; null: there are none.
  virtual const situ_text_tokenizer* handle() const { return nullptr; }
};

// By tokenizer.json.
Result<std::unique_ptr<TokenizerModel>> load_json_tokenizer(const std::filesystem::path& file);

// By vocab.json and merges.txt (slow_tokenizer.h). `config`: of the folder; it gets the special tokens of the class.
Result<std::unique_ptr<TokenizerModel>> load_slow_tokenizer(const std::filesystem::path& folder,
                                                            TokenizerConfig& config);

// By SentencePiece models. Their files: source.spm, target.spm and vocab.json (Marian); sentencepiece.bpe.model and
// vocab.json (M2M100); sentencepiece.bpe.model alone, whose ids are fairseq's (mBART, NLLB). `config`: of the folder.
Result<std::unique_ptr<TokenizerModel>> load_piece_tokenizer(const std::filesystem::path& folder,
                                                             const TokenizerConfig& config);

}  // namespace situ
