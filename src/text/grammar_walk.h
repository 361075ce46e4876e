// Random answers for the tests of grammars: any token that the grammar allows, until it may end.
#pragma once

#include <gtest/gtest.h>

#include <optional>
#include <random>
#include <string>
#include <vector>

#include "text/grammar.h"
#include "text/test_models.h"
#include "text/tokenizer.h"

namespace situ::testing {

inline FolderTokenizer load_tokenizer(const nlohmann::json& model) {
  TempFolder folder;
  folder.write("tokenizer.json", model.dump());
  Result<FolderTokenizer> tokenizer = FolderTokenizer::load(folder.path());
  EXPECT_TRUE(tokenizer.is_ok()) << tokenizer.status().message();
  return std::move(tokenizer).value();
}

inline Grammar compiled(const FolderTokenizer& tokenizer, GrammarKind kind, const std::string& source) {
  Result<Grammar> grammar = Grammar::compile(tokenizer, kind, source, tokenizer.vocab_size());
  EXPECT_TRUE(grammar.is_ok()) << grammar.status().message() << "\n" << source;
  return std::move(grammar).value();
}

inline std::vector<int64_t> ids_of(std::span<const uint32_t> words) {
  std::vector<int64_t> ids;
  for (size_t id = 0; id < words.size() * 32; ++id) {
    if (words[id / 32] >> (id % 32) & 1) ids.push_back(static_cast<int64_t>(id));
  }
  return ids;
}

inline std::vector<int64_t> allowed_ids(Grammar& grammar) {
  const auto words = grammar.allowed();
  EXPECT_TRUE(words.is_ok()) << words.status().message();
  return words.is_ok() ? ids_of(*words) : std::vector<int64_t>();
}

// The ids of an answer that ends where it may, as a rule early. No value after too many tokens.
inline std::optional<std::vector<int64_t>> walk(const FolderTokenizer& tokenizer, Grammar& grammar,
                                                std::mt19937& random) {
  std::vector<int64_t> answer;
  for (int step = 0; step < 3000; ++step) {
    const std::vector<int64_t> ids = allowed_ids(grammar);
    EXPECT_EQ(ids.empty(), grammar.must_end());
    if (grammar.must_end() || (grammar.may_end() && random() % 4 == 0)) return answer;
    if (ids.empty()) return std::nullopt;
    for (const int64_t id : ids) EXPECT_FALSE(tokenizer.is_special(id)) << id;
    answer.push_back(ids[random() % ids.size()]);
    const Status status = grammar.append(answer.back());
    EXPECT_TRUE(status.is_ok()) << status.message();
  }
  return std::nullopt;
}

}  // namespace situ::testing
