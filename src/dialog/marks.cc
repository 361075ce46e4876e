#include "dialog/marks.h"

#include <algorithm>
#include <cctype>

namespace situ {

bool is_cut_mark(std::string_view end, std::string_view mark) {
  return match_mark(end, mark).kind == MarkMatch::Kind::kBegun &&
         std::any_of(end.begin(), end.end(), [](unsigned char c) { return std::isalnum(c) != 0 || c >= 0x80; });
}

MarkMatch match_mark(std::string_view text, std::string_view mark) {
  size_t at = 0;
  for (size_t i = 0; i < mark.size();) {
    if (is_space(mark[i])) {
      while (is_space(mark[i])) ++i;
      while (at < text.size() && is_space(text[at])) ++at;
    }
    if (at == text.size()) return {MarkMatch::Kind::kBegun};
    if (text[at++] != mark[i++]) return {};
  }
  return {MarkMatch::Kind::kWhole, at};
}

}  // namespace situ
