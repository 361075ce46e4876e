// A character that stands in a text and is left out of it later.
#pragma once

#include <string>
#include <string_view>

namespace situ {

// Of U+0800 to U+FFFF.
inline std::string utf8_of(char32_t mark) {
  return {static_cast<char>(0xE0 | mark >> 12), static_cast<char>(0x80 | (mark >> 6 & 0x3F)),
          static_cast<char>(0x80 | (mark & 0x3F))};
}

// `mark` 0: the same text.
inline std::string without_mark(std::string_view text, char32_t mark) {
  if (mark == 0) return std::string(text);
  const std::string bytes = utf8_of(mark);
  std::string left;
  for (size_t at = 0; (at = text.find(bytes)) != std::string_view::npos; text.remove_prefix(at + bytes.size()))
    left += text.substr(0, at);
  return left += text;
}

}  // namespace situ
