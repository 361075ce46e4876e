#include "text/dialog/lark.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "text/dialog/marks.h"

namespace situ {

std::string Lark::literal(std::string_view text) { return nlohmann::json(text).dump(); }

std::string Lark::escaped(std::string_view text) {
  std::string regex;
  for (const char c : text) {
    if (c == '\n' || c == '\r' || c == '\t') {
      regex += c == '\n' ? "\\n" : c == '\r' ? "\\r" : "\\t";
      continue;
    }
    if (std::string_view("\\.+*?()|[]{}^$#&-~/\"").find(c) != std::string_view::npos) regex += '\\';
    regex += c;
  }
  return regex;
}

// Special tokens are <...> or [...], or the whole mark.
std::vector<Lark::Part> Lark::parts_of(std::string_view mark) const {
  std::vector<Part> parts;
  std::string text;
  const auto end_text = [&] {
    if (!text.empty()) parts.push_back({text, std::nullopt});
    text.clear();
  };
  for (size_t at = 0; at < mark.size();) {
    std::optional<int64_t> id;
    size_t size = 0;
    if (special_ && (mark[at] == '<' || mark[at] == '[')) {
      size = std::min(mark.find(mark[at] == '<' ? '>' : ']', at), mark.size() - 1) + 1 - at;
      id = special_(mark.substr(at, size));
    }
    if (!id) {
      text += mark[at++];
      continue;
    }
    end_text();
    parts.push_back({std::string(mark.substr(at, size)), id});
    at += size;
  }
  end_text();
  return parts;
}

std::string Lark::mark(std::string_view text) const {
  std::string body;
  for (const Part& part : parts_of(text))
    body += (body.empty() ? "" : " ") + (part.id ? "<[" + std::to_string(*part.id) + "]>" : literal(part.text));
  return body;
}

bool Lark::begins_special(std::string_view mark) const {
  const std::vector<Part> parts = parts_of(mark);
  return !parts.empty() && parts[0].id;
}

std::string Lark::text_without(std::string_view mark, const std::string& but) {
  std::string body = "/(?s:.+)/";
  if (!mark.empty() && !begins_special(mark)) body += " & ~/(?s:.*)" + escaped(parts_of(mark)[0].text) + "(?s:.*)/";
  if (!but.empty()) body += " & ~/" + but + "/";
  return lexeme(body);
}

std::string Lark::text_to(std::string_view mark, const std::string& but) {
  const std::vector<Part> parts = parts_of(mark);
  if (parts[0].id) return rule(text_without("", but) + "? " + this->mark(mark));
  std::string body = "/(?s:.*)" + escaped(parts[0].text) + "/";
  if (!but.empty()) body += " & ~/" + but + "/";
  const std::string first = lexeme(body, "[lazy]");
  const std::string rest = this->mark(mark.substr(parts[0].text.size()));
  return rest.empty() ? first : rule(first + " " + rest);
}

std::string Lark::mark_first(std::string_view text) {
  if (begins_special(text)) return lexeme("/[ \\t\\r\\n]{1,8}/") + "? " + mark(text);
  const std::vector<Part> parts = parts_of(text);
  if (parts.empty()) return "";
  const std::string first = lexeme("/[ \\t\\r\\n]{0,8}" + escaped(parts[0].text) + "/", "[lazy]");
  const std::string rest = mark(text.substr(parts[0].text.size()));
  return rest.empty() ? first : first + " " + rest;
}

std::string Lark::rule(const std::string& body) {
  const auto [found, added] = names_.try_emplace(body, "r" + std::to_string(names_.size()));
  if (added) rules_ += found->second + ": " + body + "\n";
  return found->second;
}

std::string Lark::name() {
  const std::string name = "r" + std::to_string(names_.size());
  names_["\n" + name] = name;  // no body begins so
  return name;
}

std::string Lark::lexeme(const std::string& body, const std::string& attributes) {
  const auto [found, added] =
      names_.try_emplace(attributes + body, (attributes.empty() ? "T" : "r") + std::to_string(names_.size()));
  if (added) rules_ += found->second + attributes + ": " + body + "\n";
  return found->second;
}

}  // namespace situ
