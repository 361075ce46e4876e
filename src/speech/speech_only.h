// A recording without what is no speech, and where its samples stood.
#pragma once

#include <vector>

#include "audio/sample_windows.h"
#include "audio/voice_activity.h"

namespace situ {

class SpeechOnly {
 public:
  SpeechOnly(SampleWindows::Read read, VoiceActivity activity)
      : read_(std::move(read)), activity_(std::move(activity)) {}

  // As SampleWindows::Read.
  Result<size_t> read(std::span<float> out);
  // Where a sample that was read, or the end of one, stood in the recording.
  int64_t original(int64_t kept, bool end) const;

 private:
  struct Piece {
    int64_t kept, original;  // where it begins
  };
  SampleWindows::Read read_;
  VoiceActivity activity_;
  std::vector<Piece> pieces_;
  std::optional<VoiceSpan> span_;  // that samples are taken from
  std::vector<float> held_;        // samples that may still be in a span
  int64_t first_ = 0, kept_ = 0;   // the sample that held_[0] is; samples given
  bool ended_ = false;
};

}  // namespace situ
