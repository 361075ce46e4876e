#include "text/dialog/call_grammar.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <vector>

#include "text/dialog/call_bodies.h"
#include "text/dialog/lark.h"
#include "text/dialog/marks.h"
#include "text/dialog/schema_parts.h"
#include "text/dialog/schemas.h"
#include "text/dialog/shape.h"
#include "text/json_file.h"

namespace situ {
namespace {

// White space that a template writes between two parts, and a model may leave out.
constexpr const char* kSpace = "/[ \\t\\r\\n]{1,8}/";

std::string joined(std::initializer_list<std::string> parts) {
  std::string body;
  for (const std::string& part : parts)
    if (!part.empty()) body += (body.empty() ? "" : " ") + part;
  return body.empty() ? "\"\"" : body;
}

class AnswerGrammar {
 public:
  AnswerGrammar(const Form& form, std::vector<Tool> tools, const ToolChoice& choice, const SpecialToken& special)
      : form_(form), calls_(form.calls), tools_(std::move(tools)), choice_(choice), lark_(special) {}

  // `rule`: what an answer without calls must match; "": any text.
  Result<std::string> source(const std::string& rule, bool in_reasoning) {
    const std::string text = rule.empty() ? "" : lark_.rule(rule);
    const bool either = !tools_.empty() && automatic() && !text.empty();
    const std::string answer = calls_.kind == CallForm::Kind::kChannels ? channels(text)
                               : tools_.empty()                         ? text
                               : either                                 ? lark_.rule(text + " | " + calls_first())
                                                                        : marked();
    lark_.start(behind_reasoning(answer, in_reasoning));
    if (!fault_.is_ok()) return fault_;
    return lark_.source();
  }

 private:
  bool automatic() const { return choice_.kind == ToolChoice::Kind::kAuto; }
  bool more() const { return choice_.parallel && choice_.kind != ToolChoice::Kind::kNamed; }
  std::string space() { return lark_.lexeme(kSpace) + "?"; }

  std::string behind_reasoning(const std::string& answer, bool in_reasoning);
  std::string any_body();
  std::string sections_behind(bool open_read, bool call_open_read);
  std::string marked();
  std::string bare();
  std::string calls_first();
  std::string other_object();
  std::string channels(const std::string& text);

  const Form& form_;
  const CallForm& calls_;
  const std::vector<Tool> tools_;
  const ToolChoice choice_;
  Lark lark_;
  Status fault_;  // the first
};

std::string AnswerGrammar::behind_reasoning(const std::string& answer, bool in_reasoning) {
  const std::string_view open = trimmed(form_.reasoning.open), close = trimmed(form_.reasoning.close);
  if (close.empty() || calls_.kind == CallForm::Kind::kChannels) return answer;
  const std::string thought = lark_.text_to(close) + " " + space();
  if (in_reasoning) return thought + " " + answer;
  return lark_.rule(lark_.mark_first(open) + " " + thought) + "? " + answer;
}

std::string AnswerGrammar::any_body() {
  std::string bodies;
  for (const Tool& tool : tools_) {
    const Result<std::string> body = call_body(lark_, calls_, tool);
    if (body.is_ok())
      bodies += (bodies.empty() ? "" : " | ") + lark_.rule(*body);
    else if (fault_.is_ok())
      fault_ = body.status().with_context("the tool '" + tool.name + "'");
  }
  if (bodies.empty()) bodies = "\"\"";
  return lark_.rule(bodies);
}

// Calls, of whose marks the first may have been read.
std::string AnswerGrammar::sections_behind(bool open_read, bool call_open_read) {
  const std::string body = any_body();
  const std::string call = lark_.rule(joined({lark_.mark(calls_.call_open), body, lark_.mark(calls_.call_close)}));
  const std::string first = call_open_read ? joined({body, lark_.mark(calls_.call_close)}) : call;
  const std::string open = open_read ? "" : lark_.mark(calls_.open);
  // White space in a list of JSON is free.
  const bool list = calls_.kind == CallForm::Kind::kObject && trimmed(calls_.open).ends_with('[');
  const std::string gap = list ? space() : "";
  std::string others;
  if (more()) {
    const std::string between = list ? joined({lark_.mark(trimmed(calls_.between)), gap}) : lark_.mark(calls_.between);
    others = "(" + joined({between.empty() ? space() : between, call}) + ")*";
  }
  return joined({open, gap, first, others, gap, lark_.mark(list ? trimmed_left(calls_.close) : calls_.close)});
}

std::string AnswerGrammar::bare() {
  const bool object = calls_.kind == CallForm::Kind::kObject && trimmed(calls_.open + calls_.call_open).empty();
  const bool or_object = object && automatic() && !more();
  const std::string calls =
      or_object ? calls_first() + " | " + other_object() : lark_.rule(sections_behind(false, false));
  if (!automatic()) return calls;
  const std::string first = calls_.open.empty() ? "{" : std::string(trimmed(calls_.open).substr(0, 1));
  std::string text = "/[ \\t\\r\\n]*[^ \\t\\r\\n" + Lark::escaped(first) + "](?s:.*)/";
  const std::string_view open = trimmed(form_.reasoning.open);
  if (!open.empty()) text += " & ~/[ \\t\\r\\n]*" + Lark::escaped(open) + "(?s:.*)/";
  return lark_.rule("(" + lark_.lexeme(text) + " | " + calls + ")?");
}

std::string AnswerGrammar::marked() {
  if (calls_.bare()) return bare();
  const bool has_open = !trimmed(calls_.open).empty();
  // The mark as it is read: without the white space before it.
  const std::string_view mark = trimmed_left(has_open ? calls_.open : calls_.call_open);
  const std::string rest = lark_.rule(sections_behind(true, !has_open));
  if (!automatic()) return lark_.rule(joined({space(), lark_.mark(mark), rest}));
  const std::string_view open = trimmed(form_.reasoning.open);
  const std::string but =
      open.empty() || lark_.begins_special(open) ? "" : "[ \\t\\r\\n]*" + Lark::escaped(open) + "(?s:.*)";
  const std::string_view whole = trimmed(mark);
  const std::string after = lark_.mark(mark.substr(whole.size()));
  return lark_.rule("(" + lark_.text_without(whole, but) + " | " + joined({lark_.text_to(whole, but), after, rest}) +
                    ")?");
}

// A JSON object that is no call, which a text may be: what is called has its name in a text.
std::string AnswerGrammar::other_object() {
  const nlohmann::json no_name = {{"type", {"object", "array", "number", "boolean", "null"}}};
  const nlohmann::json schema = {{"type", "object"}, {"properties", {{CallShape(calls_.shape).name_key, no_name}}}};
  return lark_.rule("%json " + schema.dump());
}

// Calls where another text may stand in their place. Of an object without a mark the text may begin alike: then the
// whole object is one schema, whose parts are told apart as late as they differ.
std::string AnswerGrammar::calls_first() {
  if (calls_.bare() && calls_.kind == CallForm::Kind::kObject && trimmed(calls_.open + calls_.call_open).empty()) {
    std::string bodies;
    for (const Tool& tool : tools_)
      bodies += (bodies.empty() ? "" : " | ") + lark_.rule("%json " + object_call_schema(calls_, tool));
    return lark_.rule(bodies);
  }
  if (calls_.bare()) return lark_.rule(sections_behind(false, false));
  const bool has_open = !trimmed(calls_.open).empty();
  const std::string_view mark = trimmed_left(has_open ? calls_.open : calls_.call_open);
  const std::string_view whole = trimmed(mark);
  const std::string after = lark_.mark(mark.substr(whole.size())), rest = sections_behind(true, !has_open);
  return lark_.rule(joined({lark_.mark_first(whole), after, rest}));
}

// <|channel|>analysis<|message|>...<|end|><|start|>assistant, then a text or a call.
std::string AnswerGrammar::channels(const std::string& text) {
  const std::string message = lark_.mark("<|message|>"),
                    end = lark_.text_to("<|end|>") + " " + lark_.mark("<|start|>assistant");
  const std::string thought = lark_.rule(joined({lark_.mark("<|channel|>analysis"), message, end}));
  const std::string comment = lark_.rule(joined({lark_.mark("<|channel|>commentary"), message, end}));
  const std::string call = tools_.empty() ? "" : any_body();
  const std::string before = "(" + thought + " | " + comment + ")*";
  if (!automatic()) return before + " " + call;
  const std::string final_text = lark_.rule(
      joined({lark_.mark("<|channel|>final"), message, text.empty() ? lark_.text_without("<|end|>") + "?" : text}));
  return before + " (" + final_text + (call.empty() ? "" : " | " + call) + ")";
}

}  // namespace

SpecialToken special_tokens_of(const FolderTokenizer& tokenizer) {
  return [&](std::string_view text) -> std::optional<int64_t> {
    const std::optional<int64_t> id = tokenizer.token_to_id(text);
    return id && tokenizer.is_special(*id) ? id : std::nullopt;
  };
}

Result<std::string> call_grammar(const Form& form, std::span<const Tool> tools, const ToolChoice& choice,
                                 bool in_reasoning, const SpecialToken& special, const std::string& rule) {
  std::vector<Tool> chosen(tools.begin(), tools.end());
  if (choice.kind == ToolChoice::Kind::kNamed)
    std::erase_if(chosen, [&](const Tool& tool) { return tool.name != choice.name; });
  if (chosen.empty())
    return Status::error(Code::kInvalidArgument,
                         choice.kind == ToolChoice::Kind::kNamed
                             ? "tool_choice names '" + choice.name + "', which is none of the tools"
                             : "there are no tools to call");
  for (const Tool& tool : chosen) {
    if (!tool.parameters_json.empty() && !nlohmann::json::parse(tool.parameters_json, nullptr, false).is_object())
      return Status::error(Code::kInvalidArgument, "the parameters of the tool '" + tool.name + "' are no JSON schema");
    if ((SchemaParts::types_of(schema_of(tool)) & kObjects) == 0)
      return Status::error(Code::kInvalidArgument,
                           "the parameters of the tool '" + tool.name + "' allow no object, which arguments are");
  }
  return AnswerGrammar(form, std::move(chosen), choice, special).source(rule, in_reasoning);
}

std::string grammar_behind_reasoning(const Form& form, const std::string& rule, bool in_reasoning,
                                     const SpecialToken& special) {
  return AnswerGrammar(form, {}, {}, special).source(rule, in_reasoning).value();  // tools alone have faults
}

}  // namespace situ
