#include "speech/speech_stream.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/clock.h"
#include "pipelines/out_of_memory.h"
#include "speech/compression.h"
#include "speech/words.h"

namespace situ {
namespace {

WindowOptions window_options(const SpeechOptions& o) {
  return {o.beams, o.best_of, o.patience, o.length_penalty, o.seed, o.timestamps != Timestamps::kNone};
}

std::string stripped(const std::string& text) {
  const size_t from = text.find_first_not_of(" \t\n\r\v\f"), to = text.find_last_not_of(" \t\n\r\v\f");
  return from == std::string::npos ? "" : text.substr(from, to - from + 1);
}

std::string number(double x) {
  char text[32];
  std::snprintf(text, sizeof(text), "%g", x);
  return text;
}

Status wrong(const std::string& name, const std::string& words, double is) {
  return Status::error(Code::kInvalidArgument, name + " should be " + words + ", is " + number(is));
}

Status check_numbers(const SpeechOptions& o) {
  for (const double t : o.temperatures)
    if (!(t >= 0) || !(t <= 100)) return wrong("temperature", "a number from 0 to 100", t);
  if (o.temperatures.empty()) return Status::error(Code::kInvalidArgument, "no temperature");
  if (o.beams < 1 || o.beams > kMostBeams)
    return wrong("beams", "an integer from 1 to " + std::to_string(kMostBeams), static_cast<double>(o.beams));
  if (o.best_of < 1 || o.best_of > kMostBeams)
    return wrong("best_of", "an integer from 1 to " + std::to_string(kMostBeams), static_cast<double>(o.best_of));
  if (!(o.patience > 0) || !(o.patience <= 100)) return wrong("patience", "a number above 0, at most 100", o.patience);
  if (!std::isfinite(o.length_penalty)) return wrong("length_penalty", "a finite number", o.length_penalty);
  const std::pair<const char*, std::optional<double>> thresholds[] = {
      {"compression_ratio_threshold", o.compression_ratio_threshold},
      {"logprob_threshold", o.logprob_threshold},
      {"no_speech_threshold", o.no_speech_threshold}};
  for (const auto& [name, value] : thresholds)
    if (value && std::isnan(*value)) return wrong(name, "a number", *value);
  if (o.batched < 0 || o.batched > 64)
    return wrong("batched", "an integer from 0 to 64", static_cast<double>(o.batched));
  return Status::ok();
}

}  // namespace

Status SpeechStream::Impl::check(const SpeechModel::Impl& model, const SpeechOptions& o) {
  SITU_RETURN_IF_ERROR(check_numbers(o));
  const SpeechTokens& t = model.tokens;
  if (o.task != "transcribe" && o.task != "translate")
    return Status::error(Code::kInvalidArgument, "task should be transcribe or translate, is '" + o.task + "'");
  if (!t.multilingual()) {
    if (o.task == "translate" || (o.language != "auto" && o.language != "en"))
      return Status::error(
          Code::kInvalidArgument,
          "the model knows English only: it " +
              (o.task == "translate" ? std::string("translates nothing") : "has no language '" + o.language + "'"));
    return Status::ok();
  }
  if (o.task == "translate" ? !t.translate : !t.transcribe)
    return Status::error(Code::kInvalidArgument, "the model has no token for the task " + o.task);
  if (o.language != "auto" && !t.languages.count(o.language)) {
    std::string known;
    for (const auto& [code, id] : t.languages) known += (known.empty() ? "" : ", ") + code;
    return Status::error(Code::kInvalidArgument, "unknown language '" + o.language + "' (known: auto, " + known + ")");
  }
  return Status::ok();
}

SpeechStream::Impl::Impl(SpeechModel::Impl& m, const SpeechOptions& o)
    : model(m),
      options(o),
      decoder(m.engine(), m.tokens, window_options(o)),
      rate(m.mel.config().rate),
      peak(-std::numeric_limits<float>::infinity()) {}

Status SpeechStream::Impl::begin(AudioReader from) {
  reader.emplace(std::move(from));
  if (reader->info().samples)
    transcript.duration_s = static_cast<double>(*reader->info().samples) / static_cast<double>(rate);
  return begin([this](std::span<float> out) { return reader->read(out); });
}

Status SpeechStream::Impl::begin(std::span<const float> all) {
  for (size_t i = 0; i < all.size(); ++i)
    if (!std::isfinite(all[i]))
      return Status::error(Code::kInvalidArgument, "sample " + std::to_string(i) + " is not a finite number");
  if (all.empty()) return Status::error(Code::kInvalidArgument, "no samples");
  given = all;
  transcript.duration_s = static_cast<double>(all.size()) / static_cast<double>(rate);
  return begin([this](std::span<float> out) -> Result<size_t> {
    const size_t count = std::min(out.size(), given.size());
    for (size_t i = 0; i < count; ++i) out[i] = given[i];
    given = given.subspan(count);
    return count;
  });
}

Status SpeechStream::Impl::begin(SampleWindows::Read read) {
  const SampleWindows::Read counted = [this, read = std::move(read)](std::span<float> out) {
    const Result<size_t> n = read(out);
    if (n.is_ok()) samples += static_cast<int64_t>(*n);
    return n;
  };
  if (options.vad || options.batched > 0) {
    VoiceOptions voice;
    voice.rate = static_cast<int>(rate);
    Result<VoiceActivity> activity = VoiceActivity::create(voice);
    if (!activity.is_ok()) return activity.status();
    speech.emplace(counted, std::move(*activity));
    windows.emplace([this](std::span<float> out) { return speech->read(out); }, model.mel.config());
  } else {
    windows.emplace(counted, model.mel.config());
  }
  return begin_texts();
}

Status SpeechStream::Impl::begin_spectrogram(std::span<const float> values) {
  const MelConfig& mel = model.mel.config();
  if (values.size() != static_cast<size_t>(mel.mels) * mel.frames())
    return Status::error(Code::kInvalidArgument, "a spectrogram has " + std::to_string(mel.mels) + " mels x " +
                                                     std::to_string(mel.frames()) + " frames, not " +
                                                     std::to_string(values.size()) + " values");
  for (const float x : values)
    if (!std::isfinite(x))
      return Status::error(Code::kInvalidArgument, "the spectrogram has a value that is not finite");
  spectrogram.assign(values.begin(), values.end());
  given_spectrogram = true;
  // Silence of a window's length, which stands for its times.
  left_of_silence = static_cast<int64_t>(mel.window_samples());
  windows.emplace(
      [this](std::span<float> out) -> Result<size_t> {
        const size_t count = std::min(out.size(), static_cast<size_t>(left_of_silence));
        std::fill_n(out.begin(), count, 0.0f);
        left_of_silence -= static_cast<int64_t>(count);
        samples += static_cast<int64_t>(count);
        return count;
      },
      mel);
  return begin_texts();
}

Status SpeechStream::Impl::begin_texts() {
  spectrogram.resize(static_cast<size_t>(model.mel.config().mels) * model.mel.config().frames());
  copied_before = model.engine().ledger().copied;
  if (!model.tokens.multilingual()) language = "en";
  if (options.language != "auto") language = options.language;
  return encode_texts();
}

Status SpeechStream::Impl::encode_texts() {
  const auto ids = [&](const char* name, const std::string& words, std::vector<int64_t>* to) {
    if (stripped(words).empty()) return Status::ok();
    if (!model.tokens.previous)
      return Status::error(Code::kInvalidArgument, std::string(name) + ": the vocabulary has no <|startofprev|>");
    Result<std::vector<int64_t>> encoded = model.engine().tokenizer->encode(" " + stripped(words), false);
    if (!encoded.is_ok()) return encoded.status().or_code(Code::kInvalidArgument).with_context(name);
    *to = std::move(*encoded);
    return Status::ok();
  };
  SITU_RETURN_IF_ERROR(ids("hotwords", options.hotwords, &hotwords));
  return ids("prompt", options.prompt, &text);
}

double SpeechStream::Impl::seconds(int64_t at, bool end) const {
  return static_cast<double>(speech ? speech->original(at, end) : at) / static_cast<double>(rate);
}

// [previous, hotwords, text before], start, language, task. Half of the context less one is room for what stands
// before.
WindowDecoder::PromptIds SpeechStream::Impl::prompt() const {
  const SpeechTokens& t = model.tokens;
  WindowDecoder::PromptIds p;
  const auto room = static_cast<size_t>(std::max<int64_t>(0, model.engine().context_length / 2 - 1));
  const size_t hot = std::min(hotwords.size(), room / 2), before = std::min(text.size() - text_from, room - hot);
  if (hot + before > 0 && t.previous) {
    p.ids.push_back(*t.previous);
    p.ids.insert(p.ids.end(), hotwords.begin(), hotwords.begin() + static_cast<int64_t>(hot));
    p.ids.insert(p.ids.end(), text.end() - static_cast<int64_t>(before), text.end());
  }
  p.start_at = p.ids.size();
  p.ids.push_back(t.start);
  if (t.multilingual()) {
    p.ids.push_back(t.languages.at(language));
    p.ids.push_back(options.task == "translate" ? *t.translate : *t.transcribe);
  }
  if (options.timestamps == Timestamps::kNone) p.ids.push_back(t.no_timestamps);
  return p;
}

Status SpeechStream::Impl::detect_language(const Session& source) {
  const auto found = decoder.languages(source);
  if (!found.is_ok()) return found.status();
  language = found->front().first;
  transcript.language_probability = found->front().second;
  return Status::ok();
}

Result<std::string> SpeechStream::Impl::words_of(std::span<const int64_t> ids) const {
  std::vector<int64_t> words;
  for (const int64_t id : ids)
    if (id < model.tokens.end) words.push_back(id);
  return model.engine().tokenizer->decode(words, true);
}

Result<WindowText> SpeechStream::Impl::decode_with_fallback(const Session& source, std::string* words, double* ratio) {
  const WindowDecoder::PromptIds ids = prompt();
  Result<WindowText> window = Status::error("no temperature");
  for (size_t i = 0; i < options.temperatures.size(); ++i) {
    window = decoder.decode(source, ids, options.temperatures[i],
                            static_cast<uint64_t>(seek) * 1000003u + static_cast<uint64_t>(i) * 4096u);
    if (!window.is_ok()) return window;
    Result<std::string> decoded = words_of(window->ids);
    if (!decoded.is_ok()) return decoded.status();
    *words = stripped(*decoded);
    *ratio = compression_ratio(*words);
    const bool repeats = options.compression_ratio_threshold && *ratio > *options.compression_ratio_threshold,
               improbable = options.logprob_threshold && window->avg_logprob() < *options.logprob_threshold,
               silent =
                   options.no_speech_threshold && window->no_speech_prob > *options.no_speech_threshold && improbable;
    if (silent || (!repeats && !improbable)) break;
  }
  return window;
}

void SpeechStream::Impl::count() {
  const auto ids = std::max<double>(1, static_cast<double>(transcript.output_ids.size()));
  transcript.decode_ms_per_token = decode_ms / ids;
  transcript.bytes_copied_per_token = static_cast<double>(model.engine().ledger().copied - copied_before) / ids;
  transcript.language = language;
  transcript.samples = samples;
}

// Words of the segments of a window that starts at sample `from`.
Status SpeechStream::Impl::add_words(const Session& source, double duration, int64_t from,
                                     std::span<SpeechSegment> segments) {
  std::vector<int64_t> ids;
  std::vector<size_t> ends;  // of the segments, in ids
  for (const SpeechSegment& s : segments) {
    for (const int64_t id : s.tokens)
      if (id < model.tokens.end) ids.push_back(id);
    ends.push_back(ids.size());
  }
  const WindowDecoder::PromptIds all = prompt();
  std::vector<int64_t> start(all.ids.begin() + static_cast<int64_t>(all.start_at), all.ids.end());
  if (start.back() == model.tokens.no_timestamps) start.pop_back();
  std::vector<size_t> counts;
  Result<std::vector<SpeechWord>> words =
      find_words(model.engine(), model.tokens, source, start, ids, language, duration, &counts);
  if (!words.is_ok()) return words.status();
  // Words end where the next window begins, at the latest.
  const auto in_recording = [&](double s, bool end) {
    return seconds(std::min(from + static_cast<int64_t>(std::llround(s * static_cast<double>(rate))), seek), end);
  };
  size_t segment = 0, at = 0;
  for (size_t i = 0; i < words->size(); ++i) {
    while (segment + 1 < ends.size() && at >= ends[segment]) ++segment;
    SpeechWord& w = (*words)[i];
    w.start = in_recording(w.start, false);
    w.end = in_recording(w.end, true);
    segments[segment].words.push_back(std::move(w));
    at += counts[i];
  }
  return Status::ok();
}

// The segments of a window that starts at `seek` and has `count` samples.
Status SpeechStream::Impl::keep(const Session& source, const WindowText& window, double ratio, double duration,
                                int64_t count) {
  const int64_t from = seek;
  std::vector<SpeechSegment> found;
  // Without timestamps windows are fixed, even where the model writes some.
  CutWindow cut = options.timestamps == Timestamps::kNone ? CutWindow{{{0, duration, window.ids}}, duration}
                                                          : cut_segments(window.ids, duration, model.tokens);
  const auto at = [&](double s) { return from + static_cast<int64_t>(std::llround(s * static_cast<double>(rate))); };
  seek = cut.next < duration ? std::max(from + 1, std::min(at(cut.next), from + count)) : from + count;
  for (CutSegment& c : cut.segments) {
    Result<std::string> words = words_of(c.tokens);
    if (!words.is_ok()) return words.status();
    transcript.output_ids.insert(transcript.output_ids.end(), c.tokens.begin(), c.tokens.end());
    if (stripped(*words).empty() || !(c.end > c.start)) continue;
    text.insert(text.end(), c.tokens.begin(), c.tokens.end());
    found.push_back({seconds(at(c.start), false),
                     seconds(at(c.end), true),
                     std::move(*words),
                     std::move(c.tokens),
                     window.avg_logprob(),
                     ratio,
                     window.no_speech_prob,
                     window.temperature,
                     {}});
  }
  if (given_spectrogram) seek = from + count;  // what follows is not there
  if (options.timestamps == Timestamps::kWord) SITU_RETURN_IF_ERROR(add_words(source, duration, from, found));
  std::move(found.begin(), found.end(), std::back_inserter(ready));
  if (!options.condition_on_previous_text || window.temperature > 0.5) text_from = text.size();
  return Status::ok();
}

Status SpeechStream::Impl::advance() {
  Clock::time_point start = Clock::now();
  const Result<MelWindow> window = windows->at(seek);
  if (!window.is_ok()) return window.status();
  // What is left of less than a frame is nothing that could be heard.
  if (window->samples.empty() || (seek > 0 && static_cast<int>(window->samples.size()) < model.mel.config().hop)) {
    ended = true;
    return Status::ok();
  }
  const auto count = static_cast<int64_t>(window->samples.size());
  const double duration = static_cast<double>(count) / static_cast<double>(rate);
  if (!given_spectrogram) SITU_RETURN_IF_ERROR(model.mel.window(*window, spectrogram, nullptr, &peak));
  transcript.features_ms += ms_since(start);
  start = Clock::now();
  Result<Session> source = model.encode(spectrogram);
  if (!source.is_ok()) return source.status();
  transcript.encode_ms += ms_since(start);
  start = Clock::now();
  if (language.empty()) SITU_RETURN_IF_ERROR(detect_language(*source));
  std::string words;
  double ratio = 0;
  const Result<WindowText> decoded = decode_with_fallback(*source, &words, &ratio);
  if (!decoded.is_ok()) return decoded.status();
  decode_ms += ms_since(start);
  const bool silent = options.no_speech_threshold && decoded->no_speech_prob > *options.no_speech_threshold &&
                      !(options.logprob_threshold && decoded->avg_logprob() > *options.logprob_threshold);
  if (options.timestamps == Timestamps::kWord && model.tokens.alignment_heads.empty() && transcript.notes.empty())
    transcript.notes.push_back(
        "no alignment_heads in generation_config.json: word times by all heads of the upper half");
  if (silent)
    seek += count;
  else
    SITU_RETURN_IF_ERROR(keep(*source, *decoded, ratio, duration, count));
  return Status::ok();
}

Result<std::optional<SpeechSegment>> SpeechStream::Impl::next() {
  if (failed) return *failed;
  while (ready.empty() && !ended) {
    const Status done = advance();
    if (done.code() == Code::kInterrupted) {
      transcript.cancelled = true;
      ended = true;
    } else if (!done.is_ok()) {
      failed = done.or_code(Code::kInternal);
      return *failed;
    }
    count();
  }
  if (ready.empty()) {
    transcript.duration_s = static_cast<double>(samples) / static_cast<double>(rate);
    if (reader) {
      transcript.cut = reader->cut();
      if (reader->damaged_packets() > 0 && transcript.notes.empty())
        transcript.notes.push_back(std::to_string(reader->damaged_packets()) +
                                   " packets could not be decoded and were left out");
    }
    return std::optional<SpeechSegment>();
  }
  SpeechSegment s = std::move(ready.front());
  ready.pop_front();
  transcript.text += s.text;
  transcript.segments.push_back(s);
  return std::optional(std::move(s));
}

SpeechStream::SpeechStream(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
SpeechStream::SpeechStream(SpeechStream&&) noexcept = default;
SpeechStream& SpeechStream::operator=(SpeechStream&&) noexcept = default;
SpeechStream::~SpeechStream() = default;
Result<std::optional<SpeechSegment>> SpeechStream::next() {
  return or_out_of_memory([&] { return impl_->next(); });
}
const Transcript& SpeechStream::transcript() const { return impl_->transcript; }
double SpeechStream::position_s() const {
  return static_cast<double>(impl_->speech ? impl_->samples : std::min(impl_->seek, impl_->samples)) /
         static_cast<double>(impl_->rate);
}
double SpeechStream::duration_s() const { return impl_->transcript.duration_s; }

}  // namespace situ
