// From the ids of an answer to the text that the caller sees: whole characters, nothing of a stop string.
#pragma once

#include <optional>
#include <span>

#include "text/decode_stream.h"
#include "text/stop_strings.h"

namespace situ {

class TextOutput {
 public:
  // `tokenizer`: null where there is none; every text is then empty.
  // `shown`: special tokens whose text is part of the answer's all the same; must outlive it.
  TextOutput(const FolderTokenizer* tokenizer, const std::vector<std::string>& stop,
             std::span<const int64_t> shown = {})
      : tokenizer_(tokenizer), shown_(shown), stop_(stop) {
    if (tokenizer) stream_.emplace(*tokenizer);
  }
  // The prompt's text, before any push(): what follows is then decoded as its continuation. Stop strings in it do not
  // count.
  Result<std::string> echo(std::span<const int64_t> prompt);
  // The text that became certain by this id.
  Result<std::string> push(int64_t id);
  // The rest of it, unless a stop string has ended it.
  Result<std::string> finish();
  // Whether a stop string has come. Nothing comes after it.
  bool stopped() const { return stop_.stopped(); }

 private:
  Result<std::string> decoded(int64_t id);

  const FolderTokenizer* tokenizer_;
  std::span<const int64_t> shown_;
  std::optional<DecodeStream> stream_;
  StopStrings stop_;
};

}  // namespace situ
