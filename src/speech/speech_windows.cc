#include "speech/speech_windows.h"

#include <algorithm>
#include <limits>

namespace situ {

static constexpr int64_t kPause = 2;  // seconds of silence that stay between spans, as in faster-whisper

SpeechWindows::SpeechWindows(SampleWindows::Read read, VoiceActivity activity, int64_t rate, int64_t longest)
    : rate_(rate), longest_(longest), spans_(std::move(read), std::move(activity), kPause * rate) {}

void SpeechWindows::add(SpeechWindow& window, int64_t begin, int64_t end) {
  const std::span<const float> samples = spans_.samples(begin, end);
  if (window.samples.empty() || begin != end_)
    window.pieces.pieces.push_back({static_cast<int64_t>(window.samples.size()), begin});
  window.samples.insert(window.samples.end(), samples.begin(), samples.end());
  end_ = end;
  spans_.take(end);
}

Result<std::optional<SpeechWindow>> SpeechWindows::next() {
  SpeechWindow window;
  for (;;) {
    const int64_t room = longest_ - static_cast<int64_t>(window.samples.size());
    const Result<std::optional<VoiceSpan>> span = spans_.peek(room + 1);
    if (!span.is_ok()) return span.status();
    if (!*span) break;
    auto [begin, end] = **span;
    if (!window.samples.empty() && begin - end_ <= kPause * rate_) begin = end_;
    if (end - begin <= room) {
      add(window, begin, end);
      continue;
    }
    if (window.samples.empty()) add(window, begin, quietest(begin + longest_ * 2 / 3, begin + longest_));
    break;
  }
  if (window.samples.empty()) return std::optional<SpeechWindow>();
  return std::optional(std::move(window));
}

// The middle of the tenth of a second that has the least power.
int64_t SpeechWindows::quietest(int64_t begin, int64_t end) const {
  const std::span<const float> x = spans_.samples(begin, end);
  const size_t width = std::min(x.size(), static_cast<size_t>(rate_ / 10));
  double power = 0, least = std::numeric_limits<double>::infinity();
  int64_t found = end;
  for (size_t i = 0; i < x.size(); ++i) {
    power += static_cast<double>(x[i]) * static_cast<double>(x[i]);
    if (i >= width) power -= static_cast<double>(x[i - width]) * static_cast<double>(x[i - width]);
    if (i + 1 < width || !(power < least)) continue;
    least = power;
    found = begin + static_cast<int64_t>(i + 1 - width / 2);
  }
  return found;
}

}  // namespace situ
