#include "text/dialog/find_form.h"

#include <algorithm>
#include <optional>
#include <regex>

#include "text/dialog/find_calls.h"
#include "text/dialog/marks.h"
#include "text/dialog/renderings.h"

namespace situ {
namespace {

using probe::Json;
using probe::Renderer;

void find_system(const Renderer& render, Form& form) {
  const Json system = {{"role", "system"}, {"content", probe::kSystem}};
  auto with = render(Json::array({system, probe::user()}));
  if (!with) with = render(Json::array({system, probe::user()}), false, probe::variables_with_tools());
  const auto without = render(Json::array({probe::user()}));
  form.system_shown = with && probe::has(*with, probe::kSystem);
  if (!form.system_shown || !without) return;
  const probe::Common around = probe::common(*with, *without);
  if (std::string_view(*with).substr(around.before, with->size() - around.before - around.behind) != probe::kSystem)
    return;
  form.default_system = without->substr(around.before, without->size() - around.before - around.behind);
}

void find_histories(const Renderer& render, const probe::CallStyle& style, Form& form) {
  const Json tools = form.tools_shown ? probe::variables_with_tools() : Json::object();
  const probe::Call call{std::string(probe::kNames[0]), {{std::string(probe::kKeys[0]), "x"}}};
  const Json calls = probe::answer("", {call}, style);
  Json result = {{"role", "tool"}, {"content", probe::kResult}, {"name", call.name}};
  result["tool_call_id"] = calls["tool_calls"][0]["id"];
  const auto shown = render(Json::array({probe::user(), calls, result}), true, tools);
  form.results_shown = shown && probe::has(*shown, probe::kResult);
  const Json words = {{"type", "text"}, {"text", probe::kResult}}, image = {{"type", "image"}};
  Json parts = result, only_words = result;
  parts["content"] = Json::array({words, image}), only_words["content"] = Json::array({words});
  const auto with_image = render(Json::array({probe::user(), calls, parts}), true, tools);
  const auto without = render(Json::array({probe::user(), calls, only_words}), true, tools);
  // What the list itself looks like as text is no image.
  form.result_parts = with_image && without && *with_image != *without && probe::has(*with_image, probe::kResult) &&
                      !probe::has(*with_image, "'type'") && !probe::has(*with_image, "\"type\":\"image\"") &&
                      !probe::has(*with_image, "\"type\": \"image\"");
  // Ids that the template makes of names and numbers in calls, results have to have too.
  if (form.calls.id_is_index && trimmed(form.calls.call_open).ends_with("functions.")) {
    const auto again = render(Json::array({probe::user(), calls, result, calls}), false, tools);
    const std::string second = form.calls.id_open + "1" + std::string(trimmed(form.calls.name_close));
    form.ids_begin_anew = style.ids == Form::Ids::kAny && again && !probe::has(*again, second);
    form.ids = Form::Ids::kFunctionIndex;
  }
  const auto text = render(Json::array({probe::user(), probe::answer(probe::kText, {call}, style)}), false, tools);
  if (!form.null_content && (!text || !probe::has(*text, probe::kText)))
    form.dropped.push_back("the text beside a call");
  if (form.calls.several) return;
  const Json again = probe::answer("", {{std::string(probe::kNames[1]), call.arguments}}, style);
  Json second = result;
  second["tool_call_id"] = again["tool_calls"][0]["id"];
  const auto turns = render(Json::array({probe::user(), calls, result, again, second}), true, tools);
  if (!turns || !probe::has(*turns, probe::kNames[0]) || !probe::has(*turns, probe::kNames[1]))
    form.dropped.push_back("all calls but one");
}

// The mark that ends `text` before white space, or a word and a line's end: <think>\n. "": none.
std::string last_mark(std::string_view text) {
  std::match_results<std::string_view::const_iterator> found;
  static const std::regex mark("(<[^<>\\s]+>|\\[[^\\[\\]\\s]+\\])([a-z]+\\n)?\\s*$");
  return std::regex_search(text.begin(), text.end(), found, mark) ? found.str(0) : "";
}

std::string first_mark(std::string_view text) {
  std::match_results<std::string_view::const_iterator> found;
  static const std::regex mark("^\\s*(<[^<>\\s]+>|\\[[^\\[\\]\\s]+\\])");
  return std::regex_search(text.begin(), text.end(), found, mark) ? found.str(0) : "";
}

// <x> -> </x>, [X] -> [/X]
std::string closing(std::string_view open) {
  std::string close(trimmed(open));
  return close.size() < 3 ? "" : close.insert(1, "/");
}

// The thought of an answer, shown under one of the keys that templates have for it.
bool find_thought(const Renderer& render, const probe::CallStyle& style, Form& form) {
  const probe::Call call{std::string(probe::kNames[0]), {{std::string(probe::kKeys[0]), "x"}}};
  std::string shown;  // under the first key that is shown, without marks
  for (const char* field : {"reasoning_content", "reasoning", "thinking", "tool_plan"})
    for (const bool with_call : {false, true}) {
      if (with_call && !form.calls_shown) continue;
      Json answer = with_call ? probe::answer("", {call}, style) : probe::answer(probe::kText);
      answer[field] = probe::kThought;
      const auto text = render(Json::array({probe::user(), answer}), false,
                               with_call ? probe::variables_with_tools() : Json::object());
      const size_t at = text ? text->find(probe::kThought) : std::string::npos;
      if (at == std::string::npos) continue;
      if (shown.empty()) shown = field;
      form.reasoning.field = field;
      form.reasoning.open = last_mark(std::string_view(*text).substr(0, at));
      form.reasoning.close = first_mark(std::string_view(*text).substr(at + probe::kThought.size()));
      // A mark that stands before the user's text too begins a message, not a thought.
      const auto alone = render(Json::array({probe::user()}));
      const std::string before_text = std::string(trimmed(form.reasoning.open)) + std::string(probe::kUser);
      if (form.reasoning.open.empty() || (alone && probe::has(*alone, before_text))) continue;
      if (!form.reasoning.close.empty()) return true;
    }
  if (!shown.empty()) form.reasoning.field = shown;
  form.reasoning.open.clear(), form.reasoning.close.clear();
  return false;
}

// Marks that the prompt itself opens or closes: <think>\n or <think>\n\n</think>\n\n.
bool find_prefill(const Renderer& render, const std::function<bool(std::string_view)>& knows, Form& form) {
  static const std::regex pair("(<[^<>\\s/]+>|\\[[^\\[\\]\\s/]+\\])\\s*(</[^<>\\s]+>|\\[/[^\\[\\]\\s]+\\])\\s*$");
  for (const Json& variables :
       {Json::object(), Json{{"enable_thinking", true}}, Json{{"enable_thinking", false}}, Json{{"thinking", true}}}) {
    const auto prompt = render(Json::array({probe::user()}), true, variables);
    if (!prompt) continue;
    std::smatch found;
    if (std::regex_search(*prompt, found, pair) && closing(found.str(1)) == found.str(2)) {
      form.reasoning.open = found.str(1), form.reasoning.close = found.str(2);
      return true;
    }
    const std::string open = last_mark(*prompt), close = closing(open);
    if (open.empty() || open.find('|') != std::string::npos || !knows(close)) continue;
    form.reasoning.open = open, form.reasoning.close = close;
    return true;
  }
  return false;
}

void find_reasoning(const Renderer& render, const std::function<bool(std::string_view)>& knows,
                    const probe::CallStyle& style, Form& form) {
  if (form.calls.kind == CallForm::Kind::kChannels) {
    find_thought(render, style, form);
    form.reasoning.open.clear(), form.reasoning.close.clear();  // a channel
  } else if (!find_thought(render, style, form) && !find_prefill(render, knows, form)) {
    for (const auto& [open, close] : {std::pair{"<think>", "</think>"}, {"[THINK]", "[/THINK]"}})
      if (knows(open) && knows(close)) {
        form.reasoning.open = open, form.reasoning.close = close;
        break;
      }
  }
  const auto differs = [&](const char* name, const Json& a, const Json& b) {
    return render(Json::array({probe::user()}), true, Json{{name, a}}) !=
           render(Json::array({probe::user()}), true, Json{{name, b}});
  };
  for (const char* name : {"enable_thinking", "thinking"})
    if (form.reasoning.switch_name.empty() && differs(name, true, false)) form.reasoning.switch_name = name;
  if (differs("reasoning_effort", "low", "high")) form.reasoning.effort_name = "reasoning_effort";
}

// What a model was taught whose template leaves calls out of histories: by the marks that are tokens of its own.
std::optional<CallForm> calls_of_tokens(const std::function<bool(std::string_view)>& knows) {
  CallForm form;
  if (knows("<|tool_call_start|>") && knows("<|tool_call_end|>")) {
    form.kind = CallForm::Kind::kPython;
    form.open = "<|tool_call_start|>[", form.between = ", ", form.close = "]<|tool_call_end|>";
    return form;
  }
  if (knows("<|tool_calls_section_begin|>") && knows("<|tool_call_argument_begin|>")) {
    form.kind = CallForm::Kind::kNamed;
    form.open = "<|tool_calls_section_begin|>", form.close = "<|tool_calls_section_end|>";
    form.call_open = "<|tool_call_begin|>functions.", form.call_close = "<|tool_call_end|>";
    form.id_open = ":", form.name_close = "<|tool_call_argument_begin|>", form.id_is_index = true;
    return form;
  }
  if (!knows("<|tool_call|>")) return std::nullopt;
  form.open = "<|tool_call|>[", form.between = ", ", form.close = "]";
  return form;
}

}  // namespace

Form find_form(const RenderChat& render_chat, const std::function<bool(std::string_view)>& knows) {
  const Renderer render(render_chat);
  Form form;
  form.calls = documented_calls();
  find_system(render, form);
  const auto tools = render(Json::array({probe::user()}), true, probe::variables_with_tools());
  form.tools_shown = tools && probe::has(*tools, probe::kNames[0]);
  probe::CallStyle style;
  for (const auto& [null, text] : {std::pair{false, false}, {false, true}, {true, false}, {true, true}})
    for (const Form::Ids ids : {Form::Ids::kAny, Form::Ids::kNineLetters, Form::Ids::kFunctionIndex}) {
      if (form.calls_shown) continue;
      const probe::CallStyle tried{text, ids, null};
      const std::optional<CallForm> calls = probe::find_calls(render, tried);
      if (!calls) continue;
      form.calls = *calls, form.calls_shown = true;
      form.arguments_as_text = text, form.ids = ids, form.null_content = null;
      style = tried;
    }
  if (form.calls_shown) {
    find_histories(render, style, form);
  } else if (form.tools_shown) {
    // Its tools, with a call that it does not say how to write, are of no use.
    const std::optional<CallForm> taught = calls_of_tokens(knows);
    form.tools_shown = taught.has_value();
    form.calls = taught.value_or(documented_calls());
  }
  find_reasoning(render, knows, style, form);
  // An empty thought before the calls is none of their marks.
  const std::string_view thought_end = trimmed(form.reasoning.close);
  if (const size_t at = form.calls.open.find(thought_end); !thought_end.empty() && at != std::string::npos)
    form.calls.open.erase(0, at + thought_end.size());
  return form;
}

Form find_form(const FolderTokenizer& tokenizer) {
  if (!tokenizer.has_chat_template()) {
    Form form;
    form.calls = documented_calls();
    return form;
  }
  const RenderChat render = [&](const Json& messages, bool prompt, const Json& variables) {
    return tokenizer.apply_chat_template(messages.dump(), prompt, variables.dump());
  };
  return find_form(render, [&](std::string_view text) {
    if (text.empty()) return false;
    if (tokenizer.token_to_id(text)) return true;
    const auto& templates = tokenizer.config().chat_templates;
    return std::any_of(templates.begin(), templates.end(),
                       [&](const auto& t) { return probe::has(t.second.source, text); });
  });
}

}  // namespace situ
