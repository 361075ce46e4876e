#include "text/dialog/history.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>
#include <vector>

#include "text/dialog/marks.h"
#include "text/json_file.h"
#include "text/ordered_json.h"

namespace situ {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kAnyId = "call00000";  // of a call that is shown as an example

std::string text_of(const Json& message, const char* key) {
  const auto found = message.find(key);
  return found != message.end() && found->is_string() ? found->get<std::string>() : std::string();
}

// The object of arguments. A text that is none, which a model wrote once, is the one argument of such an object.
Json parsed_arguments(const Json& arguments) {
  if (!arguments.is_string()) return arguments.is_object() ? arguments : Json::object();
  const std::string& text = arguments.get_ref<const std::string&>();
  Json object = ordered_json_of(text);
  if (object.is_object()) return object;
  return trimmed(text).empty() || object.is_null() ? Json::object() : Json{{"arguments", arguments}};
}

// A text before the content, or behind it.
void add_text(Json& message, const std::string& text, bool behind) {
  Json& content = message["content"];
  if (content.is_array()) {
    const Json part = {{"type", "text"}, {"text", text}};
    content.insert(behind ? content.end() : content.begin(), part);
    return;
  }
  const std::string own = content.is_string() ? content.get<std::string>() : std::string();
  const char* between = own.empty() ? "" : "\n\n";
  content = behind ? own + between + text : text + between + own;
}

// Calls of the conversation so far, whose results come next.
class Ids {
 public:
  explicit Ids(const Form& form) : kind_(form.ids), anew_(form.ids_begin_anew) {}

  void begin_answer() {
    if (anew_) count_ = 0;
  }

  std::string of_call(const std::string& id, const std::string& name) {
    const std::string fitted = fit(id, name, count_++);
    calls_.push_back({id, fitted, name, false});
    return fitted;
  }

  struct Call {
    std::string id, fitted, name;
    bool answered = false;
  };
  // The call that a result belongs to: by its id, else the first without a result.
  Call* of_result(const std::string& id) {
    const auto by_id =
        std::find_if(calls_.rbegin(), calls_.rend(), [&](const Call& c) { return !id.empty() && c.id == id; });
    if (by_id != calls_.rend()) return &*by_id;
    const auto open = std::find_if(calls_.begin(), calls_.end(), [&](const Call& c) { return !c.answered; });
    return id.empty() && open != calls_.end() ? &*open : nullptr;
  }
  std::string fit(const std::string& id, const std::string& name, size_t index) const {
    const auto letter = [](unsigned char c) { return std::isalnum(c) != 0; };
    if (kind_ == Form::Ids::kFunctionIndex) return "functions." + name + ":" + std::to_string(index);
    if (kind_ == Form::Ids::kAny || (id.size() == 9 && std::all_of(id.begin(), id.end(), letter))) return id;
    std::string digits = std::to_string(index);
    return "call" + std::string(5 - std::min<size_t>(5, digits.size()), '0') + digits.substr(0, 5);
  }

 private:
  Form::Ids kind_;
  bool anew_;
  size_t count_ = 0;
  std::vector<Call> calls_;
};

void fit_calls(const Form& form, Ids& ids, Json& message) {
  std::string spelled;
  ids.begin_answer();
  for (Json& call : message["tool_calls"]) {
    if (!call.is_object()) continue;
    if (!call.contains("function") || !call["function"].is_object()) call["function"] = Json::object();
    Json& function = call["function"];
    const std::string name = text_of(function, "name");
    const Json given = function.contains("arguments") ? function["arguments"] : Json();
    const Json arguments = parsed_arguments(given);
    const bool no_object = given.is_string() && arguments.contains("arguments") && arguments["arguments"] == given;
    function["arguments"] = !form.arguments_as_text ? arguments : no_object ? given : Json(json_text(arguments));
    call["type"] = "function";
    const std::string id = ids.of_call(text_of(call, "id"), name);
    if (!id.empty()) call["id"] = id;
    if (!form.calls_shown) spelled += (spelled.empty() ? "" : "\n") + spelled_call(form.calls, name, arguments);
  }
  if (form.calls_shown) return;
  message.erase("tool_calls");
  add_text(message, spelled, true);
}

// Results of an answer's calls, which come behind it, by call: by their ids, else in order.
std::vector<Json> results_by_call(const Json& calls, std::span<Json> results) {
  std::vector<Json> by_call(calls.size(), Json::array());
  for (Json& result : results) {
    const std::string id = text_of(result, "tool_call_id");
    std::optional<size_t> at;
    for (size_t i = 0; i < calls.size(); ++i) {
      const bool fits = id.empty() || (calls[i].is_object() && text_of(calls[i], "id") == id);
      if (fits && (!at || !by_call[*at].empty())) at = i;
    }
    by_call[at.value_or(calls.size() - 1)].push_back(std::move(result));
  }
  return by_call;
}

// For a template that takes one call of an answer: an answer for each call, with its results behind it.
Json one_call_an_answer(Json& messages) {
  Json all = Json::array();
  for (size_t i = 0; i < messages.size(); ++i) {
    Json& message = messages[i];
    const auto calls = message.find("tool_calls");
    if (text_of(message, "role") != "assistant" || calls == message.end() || !calls->is_array() || calls->size() < 2) {
      all.push_back(std::move(message));
      continue;
    }
    const Json every = std::move(*calls);
    std::vector<Json> results;
    for (; i + 1 < messages.size() && text_of(messages[i + 1], "role") == "tool"; ++i)
      results.push_back(std::move(messages[i + 1]));
    const std::vector<Json> by_call = results_by_call(every, results);
    for (size_t k = 0; k < every.size(); ++k) {
      Json turn = k == 0 ? std::move(message) : Json{{"role", "assistant"}, {"content", ""}};
      turn["tool_calls"] = Json::array({every[k]});
      all.push_back(std::move(turn));
      for (const Json& result : by_call[k]) all.push_back(result);
    }
  }
  return all;
}

void fit_result(Ids& ids, Json& message) {
  Ids::Call* const call = ids.of_result(text_of(message, "tool_call_id"));
  if (!call) return;
  call->answered = true;
  if (!call->fitted.empty()) message["tool_call_id"] = call->fitted;
  if (text_of(message, "name").empty()) message["name"] = call->name;
}

// The texts of a content, as one; what else is in it goes to `others`.
std::string joined_texts(const Json& content, Json& others) {
  if (!content.is_array()) return content.is_string() ? content.get<std::string>() : "";
  std::string text;
  for (const Json& part : content)
    if (part.is_object() && part.value("type", "") != "text")
      others.push_back(part);
    else
      text += part.is_string() ? part.get<std::string>() : text_of(part, "text");
  return text;
}

// Results that are text of the user, and images of results.
class ResultTurns {
 public:
  explicit ResultTurns(const Form& form) : form_(form) {}

  void add(Json message, Json& fitted) {
    if (form_.results_shown && form_.result_parts) return fitted.push_back(std::move(message));
    const std::string text = joined_texts(message["content"], images_);
    if (form_.results_shown) {
      message["content"] = text;
      return fitted.push_back(std::move(message));
    }
    text_ += (text_.empty() ? "" : "\n") + ("<tool_response>\n" + text + "\n</tool_response>");
  }
  // Behind all results of an answer, which are one turn.
  void end(Json& fitted) {
    Json content = std::exchange(images_, Json::array());
    if (content.empty() && text_.empty()) return;
    if (!text_.empty()) content.insert(content.begin(), Json{{"type", "text"}, {"text", text_}});
    if (content.size() == 1 && !text_.empty()) content = text_;
    text_.clear();
    fitted.push_back({{"role", "user"}, {"content", std::move(content)}});
  }

 private:
  const Form& form_;
  std::string text_;
  Json images_ = Json::array();
};

void show_tools(const Form& form, std::span<const Tool> tools, Json& messages) {
  const std::string text = tools_text(form, tools);
  const auto with_role = [&](const char* role) {
    return std::find_if(messages.begin(), messages.end(), [&](const Json& m) { return m.value("role", "") == role; });
  };
  if (!form.system_shown) {
    if (const auto user = with_role("user"); user != messages.end()) return add_text(*user, text, false);
  } else if (const auto system = with_role("system"); system != messages.end()) {
    return add_text(*system, text, true);
  }
  Json turn = {{"role", form.system_shown ? "system" : "user"}, {"content", form.default_system}};
  add_text(turn, text, true);
  messages.insert(messages.begin(), turn);
}

// (key="text", other=1), or {key:<mark>text<mark>,other:1}
std::string literal_arguments(const CallForm& form, const Json& arguments) {
  const bool python = form.kind == CallForm::Kind::kPython;
  std::string text;
  for (const auto& [key, value] : arguments.items()) {
    if (!text.empty()) text += python ? ", " : ",";
    text += key + (python ? "=" : ":");
    if (python && value.is_boolean())
      text += value.get<bool>() ? "True" : "False";
    else
      text += !python && value.is_string() ? form.text_quote + value.get<std::string>() + form.text_quote
                                           : json_text(value);
  }
  return python ? "(" + text + ")" : "{" + text + "}";
}

}  // namespace

void fit_history(const Form& form, std::span<const Tool> tools, Json& messages, Json& variables) {
  Ids ids(form);
  ResultTurns results(form);
  Json fitted = Json::array();
  if (form.calls_shown && !form.calls.several) messages = one_call_an_answer(messages);
  for (Json& message : messages) {
    const std::string role = text_of(message, "role");
    if (message.contains("content") && message["content"].is_null()) message["content"] = "";
    if (!message.contains("content")) message["content"] = "";
    if (const std::string& field = form.reasoning.field;
        !field.empty() && field != "reasoning_content" && message.contains("reasoning_content")) {
      message[field] = message["reasoning_content"];
      message.erase("reasoning_content");
    }
    if (role == "assistant" && message.contains("tool_calls")) {
      if (message["tool_calls"].is_array() && !message["tool_calls"].empty())
        fit_calls(form, ids, message);
      else
        message.erase("tool_calls");
    }
    if (role == "tool") {
      fit_result(ids, message);
      results.add(std::move(message), fitted);
      continue;
    }
    results.end(fitted);
    if (form.null_content && message.contains("tool_calls")) {  // the text is an answer of its own, before the calls
      Json text = std::exchange(message["content"], nullptr);
      if (!text.empty() && text != "") fitted.push_back({{"role", role}, {"content", std::move(text)}});
    }
    fitted.push_back(std::move(message));
  }
  results.end(fitted);
  messages = std::move(fitted);
  if (tools.empty()) return;
  if (!form.tools_shown) return show_tools(form, tools, messages);
  Json list = Json::array();
  for (const Tool& tool : tools) list.push_back(json_of(tool));
  variables["tools"] = std::move(list);
}

Json json_of(const Tool& tool) {
  Json function = {{"name", tool.name}, {"description", tool.description}};
  Json schema = ordered_json_of(tool.parameters_json);
  function["parameters"] = schema.is_object() ? schema : Json{{"type", "object"}, {"properties", Json::object()}};
  return {{"type", "function"}, {"function", std::move(function)}};
}

std::string tools_text(const Form& form, std::span<const Tool> tools) {
  std::string text =
      "# Tools\n\nYou may call functions to help with the user's request. They are described by these JSON "
      "objects:\n<tools>\n";
  for (const Tool& tool : tools) text += json_text(json_of(tool)) + "\n";
  text += "</tools>\n\nTo call a function, write its name and its arguments as follows";
  text += form.results_shown ? ":\n" : "; results come back in <tool_response> tags:\n";
  return text + spelled_call(form.calls, "NAME", {{"ARGUMENT", "VALUE"}});
}

std::string spelled_call(const CallForm& form, const std::string& name, const Json& arguments) {
  if (form.kind == CallForm::Kind::kObject) {
    Json object = Json::parse(form.shape, nullptr, false);
    const std::function<void(Json&)> fill = [&](Json& at) {
      if (at == "$name")
        at = name;
      else if (at == "$arguments")
        at = arguments;
      else if (at == "$id")
        at = kAnyId;
      else if (at.is_object())
        for (auto& [key, value] : at.items()) fill(value);
    };
    fill(object);
    if (object.contains("$name")) object = {{name, arguments}};
    return form.open + form.call_open + json_text(object) + form.call_close + form.close;
  }
  if (form.kind == CallForm::Kind::kTagged) {
    std::string body = name + form.name_close;
    for (const auto& [key, value] : arguments.items())
      body += form.key_open + key + form.key_close + (value.is_string() ? value.get<std::string>() : json_text(value)) +
              form.value_close;
    return form.open + form.call_open + body + form.call_close + form.close;
  }
  if (form.kind == CallForm::Kind::kPython || form.kind == CallForm::Kind::kLiterals)
    return form.open + form.call_open + name + literal_arguments(form, arguments) + form.call_close + form.close;
  const std::string id = form.id_open.empty() ? "" : form.id_open + (form.id_is_index ? "0" : kAnyId);
  return form.open + form.call_open + name + id + form.name_close + json_text(arguments) + form.call_close + form.close;
}

}  // namespace situ
