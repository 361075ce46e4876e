// Speech in windows of its own: each holds whole spans, as many as fit. Source: collect_chunks of faster-whisper, whose
// BatchedInferencePipeline decodes such windows together.
#pragma once

#include <optional>
#include <vector>

#include "speech/kept_pieces.h"
#include "speech/speech_spans.h"

namespace situ {

struct SpeechWindow {
  std::vector<float> samples;
  KeptPieces pieces;
  int64_t begin() const { return pieces.pieces.front().original; }
};

class SpeechWindows {
 public:
  // `longest`: samples of a window. Holds at most two windows of samples.
  SpeechWindows(SampleWindows::Read read, VoiceActivity activity, int64_t rate, int64_t longest);

  // nullopt: no speech is left. Errors: those of reading.
  // Pauses of up to two seconds between two spans of a window stay in it, longer ones do not. Speech without a pause
  // that is longer than a window is cut where its last third is quietest.
  Result<std::optional<SpeechWindow>> next();

 private:
  void add(SpeechWindow& window, int64_t begin, int64_t end);
  int64_t quietest(int64_t begin, int64_t end) const;

  const int64_t rate_, longest_;
  int64_t end_ = 0;  // of the last span that was added
  SpeechSpans spans_;
};

}  // namespace situ
