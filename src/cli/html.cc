#include "cli/html.h"

#include <cstdio>

#include "cli/terminal.h"

namespace situ::cli {
namespace {

constexpr size_t kMostBytes = 400;  // names are 60; one of a file made to fill pages is not

}  // namespace

std::string escaped(std::string_view text) {
  std::string html;
  for (const char c : one_line(text, kMostBytes)) {
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
