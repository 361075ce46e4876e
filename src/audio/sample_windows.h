// A long recording window by window, without holding it: long-form transcription moves a window forward through the
// file.
#pragma once

#include <cstdint>
#include <vector>

#include "audio/audio_reader.h"
#include "audio/log_mel.h"

namespace situ {

// Owner of a reader and of at most three windows of samples (6 MB at 30 s and 16 kHz). Used by one thread at a time.
class SampleWindows {
 public:
  SampleWindows(AudioReader reader, const MelConfig& config);

  // The window that starts at sample `start`; `samples` is empty at or after the end of the file, shorter than a window
  // only at its end. Valid until the next call. `start` may go back by a window at most.
  // Errors: those of AudioReader::read; kInvalidArgument: a start that is gone.
  Result<MelWindow> at(int64_t start);

  // Whether the end of the file was met; then samples() is its length.
  bool ended() const { return ended_; }
  // Samples read so far.
  int64_t samples() const { return first_ + static_cast<int64_t>(buffer_.size()); }
  const AudioReader& reader() const { return reader_; }

 private:
  Status fill(int64_t end);

  AudioReader reader_;
  int64_t window_, context_;
  int64_t first_ = 0;  // the sample that buffer_[0] is
  std::vector<float> buffer_;
  bool ended_ = false;
};

}  // namespace situ
