// Where somebody speaks, by a rule without weights.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/status.h"

namespace situ {

struct VoiceOptions {
  int rate = 16000;            // Hz, of the samples
  double threshold_db = 6;     // speech stands above the noise by so much
  double floor_seconds = 1.2;  // the noise floor is the lowest level within so much before, and after, a frame
  double hangover = 0.4;       // seconds of silence that do not end speech
  double min_speech = 0.15;    // seconds; what is shorter is a click
  double padding = 0.15;       // seconds added on both sides of speech
};

// Samples [begin, end) of the recording.
struct VoiceSpan {
  int64_t begin = 0, end = 0;
};

// Streaming: takes samples in pieces of any size, gives a span once it has ended. Holds a few seconds of levels, no
// samples. Used by one thread at a time.
class VoiceActivity {
 public:
  // Errors: kInvalidArgument: rate not in 1,000..384,000, a time that is negative, not finite or above 60 s.
  static Result<VoiceActivity> create(const VoiceOptions& options = {});
  VoiceActivity(VoiceActivity&&) noexcept;
  VoiceActivity& operator=(VoiceActivity&&) noexcept;
  ~VoiceActivity();

  void push(std::span<const float> samples);
  // No more samples come.
  void finish();
  // The next span that is complete, in order; spans do not overlap. None: more samples are needed, or, after finish(),
  // the last one was given.
  std::optional<VoiceSpan> next();
  // What is known of the next span while next() gives none: it goes on at `end`, or a later one may join it. None: no
  // speech so far, or too little to be a span.
  std::optional<VoiceSpan> open() const;
  // Samples before this one will be in no span that next() has not given yet.
  int64_t decided() const;

 private:
  struct State;
  explicit VoiceActivity(const VoiceOptions& options);
  std::unique_ptr<State> state_;
};

// All spans of a recording in memory.
Result<std::vector<VoiceSpan>> find_speech(std::span<const float> samples, const VoiceOptions& options = {});

}  // namespace situ
