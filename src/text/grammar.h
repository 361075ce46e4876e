// What an answer must match, token by token: a JSON schema, a regular expression or a Lark grammar.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "base/status.h"

struct situ_text_grammar;

namespace situ {

class FolderTokenizer;

enum class GrammarKind {
  kJsonSchema,  // draft 2020-12 and what older drafts share with it; properties come in the order of the schema
  kRegex,       // the syntax of the Rust crate regex, where \d is any digit of Unicode; the whole answer matches
  kLark,        // llguidance's variant of Lark, with the rule `start`
  kAnswer,      // the same, in which special tokens are <[id]>: of the library's own making (dialog/call_grammar.h)
};

// A grammar and how far an answer has come in it. Move-only; used by one thread at a time.
class Grammar {
 public:
  // vocabulary: the width of the model's logits, which may be wider or narrower than the tokenizer's vocabulary.
  // The first grammar for a tokenizer and a width builds what the next ones share: 0.2 s and 22 MB for 49,152 tokens.
  // After that a schema takes some ms, and each call below some tens of us.
  // Errors name what is wrong, of a schema with its place (#/properties/a): the source is no valid schema, expression
  // or grammar; a keyword, format or feature is not supported; no answer can match; it is too large; the tokens of the
  // tokenizer have no bytes of their own (its decoder looks at their neighbours). Nothing is left out in silence but
  // annotations: those of JSON Schema, OpenAPI's (nullable, the formats of numbers, byte, binary, password), x-*,
  // propertyOrdering, markdownDescription. Nothing but `source` is read.
  static Result<Grammar> compile(const FolderTokenizer& tokenizer, GrammarKind kind, std::string_view source,
                                 int64_t vocabulary);

  // The same errors without a model: those of the source alone, found with a token for each byte.
  static Status check(GrammarKind kind, std::string_view source);

  // Goes on alone from here, on another thread if need be.
  Result<Grammar> fork() const;

  // Which ids may come next: bit (id % 32) of word id / 32, [ceil(vocabulary / 32)] words, valid until the next call.
  // Special tokens are in it only where a grammar of kAnswer names them, and never the ids that end an answer: see
  // may_end. No bit at all: must_end.
  // Errors: the grammar takes too many steps here; no token of the vocabulary goes on with a text that matches.
  Result<std::span<const uint32_t>> allowed();

  // The text so far is a whole match.
  bool may_end() const;
  // It is, and nothing can follow.
  bool must_end() const;

  // An id that is not allowed is an error and changes nothing.
  Status append(int64_t id);
  // Takes back the last so many appended ids.
  Status rewind(int64_t tokens);

 private:
  struct Free {
    void operator()(situ_text_grammar* handle) const;
  };
  explicit Grammar(situ_text_grammar* handle) : handle_(handle) {}

  std::unique_ptr<situ_text_grammar, Free> handle_;
};

}  // namespace situ
