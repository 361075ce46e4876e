#include "pipelines/dialogs.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/assign.h"
#include "base/random_id.h"
#include "requests/text_output.h"
#include "situ/tools.h"
#include "text/dialog/call_grammar.h"
#include "text/dialog/find_form.h"
#include "text/json_file.h"
#include "text/ordered_json.h"
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
  nlohmann::ordered_json json = ordered_json_of(schema);
  if (!json.is_object() || json.erase("$schema") == 0) return "%json " + schema;
  return "%json " + json_text(json);
}

// What the options ask for, as a part of a Lark grammar, and the option that does; "": nothing.
std::pair<std::string, const char*> rule_of(const GenerateOptions& options) {
  if (options.json_schema) return {rule_of_schema(*options.json_schema), "json_schema"};
  if (options.regex) return {rule_of_regex(*options.regex), "regex"};
  if (options.grammar) return {"%lark {\n" + *options.grammar + "\n}", "grammar"};
  return {"", ""};
}

std::string text_or_none(const Result<std::string>& text) { return text.is_ok() ? *text : std::string(); }

using OrderedJson = nlohmann::ordered_json;

// {"type": "function", "function": {"name", "description", "parameters"}}, or that of "function". `where`: "[0]".
Result<Tool> tool_of(const OrderedJson& given, const std::string& where) {
  const auto wrong = [&](const std::string& field, const std::string& wanted) {
    return Status::error(Code::kInvalidArgument, where + field + " should be " + wanted);
  };
  const bool wrapped = given.is_object() && given.contains("function");
  const std::string in = wrapped ? ".function" : "";
  const OrderedJson& function = wrapped ? given["function"] : given;
  if (!function.is_object()) return wrong(in, "an object");
  if (given.value("type", OrderedJson("function")) != "function") return wrong(".type", "function");
  const OrderedJson name = function.value("name", OrderedJson()), text = function.value("description", OrderedJson()),
                    schema = function.value("parameters", OrderedJson());
  if (!name.is_string()) return wrong(in + ".name", "a string");
  if (const auto fault = fault_of_tool_name(name.get_ref<const std::string&>()); fault)
    return Status::error(Code::kInvalidArgument, where + in + ".name " + *fault);
  if (!text.is_null() && !text.is_string()) return wrong(in + ".description", "a string");
  if (!schema.is_null() && !schema.is_object()) return wrong(in + ".parameters", "a JSON schema of an object");
  return Tool{name.get<std::string>(), text.is_string() ? text.get<std::string>() : "",
              schema.is_object() && !schema.empty() ? json_text(schema) : ""};
}

Result<std::vector<Tool>> tools_of(const std::string& text) {
  std::vector<Tool> tools;
  if (text.empty()) return tools;
  SITU_RETURN_IF_ERROR(check_json(text, "the list of tools", kMostKeys).or_code(Code::kInvalidArgument));
  const std::variant<OrderedJson, JsonFault> read = parse_ordered(text);
  const OrderedJson* const list = std::get_if<OrderedJson>(&read);
  if (!list || !list->is_array()) return Status::error(Code::kInvalidArgument, "should be a JSON list of tools");
  for (const OrderedJson& given : *list) {
    const std::string where = "[" + std::to_string(tools.size()) + "]";
    SITU_TAKE(tool, tool_of(given, where));
    if (std::any_of(tools.begin(), tools.end(), [&](const Tool& t) { return t.name == tool.name; }))
      return Status::error(Code::kInvalidArgument, where + ": two tools are called '" + tool.name + "'");
    tools.push_back(std::move(tool));
  }
  return tools;
}

class DialogParts final : public AnswerParts {
 public:
  explicit DialogParts(const Dialog& dialog) : reader_(dialog.reader()) {}
  void read(std::string_view text, Event& to) override { put(reader_.push(text), to); }
  FinishReason end(FinishReason reason, Event& to) override {
    const FinishReason ended = end_of(reader_, reason);
    put(reader_.finish(is_cut(ended)), to);
    return ended;
  }

 private:
  // The part of this call in the event.
  static CallPiece& piece_of(size_t call, Event& to) {
    if (to.calls.empty() || to.calls.back().call != call) to.calls.push_back({call});
    return to.calls.back();
  }
  static void put(const std::vector<DialogEvent>& events, Event& to) {
    for (const DialogEvent& event : events) {
      if (const auto* thought = std::get_if<ReasoningPiece>(&event)) to.reasoning += thought->text;
      if (const auto* text = std::get_if<TextPiece>(&event)) to.text += text->text;
      if (const auto* begun = std::get_if<CallBegun>(&event))
        to.calls.push_back({begun->index, random_id("call_"), begun->name});
      if (const auto* more = std::get_if<ArgumentsPiece>(&event))
        piece_of(more->index, to).arguments_json += more->json;
      if (const auto* ended = std::get_if<CallEnded>(&event)) piece_of(ended->index, to).ended = true;
    }
  }
  AnswerReader reader_;
};

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

Status check_tools(const std::string& tools_json) { return tools_of(tools_json).status(); }

Result<Dialog> dialog_of(const ModelForm* form, const ChatOptions& options) {
  Dialog dialog{.form = form};
  Result<std::vector<Tool>> tools = tools_of(options.tools_json);
  if (!tools.is_ok()) return tools.status().with_context("tools").or_option("tools");
  const std::string& wanted = options.tool_choice;
  using Kind = ToolChoice::Kind;
  const bool named = !wanted.empty() && wanted != "auto" && wanted != "none" && wanted != "required";
  dialog.choice = {named                  ? Kind::kNamed
                   : wanted == "none"     ? Kind::kNone
                   : wanted == "required" ? Kind::kRequired
                                          : Kind::kAuto,
                   named ? wanted : "", options.parallel_tool_calls};
  const auto is_wanted = [&](const Tool& tool) { return tool.name == wanted; };
  if (wanted == "required" && tools->empty())
    return Status::wrong_option("tool_choice", "tool_choice wants a call, and there are no tools");
  if (named && std::none_of(tools->begin(), tools->end(), is_wanted))
    return Status::wrong_option(
        "tool_choice", "tool_choice should be auto, none, required or the name of a tool, is '" + wanted + "'");
  if (wanted != "none") dialog.tools = std::move(*tools);
  return dialog;
}

bool is_cut(FinishReason reason) { return reason != FinishReason::kStop && reason != FinishReason::kStopString; }

FinishReason end_of(const AnswerReader& reader, FinishReason reason) {
  return !is_cut(reason) && reader.cuts_call() ? FinishReason::kLength : reason;
}

std::unique_ptr<AnswerParts> parts_of(const Dialog& dialog) { return std::make_unique<DialogParts>(dialog); }

Status set_grammar(Dialog* dialog, const GenerateOptions& options, const FolderTokenizer& tokenizer) {
  if (!dialog->form) return Status::ok();
  const Form& form = dialog->form->form;
  const SpecialToken special = special_tokens_of(tokenizer);
  const auto [rule, option] = rule_of(options);
  if (!dialog->tools.empty()) {
    dialog->grammar.option = "tools";
    dialog->grammar.schemas = schemas_to_check(form, dialog->tools);
    // What the template takes one of in a history, an answer has one of.
    dialog->choice.parallel = dialog->choice.parallel && form.calls.several;
    dialog->calls_first = dialog->choice.kind == ToolChoice::Kind::kAuto && !rule.empty();
    return assign(&dialog->grammar.source,
                  call_grammar(form, dialog->tools, dialog->choice, dialog->in_reasoning, special, rule));
  }
  if (form.reasons() && !rule.empty())
    dialog->grammar = {grammar_behind_reasoning(form, rule, dialog->in_reasoning, special), option};
  return Status::ok();
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
