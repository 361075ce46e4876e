// The transcription of one recording, window by window. Source of the rules: transcribe() of openai/whisper.
#pragma once

#include <deque>
#include <optional>

#include "audio/audio_reader.h"
#include "audio/sample_windows.h"
#include "speech/cut_segments.h"
#include "speech/speech_model.h"
#include "speech/speech_only.h"
#include "speech/window_decoder.h"

namespace situ {

struct SpeechStream::Impl {
  Impl(SpeechModel::Impl& model, const SpeechOptions& options);
  // Error: an option out of its range, or that this model cannot have.
  static Status check(const SpeechModel::Impl& model, const SpeechOptions& options);
  Status begin(AudioReader reader);
  Status begin(std::span<const float> samples);
  Status begin_spectrogram(std::span<const float> spectrogram);

  Result<std::optional<SpeechSegment>> next();
  // Decides one window more; its segments, if any, go to `ready`.
  Status advance();

  SpeechModel::Impl& model;
  const SpeechOptions options;
  WindowDecoder decoder;
  std::optional<AudioReader> reader;
  std::span<const float> given;  // samples of the caller
  std::optional<SpeechOnly> speech;
  std::optional<SampleWindows> windows;
  int64_t rate, samples = 0;  // samples that were read of the recording

  int64_t seek = 0;  // where the next window starts
  bool ended = false;
  std::optional<Status> failed;
  std::deque<SpeechSegment> ready;
  std::vector<float> spectrogram;
  bool given_spectrogram = false;  // of the only window
  int64_t left_of_silence = 0;
  float peak;                           // of all spectra so far
  std::string language;                 // once it is known
  std::vector<int64_t> hotwords, text;  // ids before every window; of the initial prompt and all windows
  size_t text_from = 0;                 // what the next prompt begins with at the earliest
  double decode_ms = 0;
  int64_t copied_before = 0;
  Transcript transcript;

 private:
  Status begin(SampleWindows::Read read);
  Status begin_texts();
  Status encode_texts();
  double seconds(int64_t at, bool end) const;  // in the recording
  WindowDecoder::PromptIds prompt() const;
  Status detect_language(const Session& source);
  Result<WindowText> decode_with_fallback(const Session& source, std::string* words, double* ratio);
  Result<std::string> words_of(std::span<const int64_t> ids) const;
  Status keep(const Session& source, const WindowText& window, double ratio, double duration, int64_t count);
  Status add_words(const Session& source, double duration, int64_t from, std::span<SpeechSegment> segments);
  void count();
};

}  // namespace situ
