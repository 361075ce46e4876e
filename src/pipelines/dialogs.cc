#include "pipelines/dialogs.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/assign.h"
#include "dialog/call_grammar.h"
#include "dialog/find_form.h"
#include "requests/text_output.h"
#include "text/json_file.h"
#include "text/tokenizer.h"

namespace situ {
namespace {

// A regular expression as a part of a Lark grammar, where // begins a comment.
std::string rule_of_regex(const std::string& regex) {
  std::string rule = "/";
  for (size_t i = 0; i < regex.size(); ++i) {
    if (regex[i] == '\\' && i + 1 < regex.size())
      rule += regex[i++];
    else if (regex[i] == '/')
      rule += '\\';
    rule += regex[i];
  }
  return regex.empty() ? "/(?:)/" : rule + "/";
}

// A schema as a part of a Lark grammar, which does not take the name of the schema's own language.
std::string rule_of_schema(const std::string& schema) {
  nlohmann::ordered_json json = nlohmann::ordered_json::parse(schema, nullptr, false);
  if (!json.is_object() || json.erase("$schema") == 0) return "%json " + schema;
  return "%json " + json_text(json);
}

std::string text_or_none(const Result<std::string>& text) { return text.is_ok() ? *text : std::string(); }

bool is_reasoning(const DialogEvent& event) { return std::holds_alternative<ReasoningPiece>(event); }

}  // namespace

ModelForm form_of(const FolderTokenizer& tokenizer) {
  ModelForm made{find_form(tokenizer), {}};
  for (const std::string& mark : made.form.marks()) {
    const Result<std::vector<int64_t>> ids = tokenizer.encode(mark, false);
    for (const int64_t id : ids.is_ok() ? *ids : std::vector<int64_t>())
      if (tokenizer.is_special(id)) made.shown.push_back(id);
  }
  std::sort(made.shown.begin(), made.shown.end());
  made.shown.erase(std::unique(made.shown.begin(), made.shown.end()), made.shown.end());
  return made;
}

Result<GrammarCache::OfAnswer> grammar_of(const Dialog& dialog, const GenerateOptions& options,
                                          const FolderTokenizer& tokenizer) {
  GrammarCache::OfAnswer grammar;
  if (!dialog.form) return grammar;
  const Form& form = dialog.form->form;
  const SpecialToken special = special_tokens_of(tokenizer);
  if (!dialog.tools.empty()) {
    const char* other = options.json_schema ? "json_schema"
                        : options.regex     ? "regex"
                        : options.grammar   ? "grammar"
                                            : "";
    if (*other != 0 && dialog.choice.kind == ToolChoice::Kind::kAuto)
      return Status::wrong_option(other, std::string(other) + " and tools: an answer has one grammar");
    grammar.option = "tools";
    SITU_RETURN_IF_ERROR(
        assign(&grammar.source, call_grammar(form, dialog.tools, dialog.choice, dialog.in_reasoning, special)));
    return grammar;
  }
  if (!form.reasons() || form.calls.kind == CallForm::Kind::kChannels) return grammar;
  const std::string rule = options.json_schema ? rule_of_schema(*options.json_schema)
                           : options.regex     ? rule_of_regex(*options.regex)
                                               : std::string();
  if (rule.empty()) return grammar;
  return GrammarCache::OfAnswer{grammar_behind_reasoning(form, rule, dialog.in_reasoning, special),
                                options.json_schema ? "json_schema" : "regex"};
}

std::string text_of_answer(const Dialog& dialog, const FolderTokenizer& tokenizer, std::span<const int64_t> ids) {
  TextOutput output(&tokenizer, {}, dialog.form->shown);
  std::string text;
  for (const int64_t id : ids) text += text_or_none(output.push(id));
  return text + text_or_none(output.finish());
}

// Tokens before the reasoning that are not yet known to be a part of it count as soon as that is known.
int64_t reasoning_tokens(const Dialog& dialog, const FolderTokenizer& tokenizer, std::span<const int64_t> ids) {
  if (!dialog.form->form.reasons()) return 0;
  TextOutput output(&tokenizer, {}, dialog.form->shown);
  AnswerReader reader = dialog.reader();
  int64_t count = 0, held = 0;
  bool inside = reader.in_reasoning();
  for (const int64_t id : ids) {
    const std::vector<DialogEvent> events = reader.push(text_or_none(output.push(id)));
    const bool was = std::exchange(inside, reader.in_reasoning());
    const bool any = std::any_of(events.begin(), events.end(), is_reasoning);
    ++held;
    if (was || inside || any)
      count += std::exchange(held, 0);
    else if (!events.empty())
      held = 0;
  }
  return count;
}

}  // namespace situ
