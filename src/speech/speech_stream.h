// The transcription of one recording, window by window, or several windows apart together. Source of the rules:
// transcribe() of openai/whisper.
#pragma once

#include <deque>
#include <optional>

#include "audio/audio_reader.h"
#include "audio/sample_windows.h"
#include "speech/cut_segments.h"
#include "speech/speech_model.h"
#include "speech/speech_only.h"
#include "speech/speech_windows.h"
#include "speech/window_decoder.h"

namespace situ {

struct SpeechStream::Impl {
  Impl(SpeechModel::Impl& model, const SpeechOptions& options);
  // Error: an option out of its range, or that this model cannot have.
  static Status check(const SpeechModel::Impl& model, const SpeechOptions& options);
  // What the options ask for, or else the model's files. `language`: "" is to be found out.
  struct Settled {
    std::string language, task;
  };
  static Result<Settled> settle(const SpeechTokens& tokens, const SpeechOptions& options);
  Status begin(AudioReader reader);
  Status begin(std::span<const float> samples);
  Status begin_spectrogram(std::span<const float> spectrogram);

  Result<std::optional<SpeechSegment>> next();
  // Decides one window more, or several; their segments, if any, go to `ready`.
  Status advance();

  struct Window {
    int64_t from = 0, count = 0;  // samples: of the recording, of its speech, or of `pieces`
    double duration = 0;          // seconds
    uint64_t draw = 0;
    KeptPieces pieces{};              // of a window apart
    std::optional<Session> source{};  // behind the encoder
    WindowText text{};
    double ratio = 0;  // of compression
  };

  SpeechModel::Impl& model;
  const SpeechOptions options;
  WindowDecoder decoder;
  std::optional<AudioReader> reader;
  std::span<const float> given;          // samples of the caller
  std::optional<SpeechOnly> speech;      // SpeechOptions::vad
  std::optional<SpeechWindows> apart;    // SpeechOptions::batched
  std::optional<SampleWindows> windows;  // else
  int64_t rate, samples = 0;             // samples that were read of the recording

  int64_t seek = 0;  // where the next window starts
  bool ended = false, finished = false;
  std::optional<Status> failed;
  std::deque<SpeechSegment> ready;
  std::vector<float> spectrogram;
  bool given_spectrogram = false;  // of the only window
  int64_t left_of_silence = 0;
  float peak;                           // of all spectra so far
  std::string language, task;           // once it is known; what is asked for
  std::vector<int64_t> hotwords, text;  // ids before every window; of the initial prompt and all windows
  size_t text_from = 0;                 // what the next prompt begins with at the earliest
  double spoken = 0;                    // seconds of the recording where the words so far end
  double decode_ms = 0;
  int64_t copied_before = 0;
  Transcript transcript;

 private:
  Status begin(SampleWindows::Read read);
  Status begin_texts();
  Status encode_texts();
  Status too_short() const;
  // Seconds of what is read in windows, where a window begins.
  double start_of(const Window& window) const { return static_cast<double>(window.from) / static_cast<double>(rate); }
  // Those of the recording for a segment or a word that lies between two of them.
  std::pair<double, double> seconds(const Window& window, double begin, double end, bool word) const;
  struct Room {
    size_t hotwords, text;
  };
  Room room_before(size_t text) const;
  WindowDecoder::PromptIds prompt() const;
  // Whether the language is known, or this window tells it: somebody speaks in it.
  Result<bool> knows_language(const Window& window);
  Result<std::string> words_of(std::span<const int64_t> ids) const;
  Result<Window> encode(const MelWindow& mel, int64_t from, int64_t original);
  Status decode(std::span<Window> all);
  Status decode_with_fallback(std::span<Window> all);
  // Whether no other temperature is tried. Sets the window's ratio.
  Result<bool> is_decided(Window& window) const;
  bool is_silent(const WindowText& text) const;
  Result<int64_t> keep(const Window& window);
  Status add_words(const Window& window, double most, std::span<SpeechSegment> segments);
  double move_by_words(const CutWindow& cut, double start, std::span<const SpeechSegment> segments) const;
  void place(const Window& window, std::vector<SpeechSegment>& segments);
  void note_what_is_cut();
  void finish();
  Status keep_all(Window window, std::span<const float> all);
  Status advance_together();
  size_t most_together() const;
  void count();
};

}  // namespace situ
