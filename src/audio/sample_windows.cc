#include "audio/sample_windows.h"

#include <algorithm>
#include <string>
#include <utility>

namespace situ {

SampleWindows::SampleWindows(Read read, const MelConfig& config)
    : read_(std::move(read)), window_(static_cast<int64_t>(config.window_samples())), context_(config.fft / 2) {}

// Reads until the buffer ends at sample `end`, or the file does.
Status SampleWindows::fill(int64_t end) {
  // Pieces of a window at most: a start far ahead does not make the buffer grow.
  while (!ended_ && samples() < end) {
    const size_t have = buffer_.size();
    const auto wanted = static_cast<size_t>(std::min(end - samples(), window_));
    buffer_.resize(have + wanted);
    const Result<size_t> read = read_(std::span(buffer_).subspan(have));
    buffer_.resize(have + (read.is_ok() ? *read : 0));
    if (!read.is_ok()) return read.status();
    ended_ = *read < wanted;
    // What no window can want any more: more than a window and its context behind this one.
    const int64_t keep = std::min(end - 2 * window_ - 3 * context_, samples());
    if (keep - first_ >= window_) {
      buffer_.erase(buffer_.begin(), buffer_.begin() + (keep - first_));
      first_ = keep;
    }
  }
  return Status::ok();
}

Result<MelWindow> SampleWindows::at(int64_t start) {
  if (start < 0 || (first_ > 0 && start - context_ < first_)) {
    return Status::error(Code::kInvalidArgument, "the window at sample " + std::to_string(start) +
                                                     " is gone: samples from " + std::to_string(first_) +
                                                     " on are held");
  }
  SITU_RETURN_IF_ERROR(fill(start + window_ + context_));
  MelWindow window;
  if (start >= samples()) return window;
  const std::span<const float> held(buffer_);
  const auto from = static_cast<size_t>(start - first_), context = static_cast<size_t>(context_);
  window.samples = held.subspan(from, std::min(static_cast<size_t>(window_), held.size() - from));
  if (start >= context_) window.before = held.subspan(from - context, context);
  const size_t end = from + static_cast<size_t>(window_);
  if (end + context <= held.size()) window.after = held.subspan(end, context);
  return window;
}

}  // namespace situ
