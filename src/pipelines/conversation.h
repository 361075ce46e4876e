// Conversations as prompts: messages by the chat template, whose own control tokens are read as such, while texts of
// messages are ordinary text.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "pipelines/llm.h"

namespace situ {

// A message as the template gets it: {"role", "content", ...}.
struct Turn {
  nlohmann::ordered_json message;
  // Whether special tokens in its texts are control tokens; not given: in an assistant's, which may have written them.
  std::optional<bool> parse_special = {};
};

struct TemplateOptions {
  bool add_generation_prompt = true;
  std::string variables_json = {};  // an object: "enable_thinking", ...
};

// A prompt before its media are expanded and it is encoded.
struct PromptText {
  std::string text;
  char32_t mark = 0;      // see Tokenizer::encode
  bool templated = true;  // it has the special tokens that begin a text
};

// Errors: there is no template; the template's own.
Result<PromptText> render_conversation(const Model::Impl& model, std::vector<Turn> turns,
                                       const TemplateOptions& options = {});
Result<std::vector<int64_t>> encode_prompt(const Model::Impl& model, const PromptText& prompt);
// The same, with the expansions of the images where their placeholders stand.
Result<std::vector<int64_t>> encode_prompt(const Model::Impl& model, const PromptText& prompt, const Images& images);
// What is put into a text for a sound, before expand_sounds().
std::string insertion_of(const Sounds& sounds);

}  // namespace situ
