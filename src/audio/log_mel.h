// Log-mel spectrograms, as WhisperFeatureExtractor of transformers makes them.
//
//   X[t, k]  = | sum_n hann[n] s[t hop + n - fft / 2] e^(-2 pi i k n / fft) |^2     k = 0..fft / 2
//   L[m, t]  = log10(max(1e-10, sum_k filter[m, k] X[t, k]))
//   out[m, t] = (max(L[m, t], peak - 8) + 4) / 4                                     peak = max L of the window
//
// hann: periodic. filter: slaney scale and norm, 0 Hz to rate / 2. s before its start and after its end: reflected.
// Source: transformers, models/whisper/feature_extraction_whisper.py and audio_utils.py; openai/whisper, audio.py.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "audio/mel_config.h"
#include "base/status.h"
#include "base/thread_pool.h"

namespace situ {

// Samples of one window and what stands around it in the file.
struct MelWindow {
  std::span<const float> samples;  // [0..window_samples]: shorter ones are filled with zeros
  // The last fft / 2 samples before the window and the first fft / 2 after it, where the file has as many; else empty,
  // and the window is reflected there. With both empty this is the short form of transformers.
  std::span<const float> before, after;
};

// Read-only after create(): any number of threads may call window() at once, each with a pool of its own.
class LogMel {
 public:
  // Errors: those of MelConfig::check.
  static Result<LogMel> create(const MelConfig& config);
  LogMel(LogMel&&) noexcept;
  LogMel& operator=(LogMel&&) noexcept;
  ~LogMel();

  const MelConfig& config() const { return config_; }

  // Writes the spectrogram of one window to `out` [mels, frames], float32, row by row. May not alias the samples.
  // pool: whose threads share the work; null: the caller alone.
  // peak: null: that of this window alone, as in short form. Otherwise the largest L so far: raised to that of this
  // window where that is larger, then used. Files of several windows start with -infinity and hand the same float to
  // each window in order: the streamed counterpart of transformers' long form, whose peak is that of the whole file.
  // The first window is equal to the short form in both cases. Errors: kInvalidArgument: more samples than a window;
  // before or after of another size than fft / 2; an `out` of another size; a sample that is not finite.
  Status window(const MelWindow& window, std::span<float> out, ThreadPool* pool = nullptr, float* peak = nullptr) const;

 private:
  struct Plan;
  explicit LogMel(const MelConfig& config);
  MelConfig config_;
  std::unique_ptr<Plan> plan_;
};

}  // namespace situ
