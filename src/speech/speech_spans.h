// Stretches of speech in a recording, with their samples, while it is read.
#pragma once

#include <optional>
#include <vector>

#include "audio/sample_windows.h"
#include "audio/voice_activity.h"

namespace situ {

class SpeechSpans {
 public:
  // `before`: samples in front of what is not taken that stay readable.
  SpeechSpans(SampleWindows::Read read, VoiceActivity activity, int64_t before = 0)
      : read_(std::move(read)), activity_(std::move(activity)), before_(before) {}

  // What is left of the next span: all of it, or at least `enough` samples (above 0) of one whose end is not known yet.
  // nullopt: no speech is left. Errors: those of reading.
  Result<std::optional<VoiceSpan>> peek(int64_t enough);
  // Speech before this sample was used.
  void take(int64_t end) { taken_ = end; }
  // Samples [begin, end) of the recording. `begin`: not before what is taken, less `before`; `end`: at most that of the
  // span that peek() gave. Valid until the next peek().
  std::span<const float> samples(int64_t begin, int64_t end) const {
    return std::span(held_).subspan(static_cast<size_t>(begin - first_), static_cast<size_t>(end - begin));
  }

 private:
  Status more();

  SampleWindows::Read read_;
  VoiceActivity activity_;
  const int64_t before_;
  std::optional<VoiceSpan> span_;  // that is complete
  std::vector<float> held_;        // samples that may still be asked for
  int64_t first_ = 0, taken_ = 0;  // the sample that held_[0] is
  bool ended_ = false;
};

}  // namespace situ
