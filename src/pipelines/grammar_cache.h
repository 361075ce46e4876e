// Grammars that were compiled for a model, by their source: a program asks for the same few again and again.
#pragma once

#include <list>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "situ/generate.h"
#include "text/grammar.h"

namespace situ {

// Any thread may call it.
class GrammarCache {
 public:
  // The grammar that the options ask for, at its beginning, or none. `answer`: one of GrammarKind::kAnswer, in place of
  // theirs, and the option that errors name. Errors name the option and what is wrong.
  struct OfAnswer {
    std::string source, option;
  };
  Result<std::optional<Grammar>> get(const GenerateOptions& options, const OfAnswer& answer,
                                     const FolderTokenizer* tokenizer, int64_t vocabulary);

 private:
  static constexpr size_t kMost = 32, kMostBytes = 4 << 20;  // of sources
  struct Entry {
    GrammarKind kind;
    std::string source;
    Grammar grammar;
  };
  std::mutex mutex_;
  std::list<Entry> entries_;  // used lately first
};

}  // namespace situ
