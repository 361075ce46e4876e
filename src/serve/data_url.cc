#include "serve/data_url.h"

#include <algorithm>
#include <array>
#include <string>

namespace situ::serve {
namespace {

constexpr std::string_view kSpace = "\t\n\f\r ";

bool is_in(std::string_view set, char c) { return set.find(c) != std::string_view::npos; }

std::string_view stripped(std::string_view text, std::string_view of) {
  const size_t first = text.find_first_not_of(of);
  return first == std::string_view::npos ? "" : text.substr(first, text.find_last_not_of(of) - first + 1);
}

// `begin` is in small letters.
bool begins_with(std::string_view text, std::string_view begin) {
  const auto same = [](char a, char b) { return (a >= 'A' && a <= 'Z' ? a | 32 : a) == b; };
  return text.size() >= begin.size() &&
         std::equal(begin.begin(), begin.end(), text.begin(), [&](char b, char a) { return same(a, b); });
}

int digit_of(char c) {
  const char small = static_cast<char>(c | 32);
  return c >= '0' && c <= '9' ? c - '0' : small >= 'a' && small <= 'f' ? small - 'a' + 10 : -1;
}

// `;`, spaces, `base64`: the end of a type whose body is base64.
bool ends_with_base64(std::string_view type) {
  constexpr std::string_view kWord = "base64";
  if (type.size() < kWord.size() || !begins_with(type.substr(type.size() - kWord.size()), kWord)) return false;
  type.remove_suffix(kWord.size());
  return type.substr(0, type.find_last_not_of(' ') + 1).ends_with(';');
}

// Escapes are resolved; line ends and tabs, which a URL has none of, are left out.
template <typename Add>
void each_byte(std::string_view body, const Add& add) {
  for (size_t i = 0; i < body.size(); ++i) {
    if (is_in("\t\n\r", body[i])) continue;
    const bool escape =
        body[i] == '%' && i + 2 < body.size() && digit_of(body[i + 1]) >= 0 && digit_of(body[i + 2]) >= 0;
    add(escape ? static_cast<char>(16 * digit_of(body[i + 1]) + digit_of(body[i + 2])) : body[i]);
    if (escape) i += 2;
  }
}

// A URL's own white space: control characters and blanks around it.
std::string_view without_ends(std::string_view url) {
  const auto counts = [](char c) { return static_cast<unsigned char>(c) > ' '; };
  const auto first = std::find_if(url.begin(), url.end(), counts);
  const auto last = std::find_if(url.rbegin(), url.rend(), counts).base();
  return first < last ? url.substr(static_cast<size_t>(first - url.begin()), static_cast<size_t>(last - first)) : "";
}

}  // namespace

bool is_data_url(std::string_view url) { return begins_with(without_ends(url), "data:"); }

std::optional<std::vector<uint8_t>> bytes_of_data_url(std::string_view url) {
  if (!is_data_url(url)) return std::nullopt;
  url = without_ends(url);
  url = url.substr(0, url.find('#'));
  const size_t comma = url.find(',');
  if (comma == std::string_view::npos) return std::nullopt;
  std::string type;
  for (const char c : url.substr(0, comma))
    if (!is_in("\t\n\r", c)) type += c;
  constexpr std::string_view kScheme = "data:";
  const std::string_view body = url.substr(comma + 1);
  if (!ends_with_base64(stripped(std::string_view(type).substr(kScheme.size()), kSpace))) {
    std::vector<uint8_t> bytes;
    each_byte(body, [&](char c) { bytes.push_back(static_cast<uint8_t>(c)); });
    return bytes;
  }
  if (body.find('%') == std::string_view::npos) return from_base64(body);  // no copy of what may be megabytes
  std::string text;
  each_byte(body, [&](char c) { text += c; });
  return from_base64(text);
}

std::optional<std::vector<uint8_t>> from_base64(std::string_view text) {
  constexpr std::string_view kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  constexpr int8_t kNone = -1, kBlank = -2, kPad = -3;
  std::array<int8_t, 256> value;
  value.fill(kNone);
  for (size_t i = 0; i < kDigits.size(); ++i) value[static_cast<unsigned char>(kDigits[i])] = static_cast<int8_t>(i);
  for (const char c : kSpace) value[static_cast<unsigned char>(c)] = kBlank;
  value['='] = kPad;
  std::vector<uint8_t> bytes;
  bytes.reserve(text.size() * 3 / 4);
  uint32_t bits = 0;
  int count = 0;
  size_t digits = 0, padding = 0;
  for (const char c : text) {
    const int v = value[static_cast<unsigned char>(c)];
    if (v == kBlank) continue;
    if (v == kPad) {
      ++padding;
      continue;
    }
    if (v == kNone || padding > 0) return std::nullopt;
    ++digits;
    bits = bits << 6 | static_cast<uint32_t>(v);
    count += 6;
    if (count < 8) continue;
    count -= 8;
    bytes.push_back(static_cast<uint8_t>(bits >> count));
  }
  if (digits % 4 == 1 || (padding > 0 && (padding > 2 || (digits + padding) % 4 != 0))) return std::nullopt;
  return bytes;
}

}  // namespace situ::serve
