// Scores of pairs by a decoder: the logit of a token behind both texts, as the module LogitScore of
// sentence-transformers takes it.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>

#include "pipelines/text_inputs.h"

namespace situ {

class LogitScorer {
 public:
  // `folder` and `tokenizer` (or null) must outlive the object. `most`: tokens that the model takes. Errors: those of
  // the folder's files; token ids beyond `vocabulary`.
  static Result<std::unique_ptr<LogitScorer>> create(const ModelFolder& folder, const FolderTokenizer* tokenizer,
                                                     int64_t most, int64_t vocabulary);

  // Logits behind the last of these tokens, valid until the next call.
  using LogitsOf = std::function<Result<std::span<const float>>(std::span<const int64_t> ids)>;
  // Errors name the pair by its number; those of `logits_of`.
  Result<PairScores> score(std::span<const TextPair> pairs, const EmbedOptions& options,
                           const LogitsOf& logits_of) const;

 private:
  LogitScorer(const ModelFolder& folder, const FolderTokenizer* tokenizer) : folder_(folder), tokenizer_(tokenizer) {}

  const ModelFolder& folder_;
  const FolderTokenizer* tokenizer_;
  SentenceFiles files_;
  Activation activation_ = Activation::kIdentity;
  std::string note_;
  int64_t most_ = 0;
};

}  // namespace situ
