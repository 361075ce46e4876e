// What the files beside tokenizer.json say: special tokens, whether bos and eos are added, chat templates.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>

#include "base/status.h"

namespace situ {

struct TokenizerConfig {
  // "bos_token" -> "<s>", and likewise eos_token, pad_token, unk_token, ...; absent when null or not set.
  std::map<std::string, std::string> special_tokens;

  // Set when the configuration, and not tokenizer.json, decides what encoding adds around a text. transformers does
  // so when either add_bos_token or add_eos_token is present (a missing one counts as false).
  struct Ends {
    bool add_bos;
    bool add_eos;
  };
  std::optional<Ends> ends;

  struct ChatTemplate {
    std::string source, file;  // what it is, and where that stands
  };
  using ChatTemplates = std::map<std::string, ChatTemplate>;
  ChatTemplates chat_templates;  // by name; the usual one is "default"

  // Reads, as far as they exist: tokenizer_config.json, special_tokens_map.json (for tokens that the former lacks) and
  // the chat templates, where files win over the text in the configuration: chat_template.jinja and
  // additional_chat_templates/*.jinja, then tokenizer_config.json, then chat_template.json.
  // A file that exists and cannot be understood is an error that names it.
  static Result<TokenizerConfig> load(const std::filesystem::path& folder);
};

}  // namespace situ
