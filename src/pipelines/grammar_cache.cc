#include "pipelines/grammar_cache.h"

#include <algorithm>

#include "text/tokenizer.h"

namespace situ {

Result<std::optional<Grammar>> GrammarCache::get(const GenerateOptions& options, const OfAnswer& answer,
                                                 const FolderTokenizer* tokenizer, int64_t vocabulary) {
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
      return Status::wrong_option(s.name, std::string(wanted->name) + " and " + s.name + ": an answer has one grammar");
    wanted = &s;
  }
  const std::optional<std::string> of_answer = answer.source;
  const Source made{answer.option.c_str(), GrammarKind::kAnswer, of_answer};
  if (!answer.source.empty()) wanted = &made;
  if (!wanted) return std::optional<Grammar>();
  if (!tokenizer)
    return Status::error(Code::kNotFound, std::string(wanted->name) +
                                              ": the model has no tokenizer.json, which says what its tokens spell")
        .or_option(wanted->name);
  const auto fork = [&](const Grammar& grammar) -> Result<std::optional<Grammar>> {
    Result<Grammar> own = grammar.fork();
    if (!own.is_ok()) return own.status().with_context(wanted->name).or_option(wanted->name);
    return std::optional<Grammar>(std::move(*own));
  };
  {
    const std::lock_guard held(mutex_);
    const auto found = std::find_if(entries_.begin(), entries_.end(), [&](const Entry& e) {
      return e.kind == wanted->kind && e.source == *wanted->text;
    });
    if (found != entries_.end()) {
      entries_.splice(entries_.begin(), entries_, found);
      return fork(found->grammar);
    }
  }
  for (const Source& s : sources)  // that the answer's has as parts: what is wrong with one alone names its option
    if (s.text && !answer.source.empty())
      if (const Status own = Grammar::check(s.kind, *s.text); !own.is_ok())
        return own.with_context(s.name).or_option(s.name);
  Result<Grammar> grammar = Grammar::compile(*tokenizer, wanted->kind, *wanted->text, vocabulary);
  if (!grammar.is_ok()) return grammar.status().with_context(wanted->name).or_option(wanted->name);
  Result<std::optional<Grammar>> own = fork(*grammar);
  const std::lock_guard held(mutex_);
  entries_.push_front({wanted->kind, *wanted->text, std::move(*grammar)});
  const auto bytes = [&] {
    size_t sum = 0;
    for (const Entry& e : entries_) sum += e.source.size();
    return sum;
  };
  while (entries_.size() > kMost || bytes() > kMostBytes) entries_.pop_back();
  return own;
}

}  // namespace situ
