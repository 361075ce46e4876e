#include "speech/speech_only.h"

#include <algorithm>

namespace situ {

static constexpr size_t kPiece = 16384;  // samples that are read at once

Result<size_t> SpeechOnly::read(std::span<float> out) {
  size_t written = 0;
  while (written < out.size()) {
    if (!span_) {
      span_ = activity_.next();
      if (span_) pieces_.push_back({kept_, span_->begin});
    }
    if (span_) {
      const int64_t from = span_->begin - first_,
                    count = std::min<int64_t>(span_->end - span_->begin, static_cast<int64_t>(out.size() - written));
      for (int64_t i = 0; i < count; ++i) out[written + static_cast<size_t>(i)] = held_[static_cast<size_t>(from + i)];
      written += static_cast<size_t>(count);
      kept_ += count;
      span_->begin += count;
      if (span_->begin == span_->end) span_.reset();
      continue;
    }
    if (ended_) break;
    // Nothing before this is in a span that is still to come.
    const int64_t gone = std::min(activity_.decided() - first_, static_cast<int64_t>(held_.size()));
    if (gone > 0) {
      held_.erase(held_.begin(), held_.begin() + gone);
      first_ += gone;
    }
    const size_t have = held_.size();
    held_.resize(have + kPiece);
    const Result<size_t> count = read_(std::span(held_).subspan(have));
    held_.resize(have + (count.is_ok() ? *count : 0));
    if (!count.is_ok()) return count;
    activity_.push(std::span(held_).subspan(have));
    if (*count < kPiece) {
      activity_.finish();
      ended_ = true;
    }
  }
  return written;
}

int64_t SpeechOnly::original(int64_t kept, bool end) const {
  // The end of a piece is its own, not the beginning of the next.
  auto after = std::partition_point(pieces_.begin(), pieces_.end(),
                                    [&](const Piece& p) { return end ? p.kept < kept : p.kept <= kept; });
  if (after == pieces_.begin()) return kept;
  --after;
  return after->original + (kept - after->kept);
}

}  // namespace situ
