// vocab.json and merges.txt, which the Python classes of transformers read, as a tokenizer.json.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "base/status.h"
#include "text/tokenizer_config.h"

namespace situ {

// Whether the files are of a class that read_slow_tokenizer knows: those that write bytes in GPT-2's alphabet. No class
// at all is GPT-2's.
bool is_slow_class(const std::filesystem::path& folder, const TokenizerConfig& config);

struct SlowTokenizer {
  std::string json;  // tokenizer.json
  // A space in front of a text, once, as these classes add it; tokenizer.json would add one behind added tokens too.
  enum class Space { kNone, kAlways, kUnlessThere } space = Space::kNone;
  // Stands for characters that no token spells, where neither the vocabulary nor an unknown token has them; -1: none.
  int64_t nothing = -1;
  std::vector<std::string> added;  // the texts of added tokens
  std::string spelled;             // bytes that tokens spell, of those that a text may have
};

// Reads vocab.json, merges.txt, and added_tokens.json where there is one and tokenizer_config.json has no
// added_tokens_decoder. `config`: of the folder; it gets the special tokens that the class has without being told.
Result<SlowTokenizer> read_slow_tokenizer(const std::filesystem::path& folder, TokenizerConfig& config);

}  // namespace situ
