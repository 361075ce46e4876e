#include "generate/prompt_lookup.h"

#include <algorithm>

namespace situ {

std::span<const int64_t> lookup_prompt(std::span<const int64_t> text, int64_t most) {
  constexpr size_t kLongest = 3, kShortest = 2;
  for (size_t n = kLongest; n >= kShortest; --n) {
    if (text.size() <= n) continue;
    const std::span<const int64_t> last = text.last(n);
    for (size_t begin = text.size() - n; begin-- > 0;)
      if (std::equal(last.begin(), last.end(), text.begin() + static_cast<long>(begin)))
        return text.subspan(begin + n, std::min(static_cast<size_t>(most), text.size() - begin - n));
  }
  return {};
}

}  // namespace situ
