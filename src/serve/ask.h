// What a call asks for, whatever protocol said it: no JSON, no protocol.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "pipelines/dialogs.h"
#include "serve/ignored.h"
#include "situ/model.h"

namespace situ::serve {

// A prompt of completions: a text, or token ids.
using TextPrompt = std::variant<std::string, std::vector<int64_t>>;

struct Ask {
  std::string model;  // as the body has it; "": it has none
  // A conversation (`messages` and `chat` of a Prompt), or prompts, each of which is answered.
  std::variant<Prompt, std::vector<TextPrompt>> input;
  bool add_special = true;          // of texts: the tokens that begin and end them
  GenerateOptions options;          // of all prompts
  std::optional<int> priority;      // none: 0
  int64_t choices = 1;              // answers to each prompt
  std::optional<int64_t> logprobs;  // alternatives for each token
  std::optional<int64_t> prompt_logprobs;
  bool echo = false;
  bool stream = false, include_usage = false;
  std::vector<Tool> tools;
  std::vector<std::string> fields_of_tools;  // that have their schemas
  ToolChoice tool_choice;
  bool shows_reasoning = true;  // the answer tells reasoning apart from text

  const Model* by = nullptr;  // that it was read for
  // The field of the body that says an option, by the option's name in GenerateOptions.
  std::map<std::string, std::string> fields_of_options;
  std::string prompt_field = {};  // that has the prompt, or should have it
  Ignored ignored;
  bool any_length = false;  // the tokens are counted, not computed: the context may hold fewer

  // What is said of a prompt later; by requests_of().
  struct Asked {
    int64_t tokens = 0, decoder_tokens = 0;  // the second: of an encoder-decoder, what the answer follows
    int64_t first = -1;                      // token id; -1: there is none
  };
  std::vector<Asked> prompts;
  Dialog dialog = {};  // how the text of an answer is read; by requests_of()
};

}  // namespace situ::serve
