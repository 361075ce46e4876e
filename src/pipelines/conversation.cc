#include "pipelines/conversation.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/assign.h"
#include "text/dialog/history.h"
#include "text/json_file.h"
#include "text/mark.h"
#include "text/ordered_json.h"

namespace situ {
namespace {

using OrderedJson = nlohmann::ordered_json;

// Every text of a message but for the names of roles and of parts' types.
Status break_texts(const FolderTokenizer& tokenizer, char32_t mark, OrderedJson& value, bool* any) {
  if (value.is_string()) {
    const std::string& text = value.get_ref<const std::string&>();
    SITU_TAKE(broken, tokenizer.break_special(text, mark));
    *any = *any || broken.size() > text.size();
    value = std::move(broken);
  } else if (value.is_array()) {
    for (OrderedJson& item : value) SITU_RETURN_IF_ERROR(break_texts(tokenizer, mark, item, any));
  } else if (value.is_object()) {
    for (auto& [key, item] : value.items())
      if (key != "role" && key != "type") SITU_RETURN_IF_ERROR(break_texts(tokenizer, mark, item, any));
  }
  return Status::ok();
}

// Tools whose texts are ordinary text.
Result<std::vector<Tool>> broken_tools(const FolderTokenizer& tokenizer, char32_t mark, const std::vector<Tool>& tools,
                                       bool* any) {
  std::vector<Tool> broken = tools;
  for (Tool& tool : broken)
    for (std::string* text : {&tool.name, &tool.description, &tool.parameters_json}) {
      SITU_TAKE(own, tokenizer.break_special(*text, mark));
      *any = *any || own.size() > text->size();
      *text = std::move(own);
    }
  return broken;
}

Result<OrderedJson> parse_option(const std::string& text, const char* what, bool list) {
  SITU_RETURN_IF_ERROR(check_json(text, what, kMostKeys).or_code(Code::kInvalidArgument));
  OrderedJson json = ordered_json_of(text);
  if (list ? json.is_array() : json.is_object()) return json;
  return Status::error(Code::kInvalidArgument, std::string(what) + " should be a JSON " + (list ? "list" : "object") +
                                                   ", is " + std::string(json.type_name()));
}

Status check_texts(const Message& m) {
  const auto check = [](const std::string& text, const std::string& what) {
    return check_utf8(text, what).or_code(Code::kInvalidArgument);
  };
  SITU_RETURN_IF_ERROR(check(m.role, "the role of a chat message"));
  for (const Part& p : m.parts) {
    if (p.kind == Part::Kind::kText) SITU_RETURN_IF_ERROR(check(p.text, "the text of the " + m.role + " message"));
    if (p.kind == Part::Kind::kIds || p.kind == Part::Kind::kArray)
      return Status::error(Code::kInvalidArgument, "parts of a message are texts, images and sounds");
  }
  for (const std::string& text : {m.name, m.tool_call_id, m.reasoning})
    SITU_RETURN_IF_ERROR(check(text, "a field of the " + m.role + " message"));
  for (const ToolCall& c : m.tool_calls) {
    for (const std::string& text : {c.id, c.name, c.arguments_json}) SITU_RETURN_IF_ERROR(check(text, "a tool call"));
    // JSON inside of JSON: the depth of a body says nothing about it.
    SITU_RETURN_IF_ERROR(
        check_json(c.arguments_json, "the arguments of a call of " + shown(nlohmann::json(c.name)), kMostKeys)
            .or_code(Code::kInvalidArgument));
  }
  if (m.more_json.empty()) return Status::ok();
  return parse_option(m.more_json, "more_json of a message", false).is_ok()
             ? Status::ok()
             : Status::error(Code::kInvalidArgument, "more_json of the " + m.role + " message should be a JSON object");
}

// What the template gets of a call's arguments is an object, as transformers documents it, not the text of one.
OrderedJson arguments_of(const ToolCall& call) {
  OrderedJson json = ordered_json_of(call.arguments_json);
  return json.is_object() ? std::move(json) : OrderedJson(call.arguments_json);
}

// A text, or parts; in which neighbouring texts are one. `lists`: parts in any case, as templates of models with
// images want them.
OrderedJson content_of(const Message& m, bool lists, const std::string& sound) {
  OrderedJson parts = OrderedJson::array();
  const auto add_text = [&](const std::string& text, const std::string& between) {
    if (parts.empty() || parts.back()["type"] != "text") {
      parts.push_back({{"type", "text"}, {"text", text}});
      return;
    }
    const std::string before = parts.back()["text"].get<std::string>();
    parts.back()["text"] = before + (!sound.empty() && before.ends_with(sound) ? "" : between) + text;
  };
  for (const Part& p : m.parts)
    if (p.kind == Part::Kind::kText)
      add_text(p.text, "\n");
    else if (p.kind == Part::Kind::kAudio)
      add_text(sound, "");
    else
      parts.push_back({{"type", "image"}});
  if (parts.empty() && !lists) return "";
  if (parts.empty()) return OrderedJson::array({{{"type", "text"}, {"text", ""}}});
  return !lists && parts.size() == 1 && parts[0]["type"] == "text" ? parts[0]["text"] : parts;
}

// A message as templates get it.
OrderedJson json_of(const Message& m, bool lists, const std::string& sound) {
  OrderedJson turn = {{"role", m.role}, {"content", content_of(m, lists, sound)}};
  if (!m.name.empty()) turn["name"] = m.name;
  if (!m.tool_call_id.empty()) turn["tool_call_id"] = m.tool_call_id;
  if (!m.reasoning.empty()) turn["reasoning_content"] = m.reasoning;
  for (const ToolCall& c : m.tool_calls) {
    OrderedJson call = OrderedJson::object();
    if (!c.id.empty()) call["id"] = c.id;
    call["type"] = "function";
    call["function"] = {{"name", c.name}, {"arguments", arguments_of(c)}};
    turn["tool_calls"].push_back(std::move(call));
  }
  if (!m.more_json.empty()) {
    const std::variant<OrderedJson, JsonFault> more = parse_ordered(m.more_json);  // check_texts() has looked
    for (const auto& [key, value] : std::get<OrderedJson>(more).items())
      if (!turn.contains(key)) turn[key] = value;
  }
  return turn;
}

bool has(std::span<const Message> messages, Part::Kind kind) {
  return std::any_of(messages.begin(), messages.end(), [&](const Message& m) {
    return std::any_of(m.parts.begin(), m.parts.end(), [&](const Part& p) { return p.kind == kind; });
  });
}

// Variables of the template but for messages.
Result<OrderedJson> variables_of(const ChatOptions& options) {
  OrderedJson variables = OrderedJson::object();
  if (!options.variables_json.empty()) {
    Result<OrderedJson> given = parse_option(options.variables_json, "the variables of the chat template", false);
    if (!given.is_ok()) return given;
    variables = std::move(*given);
  }
  if (!options.tools_json.empty()) {
    Result<OrderedJson> tools = parse_option(options.tools_json, "the tools of a conversation", true);
    if (!tools.is_ok()) return tools;
    if (options.tool_choice != "none") variables["tools"] = std::move(*tools);
  }
  return variables;
}

// Where the last text of the last message ends; null: there is none.
std::string* last_text(OrderedJson& messages) {
  if (messages.empty()) return nullptr;
  OrderedJson& content = messages.back()["content"];
  if (content.is_string()) return &content.get_ref<std::string&>();
  if (content.empty() || content.back()["type"] != "text") return nullptr;
  return &content.back()["text"].get_ref<std::string&>();
}

}  // namespace

Result<PromptText> render_conversation(const FolderTokenizer& tokenizer, std::span<const Message> messages,
                                       const ChatOptions& options, const Dialog* dialog) {
  for (const Message& m : messages) SITU_RETURN_IF_ERROR(check_texts(m));
  SITU_TAKE(variables, variables_of(options));
  const bool lists = has(messages, Part::Kind::kImage);
  PromptText prompt;
  OrderedJson turns = OrderedJson::array();
  for (const Message& m : messages) turns.push_back(json_of(m, lists, ""));
  const bool fits = dialog && dialog->form;
  std::string taken = json_text(turns) + json_text(variables);
  for (const Tool& t : fits ? dialog->tools : std::vector<Tool>()) taken += t.name + t.description + t.parameters_json;
  const auto free_mark = [&]() -> Result<char32_t> {
    const Result<char32_t> mark = FolderTokenizer::free_mark(taken);
    if (mark.is_ok()) taken += utf8_of(*mark);
    return mark;
  };
  const Result<char32_t> mark = free_mark(), sound = free_mark(), end = free_mark();
  for (const Result<char32_t>& m : {mark, sound, end})
    if (!m.is_ok()) return m.status();
  if (has(messages, Part::Kind::kAudio)) {
    prompt.sound = utf8_of(*sound);
    for (size_t i = 0; i < messages.size(); ++i) turns[i] = json_of(messages[i], lists, prompt.sound);
  }
  bool any = false;
  for (size_t i = 0; i < messages.size(); ++i)
    if (!messages[i].parse_special.value_or(messages[i].role == "assistant"))
      SITU_RETURN_IF_ERROR(break_texts(tokenizer, *mark, turns[i], &any));
  if (const auto tools = variables.find("tools"); tools != variables.end())
    SITU_RETURN_IF_ERROR(break_texts(tokenizer, *mark, *tools, &any));
  if (fits) {
    const Form& form = dialog->form->form;
    std::vector<Tool> tools;  // but those that the template gets as they are given
    if (!form.tools_shown || !variables.contains("tools"))
      SITU_RETURN_IF_ERROR(assign(&tools, broken_tools(tokenizer, *mark, dialog->tools, &any)));
    fit_history(form, tools, turns, variables);
  }
  if (any) prompt.mark = *mark;
  if (options.continue_last && !messages.empty() && !messages.back().tool_calls.empty())
    return Status::error(Code::kInvalidArgument,
                         "continue_last: the last message ends with a call, which no text follows; a result does");
  if (options.continue_last) {
    std::string* const text = last_text(turns);
    if (!text) return Status::error(Code::kInvalidArgument, "continue_last: the last message does not end with a text");
    *text += utf8_of(*end);
  }
  Result<std::string> text = tokenizer.apply_chat_template(
      json_text(turns), options.add_generation_prompt && !options.continue_last, json_text(variables));
  if (!text.is_ok()) return text.status().or_code(Code::kInvalidArgument);
  prompt.text = std::move(*text);
  if (!options.continue_last) return prompt;
  const size_t at = prompt.text.rfind(utf8_of(*end));
  if (at == std::string::npos)
    return Status::error(Code::kInvalidArgument, "continue_last: the chat template does not show the last message");
  prompt.text.erase(at);
  return prompt;
}

// The template writes the special tokens itself.
Result<std::vector<int64_t>> encode_prompt(const FolderTokenizer& tokenizer, const PromptText& prompt, int64_t most) {
  Result<std::vector<int64_t>> ids = tokenizer.encode(prompt.text, !prompt.templated, prompt.mark, most);
  if (!ids.is_ok()) return ids.status().or_code(Code::kInvalidArgument);
  return ids;
}

}  // namespace situ
