#include "requests/decoding.h"

#include <algorithm>

namespace situ {

Want next_of(Strand& strand, std::span<const int64_t> ids, size_t prompt, size_t branch) {
  const auto begin = static_cast<size_t>(strand.length());
  Want want;
  want.strand = &strand;
  want.branch = branch;
  if (begin < prompt) {
    want.tokens = ids.subspan(begin, prompt - begin);
    want.prompt = true;
    want.whole = static_cast<int64_t>(prompt);
  } else {
    want.tokens = ids.subspan(begin, std::min(ids.size() - begin, static_cast<size_t>(strand.served->rows_of_one())));
    want.wanted = static_cast<int64_t>(want.tokens.size());
  }
  return want;
}

Event end_of(const Generation& answer) {
  Event last{-1, ""};
  last.finish = answer.finish_reason;
  return last;
}

}  // namespace situ
