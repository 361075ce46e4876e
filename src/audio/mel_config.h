// Sizes of a model's spectrograms, from preprocessor_config.json.
#pragma once

#include <cstddef>
#include <filesystem>
#include <string_view>

#include "base/status.h"

namespace situ {

// The defaults are Whisper's. Names of the file in brackets.
struct MelConfig {
  int mels = 80;           // rows of a spectrogram [feature_size]
  int fft = 400;           // samples of one frame [n_fft]
  int hop = 160;           // samples between frames [hop_length]
  int rate = 16000;        // Hz [sampling_rate]
  int chunk_seconds = 30;  // of one window [chunk_length]

  // Samples of one window: 480,000.
  size_t window_samples() const { return static_cast<size_t>(chunk_seconds) * static_cast<size_t>(rate); }
  // Columns of one spectrogram: 3,000.
  size_t frames() const { return window_samples() / static_cast<size_t>(hop); }

  // text: of preprocessor_config.json, or of a processor_config.json that has it as "feature_extractor"; fields that
  // are missing keep their defaults. Errors: kBadFile (no JSON, wrong types), and those of check().
  static Result<MelConfig> from_json(std::string_view text);
  // Of a model folder; the defaults, where it has neither file. Errors begin with the file's name.
  static Result<MelConfig> of_folder(const std::filesystem::path& folder);
  // kUnsupportedModel, unless mels is in 1..512, fft in 16..8192 and even, hop in 1..fft, rate in 1,000..384,000,
  // chunk_seconds in 1..600, and a window at least one fft long.
  Status check() const;
};

}  // namespace situ
