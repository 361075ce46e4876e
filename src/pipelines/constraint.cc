#include "pipelines/constraint.h"

#include "text/tokenizer.h"

namespace situ {

Result<Constraint::Next> Constraint::next() {
  thread_.wait(thread_.posted());
  if (!status_.is_ok()) return status_;
  return next_;
}

void Constraint::look_ahead(std::optional<int64_t> token) {
  thread_.post([this, token] {
    if (token && status_.is_ok()) status_ = grammar_.append(*token);
    if (!status_.is_ok()) return;
    const Result<std::span<const uint32_t>> allowed = grammar_.allowed();
    if (!allowed.is_ok())
      status_ = allowed.status();
    else
      next_ = {*allowed, grammar_.may_end(), grammar_.must_end()};
  });
}

Result<std::optional<Grammar>> compile_constraint(const GenerateOptions& options, const Tokenizer* tokenizer,
                                                  int64_t vocabulary) {
  struct Source {
    const char* name;
    GrammarKind kind;
    const std::optional<std::string>& text;
  };
  const Source* wanted = nullptr;
  const Source sources[] = {{"json_schema", GrammarKind::kJsonSchema, options.json_schema},
                            {"regex", GrammarKind::kRegex, options.regex},
                            {"grammar", GrammarKind::kLark, options.grammar}};
  for (const Source& s : sources) {
    if (!s.text) continue;
    if (wanted)
      return Status::error(Code::kInvalidArgument,
                           std::string(wanted->name) + " and " + s.name + ": an answer has one grammar");
    wanted = &s;
  }
  if (!wanted) return std::optional<Grammar>();
  if (!tokenizer)
    return Status::error(
        Code::kInvalidArgument,
        std::string(wanted->name) + ": the model has no tokenizer.json, which says what its tokens spell");
  Result<Grammar> grammar = Grammar::compile(*tokenizer, wanted->kind, *wanted->text, vocabulary);
  if (!grammar.is_ok()) return grammar.status().with_context(wanted->name);
  return std::optional<Grammar>(std::move(*grammar));
}

}  // namespace situ
