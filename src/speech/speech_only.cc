#include "speech/speech_only.h"

#include <algorithm>

namespace situ {

Result<size_t> SpeechOnly::read(std::span<float> out) {
  size_t written = 0;
  while (written < out.size()) {
    const Result<std::optional<VoiceSpan>> span = spans_.peek(1);
    if (!span.is_ok()) return span.status();
    if (!*span) break;
    const int64_t begin = (*span)->begin,
                  count = std::min((*span)->end - begin, static_cast<int64_t>(out.size() - written));
    if (begin != end_) pieces_.pieces.push_back({kept_, begin});
    const std::span<const float> samples = spans_.samples(begin, begin + count);
    for (size_t i = 0; i < samples.size(); ++i) out[written + i] = samples[i];
    written += samples.size();
    kept_ += count;
    end_ = begin + count;
    spans_.take(end_);
  }
  return written;
}

}  // namespace situ
