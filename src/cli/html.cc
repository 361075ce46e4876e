#include "cli/html.h"

#include <algorithm>
#include <cstdio>

#include "cli/terminal.h"

namespace situ::cli {
namespace {

constexpr size_t kMostBytes = 400;  // names are 60; one of a file made to fill pages is not

// Moves `at` back to where a character of UTF-8 begins.
size_t character_start(std::string_view text, size_t at) {
  while (at > 0 && (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80) --at;
  return at;
}

}  // namespace

std::string escaped(std::string_view text) {
  std::string line = one_line(text.substr(0, std::min(text.size(), 2 * kMostBytes)));
  if (line.size() > kMostBytes || text.size() > 2 * kMostBytes) {
    const std::string_view last = text.substr(character_start(text, text.size() - std::min(text.size(), size_t{60})));
    line = line.substr(0, character_start(line, std::min(line.size() - 1, kMostBytes - 80))) + "…" + one_line(last);
  }
  std::string html;
  for (const char c : line) {
    switch (c) {
      case '&':
        html += "&amp;";
        break;
      case '<':
        html += "&lt;";
        break;
      case '>':
        html += "&gt;";
        break;
      case '"':
        html += "&quot;";
        break;
      case '\'':
        html += "&#39;";
        break;
      default:
        html += c;
    }
  }
  return html;
}

std::string code(std::string_view text) { return "<code>" + escaped(text) + "</code>"; }

std::string grouped(int64_t number) {
  std::string digits = std::to_string(number);
  for (size_t at = digits.size(); at > (number < 0 ? 4u : 3u);) digits.insert(at -= 3, ",");
  return digits;
}

std::string decimal(double number) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.4f", number);
  std::string shown = text;
  shown.erase(shown.find_last_not_of('0') + 1);
  if (shown.back() == '.') shown.pop_back();
  return shown;
}

double percent(double part, double whole) { return whole > 0 ? 100 * part / whole : 0; }

}  // namespace situ::cli
