// Marks of a form in a text that still comes in pieces: white space of a mark stands for any, also for none.
#pragma once

#include <cstddef>
#include <string_view>

namespace situ {

inline bool is_space(char c) { return c == ' ' || c == '\n' || c == '\t' || c == '\r'; }

inline std::string_view trimmed_right(std::string_view text) {
  while (!text.empty() && is_space(text.back())) text.remove_suffix(1);
  return text;
}

inline std::string_view trimmed_left(std::string_view text) {
  while (!text.empty() && is_space(text.front())) text.remove_prefix(1);
  return text;
}

inline std::string_view trimmed(std::string_view text) { return trimmed_right(trimmed_left(text)); }

struct MarkMatch {
  enum class Kind { kNo, kWhole, kBegun } kind = Kind::kNo;  // kBegun: more text decides
  size_t size = 0;                                           // of kWhole: bytes of the text
};

// Whether `text` begins with the mark, which neither begins nor ends with white space.
MarkMatch match_mark(std::string_view text, std::string_view mark);

}  // namespace situ
