// Conversations as prompts: messages by the chat template, whose own control tokens are read as such, while texts of
// messages are ordinary text.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "pipelines/dialogs.h"
#include "situ/tokenizer.h"
#include "text/tokenizer.h"

namespace situ {

// A prompt before its media are expanded and it is encoded.
struct PromptText {
  std::string text;
  char32_t mark = 0;       // see FolderTokenizer::encode
  bool templated = true;   // it has the special tokens that begin a text
  std::string sound = {};  // stands where a sound of a message does; "": there are none
};

// `tokenizer` has a chat template. `dialog`: the conversation is made as its form wants it, with its tools; null: the
// template gets what there is. Errors: a text that is not UTF-8; JSON that is none; the template's own.
Result<PromptText> render_conversation(const FolderTokenizer& tokenizer, std::span<const Message> messages,
                                       const ChatOptions& options, const Dialog* dialog = nullptr);
// `most`: see FolderTokenizer::encode.
Result<std::vector<int64_t>> encode_prompt(const FolderTokenizer& tokenizer, const PromptText& prompt,
                                           int64_t most = 0);

}  // namespace situ
