// Speech to text with models of Whisper's kind: an encoder of log-mel spectrograms and a decoder that writes
// timestamps.
//
//   situ::Result<situ::SpeechModel> model = situ::SpeechModel::load("path/to/whisper", {});
//   situ::Result<situ::Transcript> t = model->transcribe("talk.mp3", {}, [](const situ::SpeechSegment& s) {
//     printf("[%.2f - %.2f]%s\n", s.start, s.end, s.text.c_str());
//     return true;
//   });
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "situ/model.h"

namespace situ {

enum class Timestamps { kNone, kSegment, kWord };
// kAsFiles: what generation_config.json says, else kTranscribe. kTranslate: into English.
enum class SpeechTask { kAsFiles, kTranscribe, kTranslate };
// By their names: "none", "segment", "word"; "transcribe", "translate". Error: another one.
Result<Timestamps> timestamps_of(const std::string& name);
Result<SpeechTask> speech_task_of(const std::string& name);

// The rules are those of Radford et al., "Robust Speech Recognition via Large-Scale Weak Supervision" (2022), section
// 4.5, as in the reference implementation, openai/whisper.
struct SpeechOptions {
  // A code such as "en", or a name such as "English"; "auto": the most probable one of the first window in which
  // somebody speaks; "": what generation_config.json says, else "auto".
  std::string language;
  SpeechTask task = SpeechTask::kAsFiles;
  Timestamps timestamps = Timestamps::kSegment;
  // Chosen greedily, or by so many beams, at temperature 0; drawn above it. The next temperature is tried where an
  // answer repeats itself (compression ratio) or is improbable (mean log-probability). One temperature: no fallback.
  std::vector<double> temperatures = {0, 0.2, 0.4, 0.6, 0.8, 1};  // each at least 0
  int64_t beams = 1;                                              // at temperature 0
  int64_t best_of = 5;        // answers that are drawn above it, of which the most probable one is taken
  double patience = 1;        // a beam search ends with beams x patience answers; above 0
  double length_penalty = 1;  // of beams: score = log-probability / tokens^length_penalty
  // nullopt: not looked at. UTF-8 bytes of the text / bytes of it compressed by zlib.
  std::optional<double> compression_ratio_threshold = 2.4;
  std::optional<double> logprob_threshold = -1;     // mean over the tokens and the end
  std::optional<double> no_speech_threshold = 0.6;  // a window is silent above it, unless its answer is probable
  bool condition_on_previous_text = true;
  std::string prompt;    // what stands before the text of the first window
  std::string hotwords;  // words that stand before every window's text
  bool vad = false;      // leaves out what is no speech (audio/voice_activity.h)
  int64_t batched = 0;   // above 0: windows of speech by themselves, so many in the same steps; implies vad
  uint64_t seed = 0;     // of what is drawn
};

struct SpeechWord {
  double start = 0, end = 0;  // seconds from the file's start
  std::string word;           // with the space before it, and the punctuation around it
  double probability = 0;     // mean over its tokens
};

struct SpeechSegment {
  double start = 0, end = 0;  // seconds from the file's start
  std::string text;
  std::vector<int64_t> tokens;  // with timestamp tokens
  // Of the window that the segment is part of:
  double avg_logprob = 0, compression_ratio = 0, no_speech_prob = 0, temperature = 0;
  std::vector<SpeechWord> words;  // Timestamps::kWord
};
// Called as soon as a segment is decided; false ends the transcription.
using SegmentCallback = std::function<bool(const SpeechSegment&)>;

struct Transcript {
  double duration_s = 0;
  int64_t samples = 0;              // at 16 kHz
  std::string language;             // its code; "": nobody spoke, and it was not given
  double language_probability = 1;  // 1 where it was given, 0 where it is not known
  std::string text;
  std::vector<SpeechSegment> segments;
  std::vector<int64_t> output_ids;  // of all windows in order, without prompts and end tokens
  double features_ms = 0, encode_ms = 0;
  double decode_ms_per_token = 0;     // the decoder's time, with prompts and answers that were not kept / output_ids
  double bytes_copied_per_token = 0;  // all bytes, the encoder's too / output_ids
  std::vector<std::string> notes;  // what the caller may want to know: packets that were damaged, a prompt that was cut
  std::string cut;                 // why the audio ended before it should have, or ""
  bool cancelled = false;          // by Model::interrupt_when or the callback
};

// A transcription that goes on when it is asked. Belongs to its model, which must outlive it; one thread at a time may
// use it or the model.
class SpeechStream {
 public:
  SpeechStream(SpeechStream&&) noexcept;
  SpeechStream& operator=(SpeechStream&&) noexcept;
  ~SpeechStream();

  // The next segment; nullopt: there is none any more. Errors: those of AudioReader::read, Model::step; after one, the
  // next call gives it again. kInvalidArgument at the end of audio shorter than one frame of a spectrogram (10 ms).
  Result<std::optional<SpeechSegment>> next();
  // What there is so far. Without segments that next() has not given yet.
  const Transcript& transcript() const;
  // Seconds of the audio that are done, and of all of it where that is known, else 0.
  double position_s() const;
  double duration_s() const;

  struct Impl;

 private:
  friend class SpeechModel;
  explicit SpeechStream(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

class SpeechModel {
 public:
  // A folder with an encoder of spectrograms. Errors: those of Model::load; no such encoder; a vocabulary without
  // Whisper's special tokens; a preprocessor_config.json of another width than the encoder.
  static Result<SpeechModel> load(const std::string& path, const LoadOptions& options);
  // The same of a loaded model, which both then share.
  static Result<SpeechModel> of(const Model& model);
  SpeechModel(SpeechModel&&) noexcept;
  SpeechModel& operator=(SpeechModel&&) noexcept;
  ~SpeechModel();

  // `path`: wav, flac, mp3 or ogg; "-": standard input. Errors: those of AudioReader::open (audio/audio_reader.h); an
  // option out of its range; an unknown language, with the known ones; --language or translate on an English-only
  // model.
  Result<SpeechStream> start(const std::string& path, const SpeechOptions& options);
  // The same of a file's bytes, which must stay until the stream is gone. `name`: stands for the path in messages.
  Result<SpeechStream> start(std::span<const std::byte> file, const std::string& name, const SpeechOptions& options);
  // `samples`: mono, 16 kHz; must stay until the stream is gone. Error: one that is not finite.
  Result<SpeechStream> start(std::span<const float> samples, const SpeechOptions& options);
  // One window by its spectrogram [mels, frames] of features(), which must stay until the stream is gone. Error:
  // another size.
  Result<SpeechStream> start_spectrogram(std::span<const float> spectrogram, const SpeechOptions& options);
  // All of it. What an error or the callback ends is in the error's place, or with Transcript::cancelled.
  Result<Transcript> transcribe(const std::string& path, const SpeechOptions& options,
                                const SegmentCallback& on_segment);
  Result<Transcript> transcribe(std::span<const float> samples, const SpeechOptions& options,
                                const SegmentCallback& on_segment);

  // The log-mel spectrogram [mels, frames] of one window: of 30 seconds, filled with silence.
  struct Features {
    int64_t mels = 0, frames = 0;
    std::vector<float> values;
  };
  Result<Features> features(std::span<const float> samples) const;

  bool is_multilingual() const;
  // What start() would refuse these options with: a number out of its range, a language or task that the model lacks.
  Status check(const SpeechOptions& options) const;
  Model& model();

  struct Impl;

 private:
  friend struct Internals;
  explicit SpeechModel(std::unique_ptr<Impl> impl);
  template <typename Open>
  Result<SpeechStream> start_reader(const Open& open, const SpeechOptions& options);
  std::unique_ptr<Impl> impl_;
};

}  // namespace situ
