// Answers that a grammar allows.
#pragma once

#include "fuzz_input.h"
#include "text/grammar_walk.h"

namespace situ::fuzz {

// Compiles a grammar and appends up to 40 tokens that it allows. The text, where it is a whole answer.
inline std::optional<std::string> answer(GrammarKind kind, const std::string& source) {
  static const FolderTokenizer tokenizer = testing::load_tokenizer(testing::byte_level_tokenizer());
  Result<Grammar> grammar = Grammar::compile(tokenizer, kind, source, tokenizer.vocab_size());
  if (refused(grammar.status())) return std::nullopt;
  std::mt19937 random(1);
  std::vector<int64_t> taken;
  while (taken.size() < 40 && !(taken.size() > 10 && grammar->may_end())) {
    const Result<std::span<const uint32_t>> words = grammar->allowed();
    if (refused(words.status())) return std::nullopt;
    const std::vector<int64_t> ids = testing::ids_of(*words);
    EXPECT_EQ(ids.empty(), grammar->must_end());
    if (ids.empty()) break;
    taken.push_back(ids[random() % ids.size()]);
    if (refused(grammar->append(taken.back()))) return std::nullopt;
  }
  if (!grammar->may_end()) return std::nullopt;
  const Result<std::string> text = tokenizer.decode(taken, false);
  EXPECT_TRUE(text.is_ok()) << text.status().message();
  return *text;
}

}  // namespace situ::fuzz
