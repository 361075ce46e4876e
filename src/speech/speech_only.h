// A recording without what is no speech, and where its samples stood.
#pragma once

#include "speech/kept_pieces.h"
#include "speech/speech_spans.h"

namespace situ {

class SpeechOnly {
 public:
  SpeechOnly(SampleWindows::Read read, VoiceActivity activity) : spans_(std::move(read), std::move(activity)) {}

  // As SampleWindows::Read.
  Result<size_t> read(std::span<float> out);
  // Where a sample that was read, or the end of one, stood in the recording.
  int64_t original(int64_t kept, bool end) const { return pieces_.original(kept, end); }
  const KeptPieces& pieces() const { return pieces_; }

 private:
  SpeechSpans spans_;
  KeptPieces pieces_;
  int64_t kept_ = 0, end_ = -1;  // samples given; where the last of them ended in the recording
};

}  // namespace situ
