#include "text/dialog/find_calls.h"

#include <algorithm>

#include "text/dialog/answer_reader.h"
#include "text/dialog/literal_scanner.h"
#include "text/dialog/marks.h"

namespace situ::probe {
namespace {

// A stretch of a rendering.
struct Span {
  size_t begin = 0, end = 0;
};

// The first JSON value of `text` behind `from` that has the needle in it.
std::optional<Span> json_with(std::string_view text, std::string_view needle, size_t from = 0) {
  for (size_t at = text.find_first_of("{[", from); at != std::string_view::npos;
       at = text.find_first_of("{[", at + 1)) {
    LiteralScanner scanner;
    std::string json;
    for (size_t end = at; end < text.size(); ++end) {
      const LiteralScanner::State state = scanner.feed(text[end], json);
      if (state == LiteralScanner::State::kMore) continue;
      if (state == LiteralScanner::State::kDone && has(json, needle) &&
          !Json::parse(text.substr(at, end + 1 - at), nullptr, false).is_discarded())
        return Span{at, end + 1};
      break;
    }
  }
  return std::nullopt;
}

std::vector<Call> two_calls() {
  std::vector<Call> calls;
  for (const std::string_view name : kNames)
    calls.push_back({std::string(name), {{std::string(kKeys[0]), kValues[0]}, {std::string(kKeys[1]), kValues[1]}}});
  return calls;
}

// One answer with one call, with two: what stands between the marks of an answer with text.
struct Shown {
  std::string one, two;        // two: "" where it cannot be rendered, or shows one call only
  std::string before, behind;  // what an answer stands between
  std::string end;             // behind a text
};

std::optional<Shown> shown_calls(const Renderer& render, const CallStyle& style) {
  const Json tools = variables_with_tools();
  const std::vector<Call> calls = two_calls();
  const auto text = render(Json::array({user(), answer(kText)}), false, tools);
  const auto one = render(Json::array({user(), answer("", {calls[0]}, style)}), false, tools);
  if (!text || !one || !has(*one, kNames[0])) return std::nullopt;
  Shown shown;
  const Common around = common(*one, *text);
  shown.before = one->substr(0, around.before), shown.behind = one->substr(one->size() - around.behind);
  if (const size_t at = text->rfind(kText); at != std::string::npos) shown.end = text->substr(at + kText.size());
  shown.one = one->substr(around.before, one->size() - around.before - around.behind);
  const auto two = render(Json::array({user(), answer("", calls, style)}), false, tools);
  if (two && has(*two, kNames[1]) && two->starts_with(shown.before) && two->ends_with(shown.behind))
    shown.two = two->substr(around.before, two->size() - around.before - around.behind);
  return shown;
}

// Around the bodies of calls: A BODY R for one, A BODY between-all BODY R for two.
void solve_marks(CallForm& form, const std::string& before, const std::string& behind,
                 const std::optional<std::string>& between) {
  if (!between) {
    form.open.clear(), form.close.clear(), form.between.clear();
    form.call_open = before, form.call_close = behind, form.several = false;
    return;
  }
  form.call_open = common_end(before, *between);
  if (trimmed(form.call_open).empty()) form.call_open.clear();
  form.open = before.substr(0, before.size() - form.call_open.size());
  const std::string rest = between->substr(0, between->size() - form.call_open.size());
  form.call_close = common_beginning(behind, rest);
  form.close = behind.substr(form.call_close.size());
  form.between = rest.substr(form.call_close.size());
}

// In place of what a call is called and has stand words for it.
Json shape_of(const Json& value, const Call& call) {
  if (value == call.name) return "$name";
  if (value.is_string() && value.get_ref<const std::string&>().starts_with(kId.substr(0, 8))) return "$id";
  if (value == call.arguments) return "$arguments";
  if (value.is_string() && Json::parse(value.get_ref<const std::string&>(), nullptr, false) == call.arguments)
    return "$arguments";
  if (!value.is_object()) return value;
  Json shape = Json::object();
  for (const auto& [key, field] : value.items()) shape[key == call.name ? "$name" : key] = shape_of(field, call);
  return shape;
}

// Texts of the objects of two calls that differ are the calls' ids.
void find_id(Json& shape, const Json& one, const Json& other) {
  for (auto& [key, value] : shape.items())
    if (one.contains(key) && other.contains(key) && value.is_string() && value == one[key] && one[key] != other[key])
      value = "$id";
}

std::optional<CallForm> object_form(const Shown& shown) {
  const auto body = json_with(shown.one, kNames[0]);
  if (!body) return std::nullopt;
  CallForm form;
  const Call call = two_calls()[0];
  Json value = Json::parse(shown.one.substr(body->begin, body->end - body->begin), nullptr, false);
  const std::string before = shown.one.substr(0, body->begin), behind = shown.one.substr(body->end);
  if (value.is_array()) {
    if (value.size() != 1) return std::nullopt;
    value = Json(value[0]);
    form.open = before + "[", form.close = "]" + behind, form.between = ", ";
    form.several = !shown.two.empty();
  } else {
    std::optional<std::string> between;
    const auto first = json_with(shown.two, kNames[0]),
               second = json_with(shown.two, kNames[1], first ? first->end : 0);
    if (first && second && first->end <= second->begin)
      between = shown.two.substr(first->end, second->begin - first->end);
    solve_marks(form, before, behind, between);
  }
  Json shape = shape_of(value, call);
  if (const auto second = json_with(shown.two, kNames[1])) {
    const Json both = Json::parse(shown.two.substr(second->begin, second->end - second->begin), nullptr, false);
    if (both.is_array() && both.size() == 2 && both[1].is_object() && shape.is_object()) find_id(shape, value, both[1]);
  }
  form.shape = shape.dump();
  if (!has(form.shape, "$name") || !has(form.shape, "$arguments")) return std::nullopt;
  return form;
}

std::optional<CallForm> named_form(const Shown& shown) {
  const std::string& one = shown.one;
  const size_t name = one.find(kNames[0]), behind_name = name + kNames[0].size();
  const auto body = json_with(one, kKeys[0], behind_name);
  if (!body) return std::nullopt;
  CallForm form;
  form.kind = CallForm::Kind::kNamed;
  std::optional<std::string> between;
  std::string behind_two;
  const std::string middle = one.substr(behind_name, body->begin - behind_name);
  form.name_close = middle;
  const size_t second = shown.two.find(kNames[1]);
  const auto first_body = json_with(shown.two, kKeys[0], shown.two.empty() ? 0 : shown.two.find(kNames[0]));
  if (second != std::string::npos && first_body && first_body->end <= second) {
    between = shown.two.substr(first_body->end, second - first_body->end);
    const auto second_body = json_with(shown.two, kKeys[0], second);
    if (second_body) behind_two = shown.two.substr(second_body->end);
    const size_t behind_second = second + kNames[1].size();
    const std::string other =
        second_body ? shown.two.substr(behind_second, second_body->begin - behind_second) : middle;
    // The id of a call stands there, or its number.
    if (const size_t digit = middle.find_first_of('0'); other != middle && digit != std::string::npos && digit > 0) {
      form.id_open = middle.substr(0, digit), form.name_close = middle.substr(digit + 1), form.id_is_index = true;
    }
  }
  if (const size_t id = middle.find(kId.substr(0, 8)); id != std::string::npos && id > 0) {
    size_t end = id + kId.size();
    if (middle.compare(end, 7, "-longer") == 0) end += 7;
    form.id_open = middle.substr(0, id), form.name_close = middle.substr(end), form.id_is_index = false;
  }
  solve_marks(form, one.substr(0, name), one.substr(body->end), between);
  // A template may write the mark behind all calls of several ones only.
  if (form.close.empty() && between && behind_two.starts_with(form.call_close)) {
    form.close = behind_two.substr(form.call_close.size());
    if (form.close.ends_with(shown.end)) form.close.resize(form.close.size() - shown.end.size());
  }
  return form;
}

// What stands between the needles of a call with two arguments.
std::optional<CallForm> tagged_form(const Shown& shown) {
  const std::string& one = shown.one;
  size_t at = 0;
  std::vector<std::string> parts;  // before the name, between name and key, key and value, value and key, ...
  for (const std::string_view needle : {kNames[0], kKeys[0], kValues[0], kKeys[1], kValues[1]}) {
    const size_t found = one.find(needle, at);
    if (found == std::string::npos) return std::nullopt;
    parts.push_back(one.substr(at, found - at));
    at = found + needle.size();
  }
  parts.push_back(one.substr(at));
  if (parts[2] != parts[4]) return std::nullopt;
  CallForm form;
  form.kind = parts[2].starts_with('=') && trimmed(parts[1]) == "("   ? CallForm::Kind::kPython
              : parts[2].starts_with(':') && trimmed(parts[1]) == "{" ? CallForm::Kind::kLiterals
                                                                      : CallForm::Kind::kTagged;
  const std::string& last = parts[5];
  std::string behind;
  if (form.kind == CallForm::Kind::kTagged) {
    form.key_open = common_end(parts[1], parts[3]);
    form.key_close = parts[2];
    form.name_close = parts[1].substr(0, parts[1].size() - form.key_open.size());
    const std::string value_end = parts[3].substr(0, parts[3].size() - form.key_open.size());
    form.value_close = common_beginning(value_end, last);
    behind = last.substr(form.value_close.size());
    if (trimmed(form.key_open).empty() || trimmed(form.key_close).empty() || trimmed(form.value_close).empty())
      return std::nullopt;
  } else {
    const char end = form.kind == CallForm::Kind::kPython ? ')' : '}';
    const size_t bracket = last.find(end);
    if (bracket == std::string::npos) return std::nullopt;
    if (form.kind == CallForm::Kind::kLiterals) form.text_quote = trimmed(std::string_view(parts[2]).substr(1));
    behind = last.substr(bracket + 1);
  }
  std::optional<std::string> between;
  if (const size_t second = shown.two.find(kNames[1]); second != std::string::npos) {
    const size_t value = shown.two.rfind(kValues[1], second);
    if (value != std::string::npos) {
      std::string all = shown.two.substr(value + kValues[1].size(), second - value - kValues[1].size());
      const size_t cut = last.size() - behind.size();
      if (all.compare(0, cut, last, 0, cut) == 0) between = all.substr(cut);
    }
  }
  solve_marks(form, parts[0], behind, between);
  return form;
}

struct ReadCall {
  std::string name, json;
  bool ended = false;
};

std::vector<ReadCall> read_calls(const CallForm& form, std::string_view text) {
  Form whole;
  whole.calls = form;
  AnswerReader reader(whole, tools(), false);
  std::vector<DialogEvent> events = reader.push(text);
  for (DialogEvent& event : reader.finish()) events.push_back(std::move(event));
  std::vector<ReadCall> calls;
  for (const DialogEvent& event : events) {
    if (const auto* begun = std::get_if<CallBegun>(&event)) calls.push_back({begun->name, ""});
    if (const auto* piece = std::get_if<ArgumentsPiece>(&event)) calls[piece->index].json += piece->json;
    if (const auto* ended = std::get_if<CallEnded>(&event)) calls[ended->index].ended = true;
  }
  return calls;
}

// Whatever order a template gives the keys.
bool same_value(const std::string& json, const Json& value) {
  return nlohmann::json::parse(json, nullptr, false) == nlohmann::json::parse(value.dump(), nullptr, false);
}

// A mark that has something of this one conversation in it is none.
bool has_needle(const CallForm& form) {
  for (const std::string* mark : {&form.open, &form.call_open, &form.call_close, &form.between, &form.close,
                                  &form.name_close, &form.id_open, &form.key_open, &form.key_close, &form.value_close})
    if (has(*mark, kId.substr(0, 8))) return true;
  return false;
}

// What is rendered is read back as what was rendered.
bool verified(const Renderer& render, const CallStyle& style, const CallForm& form, const Shown& shown) {
  std::vector<std::vector<Call>> cases;
  cases.push_back({{"zqcheck", {{"text", "say \"hi\"\n a\\b \xC3\xA9"}, {"count", 12}}}});
  cases.push_back({{"zqcheck", {{"text", "12"}, {"flag", true}, {"list", {"a", "b c"}}, {"map", {{"a", 2.5}}}}}});
  cases.push_back({{"zqcheck", Json::object()}});
  if (form.several)
    cases.push_back({{"zqcheck", {{"count", 1}}},
                     {std::string(kNames[0]), {{std::string(kKeys[0]), "x"}}},
                     {"zqcheck", Json::object()}});
  for (const std::vector<Call>& calls : cases) {
    const auto text = render(Json::array({user(), answer("", calls, style)}), false, variables_with_tools());
    if (!text || !text->starts_with(shown.before) || !text->ends_with(shown.behind)) return false;
    const std::vector<ReadCall> read = read_calls(
        form,
        std::string_view(*text).substr(shown.before.size(), text->size() - shown.before.size() - shown.behind.size()));
    if (read.size() != calls.size()) return false;
    for (size_t i = 0; i < calls.size(); ++i)
      if (!read[i].ended || read[i].name != calls[i].name || !same_value(read[i].json, calls[i].arguments))
        return false;
  }
  return true;
}

}  // namespace

std::optional<CallForm> find_calls(const Renderer& render, const CallStyle& style) {
  const std::optional<Shown> shown = shown_calls(render, style);
  if (!shown) return std::nullopt;
  std::vector<std::optional<CallForm>> forms;
  if (has(shown->one, "<|channel|>") && has(shown->one, "to=functions." + std::string(kNames[0]))) {
    forms.emplace_back(CallForm());
    forms.back()->kind = CallForm::Kind::kChannels, forms.back()->several = false;
  }
  forms.push_back(object_form(*shown));
  forms.push_back(named_form(*shown));
  forms.push_back(tagged_form(*shown));
  for (std::optional<CallForm>& form : forms)
    if (form && !has_needle(*form) && verified(render, style, *form, *shown)) return form;
  return std::nullopt;
}

}  // namespace situ::probe
