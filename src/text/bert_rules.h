// What a BertNormalizer does to a text: tokenizer.json says it, and for some classes transformers takes what
// tokenizer_config.json says instead.
#pragma once

#include <filesystem>
#include <optional>

#include "base/status.h"

namespace situ {

struct BertRules {
  bool lower = true;            // do_lower_case
  std::optional<bool> accents;  // strip_accents; none: as `lower` says
  std::optional<bool> han;      // tokenize_chinese_chars; none: as tokenizer.json says
};

// Of the folder's class of tokenizers; none: it is no such class. What a file does not say is as the class has it.
// Error: a file that cannot be understood.
Result<std::optional<BertRules>> bert_rules(const std::filesystem::path& folder);

}  // namespace situ
