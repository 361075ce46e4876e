// Texts and pairs of texts as sentence-transformers hands them to its tokenizer: prompts, small letters, the chat
// template, and how many tokens are taken.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "pipelines/model_folder.h"
#include "pipelines/sentence_files.h"
#include "situ/generation.h"
#include "text/tokenizer.h"

namespace situ {

class TextInputs {
 public:
  // All must outlive the object. `most`: tokens of a text.
  TextInputs(const ModelFolder& folder, const FolderTokenizer& tokenizer, const SentenceFiles& files, int64_t most)
      : folder_(folder), tokenizer_(tokenizer), files_(files), most_(most) {}

  // What stands in front of a text. Errors: no prompt has this name; a prompt and a name.
  static Result<std::string> prompt_of(const ModelFolder& folder, const SentenceFiles& files,
                                       const EmbedOptions& options);
  // Of a prompt that pooling leaves out; a special token at its end is the text's.
  Result<int64_t> prompt_tokens(const std::string& prompt) const;
  // Of one text or of a pair, with the prompt in front of the first. `number`: for errors and notes, from 0 on. Errors:
  // no tokens; a chat template that leaves out a text of a pair.
  Result<EncodedTexts> tokens_of(std::span<const std::string> texts, const std::string& prompt, size_t number,
                                 std::vector<std::string>* notes) const;
  // Of pairs, whose figures and notes are added to `made`. Errors: those of tokens_of().
  Result<std::vector<EncodedTexts>> tokens_of_pairs(std::span<const TextPair> pairs, const std::string& prompt,
                                                    PairScores* made) const;
  // Refuses what no pairs can be scored with. `tokenizer`: null: there is none.
  static Status check_pairs(const ModelFolder& folder, const FolderTokenizer* tokenizer,
                            std::span<const TextPair> pairs, const EmbedOptions& options);

 private:
  Result<std::string> prepared(const std::string& text) const;
  Result<EncodedTexts> plain(std::span<const std::string> texts, const std::string& prompt) const;
  Result<EncodedTexts> templated(std::span<const std::string> texts, const std::string& prompt) const;
  Result<std::string> rendered(std::span<const std::string> texts, const std::string& prompt) const;
  Result<std::vector<int64_t>> template_end(size_t texts, const std::string& prompt) const;

  const ModelFolder& folder_;
  const FolderTokenizer& tokenizer_;
  const SentenceFiles& files_;
  const int64_t most_;
};

}  // namespace situ
