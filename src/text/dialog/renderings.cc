#include "text/dialog/renderings.h"

#include <algorithm>

#include "text/dialog/history.h"

namespace situ::probe {
namespace {

size_t equal_before(std::string_view a, std::string_view b) {
  const size_t most = std::min(a.size(), b.size());
  size_t size = 0;
  while (size < most && a[size] == b[size]) ++size;
  return size;
}

size_t equal_behind(std::string_view a, std::string_view b) {
  const size_t most = std::min(a.size(), b.size());
  size_t size = 0;
  while (size < most && a[a.size() - 1 - size] == b[b.size() - 1 - size]) ++size;
  return size;
}

bool continues(char c) { return (static_cast<unsigned char>(c) & 0xC0) == 0x80; }

// A beginning that ends inside a mark or a character ends before it.
size_t whole_before(std::string_view text, size_t size) {
  while (size > 0 && size < text.size() && continues(text[size])) --size;
  for (const auto& [open, close] : {std::pair{'<', '>'}, {'[', ']'}}) {
    const std::string_view begun = text.substr(0, size);
    const size_t at = begun.rfind(open);
    if (at == std::string_view::npos || begun.find(close, at) != std::string_view::npos) continue;
    const size_t end = text.find(close, size);
    // A bracket that nothing closes nearby is no mark; nor is one with a space or quotes in it.
    if (end == std::string_view::npos || text.substr(at, end - at).find_first_of(" \n\"{") != std::string_view::npos)
      continue;
    size = at;
  }
  return size;
}

// An end that begins inside a mark begins behind it.
size_t whole_behind(std::string_view text, size_t size) {
  while (size > 0 && continues(text[text.size() - size])) --size;
  for (const auto& [open, close] : {std::pair{'<', '>'}, {'[', ']'}}) {
    const std::string_view end = text.substr(text.size() - size);
    const size_t at = end.find(close);
    if (at == std::string_view::npos || end.substr(0, at).find(open) != std::string_view::npos) continue;
    const std::string_view before = text.substr(0, text.size() - size);
    const size_t begin = before.rfind(open);
    if (begin == std::string_view::npos || before.find(close, begin) != std::string_view::npos) continue;
    if (text.substr(begin, text.size() - size + at - begin).find_first_of("\n{") != std::string_view::npos) continue;
    size -= at + 1;
  }
  return size;
}

}  // namespace

bool has(std::string_view text, std::string_view part) { return text.find(part) != std::string_view::npos; }

Common common(std::string_view a, std::string_view b) {
  const size_t before = std::min(whole_before(a, equal_before(a, b)), whole_before(b, equal_before(a, b)));
  const std::string_view rest_a = a.substr(before), rest_b = b.substr(before);
  const size_t behind = equal_behind(rest_a, rest_b);
  return {before, std::min(whole_behind(a, behind), whole_behind(b, behind))};
}

std::string common_beginning(std::string_view a, std::string_view b) {
  const size_t size = equal_before(a, b);
  return std::string(a.substr(0, std::min(whole_before(a, size), whole_before(b, size))));
}

std::string common_end(std::string_view a, std::string_view b) {
  const size_t size = equal_behind(a, b);
  return std::string(a.substr(a.size() - std::min(whole_behind(a, size), whole_behind(b, size))));
}

Json user() { return {{"role", "user"}, {"content", kUser}}; }

Json answer(std::string_view text) { return {{"role", "assistant"}, {"content", text}}; }

Json answer(std::string_view text, const std::vector<Call>& calls, const CallStyle& style) {
  Json message = answer(text);
  if (style.null_content && text.empty()) message["content"] = nullptr;
  message["tool_calls"] = Json::array();
  for (const Call& call : calls) {
    const size_t index = message["tool_calls"].size();
    const std::string own = std::string(kId.substr(0, 8)) + static_cast<char>('1' + index);
    const std::string id = style.ids == Form::Ids::kFunctionIndex
                               ? "functions." + call.name + ":" + std::to_string(index)
                           : style.ids == Form::Ids::kAny ? own + "-longer"
                                                          : own;
    const Json arguments = style.arguments_as_text ? Json(call.arguments.dump()) : call.arguments;
    message["tool_calls"].push_back(
        {{"id", id}, {"type", "function"}, {"function", {{"name", call.name}, {"arguments", arguments}}}});
  }
  return message;
}

std::vector<Tool> tools() {
  std::vector<Tool> all;
  for (const std::string_view name : kNames) {
    Json properties = Json::object();
    for (const std::string_view key : kKeys)
      properties[std::string(key)] = {{"type", "string"}, {"description", "A text."}};
    all.push_back({std::string(name), "Says something.",
                   Json{{"type", "object"}, {"properties", properties}, {"required", Json::array()}}.dump()});
  }
  const Json properties = {
      {"text", {{"type", "string"}, {"description", "A text."}}},
      {"count", {{"type", "integer"}, {"description", "A number."}}},
      {"flag", {{"type", "boolean"}, {"description", "A flag."}}},
      {"list", {{"type", "array"}, {"items", {{"type", "string"}}}, {"description", "A list."}}},
      {"map", {{"type", "object"}, {"properties", {{"a", {{"type", "number"}}}}}, {"description", "A map."}}}};
  all.push_back(
      {"zqcheck", "Checks.", Json{{"type", "object"}, {"properties", properties}, {"required", Json::array()}}.dump()});
  return all;
}

Json variables_with_tools() {
  Json list = Json::array();
  for (const Tool& tool : tools()) list.push_back(json_of(tool));
  return {{"tools", list}};
}

std::optional<std::string> Renderer::operator()(const Json& messages, bool prompt, const Json& variables) const {
  Result<std::string> text = render_(messages, prompt, variables);
  return text.is_ok() ? std::optional(std::move(*text)) : std::nullopt;
}

}  // namespace situ::probe
