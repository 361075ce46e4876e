#include "requests/score_decoding.h"

#include <algorithm>

namespace situ {

ScoreDecoding::ScoreDecoding(Strand from, std::vector<int64_t> tokens, std::vector<Window> windows, bool in_one,
                             Read read)
    : Errand(*from.served),
      from_(std::move(from)),
      tokens_(std::move(tokens)),
      windows_(std::move(windows)),
      in_one_(in_one),
      read_(std::move(read)),
      next_(windows_[0].scored) {}

int64_t ScoreDecoding::tokens_to_feed() const {
  return std::min(windows_[window_].end - windows_[window_].begin, served_.context_length) - strand_.length();
}

Result<bool> ScoreDecoding::begin(Clock::time_point, Figures&) {
  strand_ = from_.fork();
  return true;
}

Status ScoreDecoding::wants(std::vector<Want>& wants) {
  const Window& w = windows_[window_];
  const int64_t fed = w.begin + strand_.length();  // tokens of the text that the strand has, or are not its
  const auto part = [&](int64_t to) {
    return std::span(tokens_).subspan(static_cast<size_t>(fed), static_cast<size_t>(to - fed));
  };
  Want want;
  want.strand = &strand_;
  want.wanted = 0;
  want.apart = false;
  if (in_one_ && fed < w.scored) {
    want.tokens = part(w.scored);
    want.wanted = 1;
    want.prompt = want.tokens.size() > 1;
  } else if (fed < w.scored - 1) {
    want.tokens = part(w.scored - 1);
    want.prompt = true;
  } else {
    want.tokens = part(std::min(w.end - 1, fed + served_.rows_of_one()));
    want.wanted = std::ssize(want.tokens);
    want.prompt = want.wanted > 1;
  }
  wants.push_back(want);
  return Status::ok();
}

void ScoreDecoding::take(const Want&, Rows rows) {
  const int64_t first =
      windows_[window_].begin + strand_.length() - std::ssize(rows) + 1;  // token that a row foretells
  for (int64_t r = 0; r < std::ssize(rows); ++r)
    if (first + r == next_) read_(next_++, rows[static_cast<size_t>(r)]);
}

void ScoreDecoding::settle() {
  if (next_ < windows_[window_].end) return;
  if (++window_ == windows_.size()) return end_with(Status::ok());
  next_ = windows_[window_].scored;
  strand_ = from_.fork();
}

}  // namespace situ
