#include "text/dialog/marks.h"

namespace situ {

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
