#include "pipelines/dialogs.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/assign.h"
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

using OrderedJson = nlohmann::ordered_json;

// [{"type": "function", "function": {"name", "description", "parameters"}}], or of that what "function" has.
Result<std::vector<Tool>> tools_of(const std::string& text) {
  std::vector<Tool> tools;
  if (text.empty()) return tools;
  SITU_RETURN_IF_ERROR(check_json(text, "the list of tools", kMostKeys).or_code(Code::kInvalidArgument));
  const OrderedJson list = ordered_json_of(text);
  if (!list.is_array()) return Status::error(Code::kInvalidArgument, "should be a JSON list of tools");
  for (const OrderedJson& given : list) {
    const std::string where = "[" + std::to_string(tools.size()) + "]";
    const bool wrapped = given.is_object() && given.contains("function");
    if (given.is_object() && given.value("type", OrderedJson("function")) != "function")
      return Status::error(Code::kInvalidArgument, where + ".type should be function");
    if (const auto fault = read_tool(wrapped ? given["function"] : given, "parameters", tools))
      return Status::error(Code::kInvalidArgument, where + (wrapped ? ".function" : "") + fault->field + fault->words);
  }
  return tools;
}

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
  if (wanted == "required" && tools->empty())
    return Status::wrong_option("tool_choice", "tool_choice wants a call, and there are no tools");
  if (named && !has_tool(*tools, wanted))
    return Status::wrong_option(
        "tool_choice", "tool_choice should be auto, none, required or the name of a tool, is '" + wanted + "'");
  if (wanted != "none") dialog.tools = std::move(*tools);
  return dialog;
}

Status set_grammar(Dialog* dialog, const GenerateOptions& options, const FolderTokenizer& tokenizer) {
  if (!dialog->form || !dialog->grammar.source.empty()) return Status::ok();
  const Form& form = dialog->form->form;
  const SpecialToken special = special_tokens_of(tokenizer);
  const auto [rule, option] = rule_of(options);
  if (!dialog->tools.empty()) {
    dialog->grammar.option = "tools";
    // What the template takes one of in a history, an answer has one of.
    dialog->choice.parallel = dialog->choice.parallel && form.calls.several;
    dialog->calls_first = dialog->choice.kind == ToolChoice::Kind::kAuto && !rule.empty();
    return assign(&dialog->grammar.source,
                  call_grammar(form, dialog->tools, dialog->choice, dialog->in_reasoning, special, rule))
        .or_option("tools");
  }
  if (form.reasons() && !rule.empty())
    dialog->grammar = {grammar_behind_reasoning(form, rule, dialog->in_reasoning, special), option};
  return Status::ok();
}

}  // namespace situ
