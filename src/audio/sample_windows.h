// A long recording window by window, without holding it: long-form transcription moves a window forward through the
// file.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "audio/log_mel.h"

namespace situ {

// Owner of at most three windows of samples (6 MB at 30 s and 16 kHz). Used by one thread at a time.
class SampleWindows {
 public:
  // Writes up to as many samples as the span has and returns how many: fewer only at the end, as AudioReader::read.
  using Read = std::function<Result<size_t>(std::span<float>)>;
  SampleWindows(Read read, const MelConfig& config);

  // The window that starts at sample `start`; `samples` is empty at or after the end of the file, shorter than a window
  // only at its end. Valid until the next call. `start` may go back by a window at most.
  // Errors: those of reading; kInvalidArgument: a start that is gone.
  Result<MelWindow> at(int64_t start);

  // Whether the end of the file was met; then samples() is its length.
  bool ended() const { return ended_; }
  // Samples read so far.
  int64_t samples() const { return first_ + static_cast<int64_t>(buffer_.size()); }

 private:
  Status fill(int64_t end);

  Read read_;
  int64_t window_, context_;
  int64_t first_ = 0;  // the sample that buffer_[0] is
  std::vector<float> buffer_;
  bool ended_ = false;
};

}  // namespace situ
