// What the files beside tokenizer.json say: special tokens, whether bos and eos are added, chat templates.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

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

  // tokenizer_class, without "Fast"; else config.json's, else that of its model_type where languages or the reading of
  // vocab.json and merges.txt depend on it.
  std::string tokenizer_class;
  std::vector<std::string> additional_special_tokens;
  // added_tokens_decoder, by id.
  struct AddedToken {
    std::string text;
    bool special = false, lstrip = false, rstrip = false, normalized = false, single_word = false;
  };
  std::map<int64_t, AddedToken> added_tokens;
  std::string source_language;    // src_lang; "" when not set
  bool legacy_behaviour = false;  // of NLLB
  bool separate_vocabs = false;   // of Marian: target_vocab.json too
  std::optional<bool> add_prefix_space;
  // -- of encoders of whole texts
  bool cuts_left = false;        // truncation_side: long texts lose their beginning
  int64_t model_max_length = 0;  // tokens of the longest text; 0: not said
  bool has_token_types = true;   // model_input_names, where they are given, have token_type_ids

  struct ChatTemplate {
    std::string source, file;  // what it is, and where that stands
  };
  using ChatTemplates = std::map<std::string, ChatTemplate>;
  ChatTemplates chat_templates;  // by name; the usual one is "default"

  // Reads, as far as they exist: tokenizer_config.json (else config.json says the class), special_tokens_map.json (for
  // tokens that the former lacks) and the chat templates, where files win over the text in the configuration:
  // chat_template.jinja and additional_chat_templates/*.jinja, then tokenizer_config.json, then chat_template.json. A
  // file that exists and cannot be understood is an error that names it.
  static Result<TokenizerConfig> load(const std::filesystem::path& folder);
};

}  // namespace situ
