#include "speech/speech_spans.h"

#include <algorithm>

namespace situ {

static constexpr size_t kPiece = 16384;  // samples that are read at once

Result<std::optional<VoiceSpan>> SpeechSpans::peek(int64_t enough) {
  for (;;) {
    if (!span_) span_ = activity_.next();
    if (span_ && span_->end <= taken_) {
      span_.reset();
      continue;
    }
    std::optional<VoiceSpan> found = span_ ? span_ : activity_.open();
    if (found) found->begin = std::max(found->begin, taken_);
    if (span_ || (found && found->end - found->begin >= enough)) return found;
    if (ended_) return std::optional<VoiceSpan>();
    SITU_RETURN_IF_ERROR(more());
  }
}

Status SpeechSpans::more() {
  // Nothing before this is in a span that is still to come.
  int64_t needed = activity_.decided();
  if (const std::optional<VoiceSpan> open = activity_.open()) needed = std::min(needed, open->begin);
  const int64_t gone = std::min(std::max(needed, taken_) - before_ - first_, static_cast<int64_t>(held_.size()));
  if (gone > 0) {
    held_.erase(held_.begin(), held_.begin() + gone);
    first_ += gone;
  }
  const size_t have = held_.size();
  held_.resize(have + kPiece);
  const Result<size_t> count = read_(std::span(held_).subspan(have));
  held_.resize(have + (count.is_ok() ? *count : 0));
  if (!count.is_ok()) return count.status();
  activity_.push(std::span(held_).subspan(have));
  if (*count < kPiece) {
    activity_.finish();
    ended_ = true;
  }
  return Status::ok();
}

}  // namespace situ
