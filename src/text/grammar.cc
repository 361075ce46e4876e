#include "text/grammar.h"

#include <nlohmann/json.hpp>
#include <string>

#include "text/byte_alphabet.h"
#include "text/owned_text.h"
#include "text/tokenizer.h"

namespace situ {

void Grammar::Free::operator()(situ_text_grammar* handle) const { situ_text_grammar_free(handle); }

Result<Grammar> Grammar::compile(const FolderTokenizer& tokenizer, GrammarKind kind, std::string_view source,
                                 int64_t vocabulary) {
  if (vocabulary < 0) return Status::error("grammar: a vocabulary of " + std::to_string(vocabulary) + " tokens");
  if (!tokenizer.model_->handle()) return Status::error("grammar: the tokens of a tokenizer.json are needed");
  situ_text_grammar* handle = nullptr;
  OwnedText error;
  if (situ_text_grammar_create(tokenizer.model_->handle(), static_cast<int>(kind), source.data(), source.size(),
                               static_cast<size_t>(vocabulary), &handle, error.get()) != 0) {
    return error.status();
  }
  return Grammar(handle);
}

// A tokenizer.json with a token for each byte.
static std::string bytes_tokenizer() {
  const nlohmann::json level{
      {"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", false}};
  nlohmann::json vocabulary = nlohmann::json::object();
  for (int byte = 0; byte < 256; ++byte) vocabulary[byte_symbol(byte)] = byte;
  return nlohmann::json{{"version", "1.0"},
                        {"added_tokens", nlohmann::json::array()},
                        {"truncation", nullptr},
                        {"padding", nullptr},
                        {"normalizer", nullptr},
                        {"post_processor", nullptr},
                        {"pre_tokenizer", level},
                        {"decoder", level},
                        {"model",
                         {{"type", "BPE"},
                          {"vocab", vocabulary},
                          {"merges", nlohmann::json::array()},
                          {"unk_token", nullptr},
                          {"byte_fallback", false}}}}
      .dump();
}

Status Grammar::check(GrammarKind kind, std::string_view source) {
  constexpr size_t kBytes = 256;
  const std::string json = bytes_tokenizer();
  situ_text_tokenizer* bytes = nullptr;
  situ_text_grammar* handle = nullptr;
  OwnedText error;
  if (situ_text_tokenizer_create_from(json.data(), json.size(), nullptr, &bytes, error.get()) != 0)
    return error.status();
  const int failed = situ_text_grammar_create(bytes, static_cast<int>(kind), source.data(), source.size(), kBytes,
                                              &handle, error.get());
  situ_text_grammar_free(handle);
  situ_text_tokenizer_free(bytes);
  return failed ? error.status() : Status::ok();
}

Result<Grammar> Grammar::fork() const {
  situ_text_grammar* handle = nullptr;
  OwnedText error;
  if (situ_text_grammar_fork(handle_.get(), &handle, error.get()) != 0) return error.status();
  return Grammar(handle);
}

Result<std::span<const uint32_t>> Grammar::allowed() {
  const uint32_t* words = nullptr;
  size_t count = 0;
  OwnedText error;
  if (situ_text_grammar_allowed(handle_.get(), &words, &count, error.get()) != 0) return error.status();
  return std::span<const uint32_t>(words, count);
}

bool Grammar::may_end() const { return situ_text_grammar_may_end(handle_.get()); }

bool Grammar::must_end() const { return situ_text_grammar_must_end(handle_.get()); }

Status Grammar::append(int64_t id) {
  OwnedText error;
  if (situ_text_grammar_append(handle_.get(), id, error.get()) != 0) return error.status();
  return Status::ok();
}

Status Grammar::rewind(int64_t tokens) {
  if (tokens < 0) return Status::error("grammar: " + std::to_string(tokens) + " tokens cannot be taken back");
  OwnedText error;
  if (situ_text_grammar_rewind(handle_.get(), static_cast<size_t>(tokens), error.get()) != 0) return error.status();
  return Status::ok();
}

}  // namespace situ
