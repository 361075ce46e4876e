#include "speech/speech_stream.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/clock.h"
#include "base/out_of_memory.h"
#include "speech/compression.h"

namespace situ {
namespace {

WindowOptions window_options(const SpeechOptions& o) {
  return {o.beams, o.best_of, o.patience, o.length_penalty, o.seed, o.timestamps != Timestamps::kNone};
}

std::string stripped(const std::string& text) {
  const size_t from = text.find_first_not_of(" \t\n\r\v\f"), to = text.find_last_not_of(" \t\n\r\v\f");
  return from == std::string::npos ? "" : text.substr(from, to - from + 1);
}

// Digital silence, of which nothing can be said.
bool is_zero(std::span<const float> samples) {
  return std::all_of(samples.begin(), samples.end(), [](float x) { return x == 0; });
}

}  // namespace

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
  // An hour without speech is read to its end before a window is there: an interrupt is seen here too.
  const SampleWindows::Read counted = [this, read = std::move(read)](std::span<float> out) -> Result<size_t> {
    if (model.engine().interrupted()) return Status::error(Code::kInterrupted, "interrupted");
    Result<size_t> n = read(out);
    if (n.is_ok()) samples += static_cast<int64_t>(*n);
    return n;
  };
  if (!options.vad && options.batched == 0) {
    windows.emplace(counted, model.mel.config());
    return begin_texts();
  }
  VoiceOptions voice;
  voice.rate = static_cast<int>(rate);
  Result<VoiceActivity> activity = VoiceActivity::create(voice);
  if (!activity.is_ok()) return activity.status();
  if (options.batched > 0) {
    apart.emplace(counted, std::move(*activity), rate, static_cast<int64_t>(model.mel.config().window_samples()));
  } else {
    speech.emplace(counted, std::move(*activity));
    windows.emplace([this](std::span<float> out) { return speech->read(out); }, model.mel.config());
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
  Result<Settled> settled = settle(model.tokens, options);
  if (!settled.is_ok()) return settled.status();
  language = std::move(settled->language);
  task = std::move(settled->task);
  spectrogram.resize(static_cast<size_t>(model.mel.config().mels) * model.mel.config().frames());
  copied_before = model.engine().ledger().copied;
  if (options.timestamps == Timestamps::kWord && model.tokens.alignment_heads.empty())
    transcript.notes.push_back(
        "no alignment_heads in generation_config.json: word times by all heads of the upper half");
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
  SITU_RETURN_IF_ERROR(ids("prompt", options.prompt, &text));
  note_what_is_cut();
  return Status::ok();
}

void SpeechStream::Impl::note_what_is_cut() {
  const auto note = [&](const char* what, size_t have, const char* which, size_t kept) {
    if (kept < have)
      transcript.notes.push_back(std::string(what) + " of " + std::to_string(have) + " tokens: the " + which + " " +
                                 std::to_string(kept) + " stand before the text, which has half of the context");
  };
  const Room room = room_before(text.size());
  note("hotwords", hotwords.size(), "first", room.hotwords);
  note("prompt", text.size(), "last", room.text);
}

// Tokens of each that stand before a window's text: half of the context less one is room for both, and half of that
// for hotwords.
SpeechStream::Impl::Room SpeechStream::Impl::room_before(size_t before) const {
  const auto room = static_cast<size_t>(std::max<int64_t>(0, model.engine().context_length / 2 - 1));
  const size_t hot = std::min(hotwords.size(), room / 2);
  return {hot, std::min(before, room - hot)};
}

// [previous, hotwords, text before], start, language, task.
WindowDecoder::PromptIds SpeechStream::Impl::prompt() const {
  const SpeechTokens& t = model.tokens;
  WindowDecoder::PromptIds p;
  const auto [hot, before] = room_before(text.size() - text_from);
  if (hot + before > 0 && t.previous) {
    p.ids.push_back(*t.previous);
    p.ids.insert(p.ids.end(), hotwords.begin(), hotwords.begin() + static_cast<int64_t>(hot));
    p.ids.insert(p.ids.end(), text.end() - static_cast<int64_t>(before), text.end());
  }
  p.start_at = p.ids.size();
  p.ids.push_back(t.start);
  if (t.multilingual()) {
    p.ids.push_back(t.languages.at(language));
    p.ids.push_back(task == "translate" ? *t.translate : *t.transcribe);
  }
  if (options.timestamps == Timestamps::kNone) p.ids.push_back(t.no_timestamps);
  return p;
}

Result<bool> SpeechStream::Impl::knows_language(const Window& window) {
  if (!language.empty()) return true;
  const Clock::time_point start = Clock::now();
  const auto first = decoder.first_token(*window.source);
  if (!first.is_ok()) return first.status();
  decode_ms += ms_since(start);
  if (options.no_speech_threshold && !(first->no_speech_prob < *options.no_speech_threshold)) return false;
  language = first->languages.front().first;
  transcript.language_probability = first->languages.front().second;
  return true;
}

Result<std::string> SpeechStream::Impl::words_of(std::span<const int64_t> ids) const {
  std::vector<int64_t> words;
  for (const int64_t id : ids)
    if (id < model.tokens.end) words.push_back(id);
  return model.engine().tokenizer->decode(words, true);
}

Result<bool> SpeechStream::Impl::is_decided(Window& window) const {
  Result<std::string> decoded = words_of(window.text.ids);
  if (!decoded.is_ok()) return decoded.status();
  window.ratio = compression_ratio(stripped(*decoded));
  const WindowText& text = window.text;
  const bool repeats = options.compression_ratio_threshold && window.ratio > *options.compression_ratio_threshold,
             improbable = options.logprob_threshold && text.avg_logprob() < *options.logprob_threshold,
             silent = options.no_speech_threshold && text.no_speech_prob > *options.no_speech_threshold && improbable;
  return silent || (!repeats && !improbable);
}

// All windows at the first temperature; those that are doubtful at the next.
Status SpeechStream::Impl::decode_with_fallback(std::span<Window> all) {
  const WindowDecoder::PromptIds ids = prompt();
  std::vector<Window*> left;
  for (Window& w : all) left.push_back(&w);
  for (size_t i = 0; i < options.temperatures.size() && !left.empty(); ++i) {
    std::vector<WindowDecoder::Window> asked;
    for (const Window* w : left) asked.push_back({&*w->source, w->draw + static_cast<uint64_t>(i) * 4096u});
    Result<std::vector<WindowText>> texts = decoder.decode(asked, ids, options.temperatures[i]);
    if (!texts.is_ok()) return texts.status();
    std::vector<Window*> doubtful;
    for (size_t k = 0; k < left.size(); ++k) {
      left[k]->text = std::move((*texts)[k]);
      const Result<bool> decided = is_decided(*left[k]);
      if (!decided.is_ok()) return decided.status();
      if (!*decided) doubtful.push_back(left[k]);
    }
    left = std::move(doubtful);
  }
  return Status::ok();
}

void SpeechStream::Impl::count() {
  const auto ids = std::max<double>(1, static_cast<double>(transcript.output_ids.size()));
  transcript.decode_ms_per_token = decode_ms / ids;
  transcript.bytes_copied_per_token = static_cast<double>(model.engine().ledger().copied - copied_before) / ids;
  transcript.language = language;
  if (language.empty()) transcript.language_probability = 0;
  transcript.samples = samples;
}

bool SpeechStream::Impl::is_silent(const WindowText& text) const {
  return options.no_speech_threshold && text.no_speech_prob > *options.no_speech_threshold &&
         !(options.logprob_threshold && text.avg_logprob() > *options.logprob_threshold);
}

// The segments of a window. Result: samples from its start to where the next one begins.
Result<int64_t> SpeechStream::Impl::keep(const Window& window) {
  if (is_silent(window.text)) return window.count;
  // Without timestamps windows are fixed, even where the model writes some.
  const bool whole = apart || given_spectrogram;  // what follows the window is not there, or another window's
  const bool words = options.timestamps == Timestamps::kWord;
  CutWindow cut = options.timestamps == Timestamps::kNone
                      ? CutWindow{{{0, window.duration, window.text.ids}}, window.duration}
                      : cut_segments(window.text.ids, window.duration, model.tokens, whole);
  std::vector<SpeechSegment> found;
  for (CutSegment& c : cut.segments) {
    Result<std::string> said = words_of(c.tokens);
    if (!said.is_ok()) return said.status();
    transcript.output_ids.insert(transcript.output_ids.end(), c.tokens.begin(), c.tokens.end());
    found.push_back({start_of(window) + c.start,
                     start_of(window) + c.end,
                     std::move(*said),
                     std::move(c.tokens),
                     window.text.avg_logprob(),
                     window.ratio,
                     window.text.no_speech_prob,
                     window.text.temperature,
                     {}});
  }
  if (words) {
    // What follows a window apart is encoded from where the timestamps say that it begins.
    SITU_RETURN_IF_ERROR(add_words(window, whole ? cut.next : window.duration, found));
    if (!whole) cut.next = move_by_words(cut, start_of(window), found);
  }
  std::erase_if(found, [&](const SpeechSegment& s) {
    return stripped(s.text).empty() || (s.words.empty() && !(s.end > s.start));
  });
  if (!apart)
    for (const SpeechSegment& s : found) text.insert(text.end(), s.tokens.begin(), s.tokens.end());
  place(window, found);
  std::move(found.begin(), found.end(), std::back_inserter(ready));
  if (!apart && (!options.condition_on_previous_text || window.text.temperature > 0.5)) text_from = text.size();
  if (given_spectrogram || !(cut.next < window.duration)) return window.count;
  const auto next = static_cast<int64_t>(std::llround(cut.next * static_cast<double>(rate)));
  return std::max<int64_t>(1, std::min(next, window.count));
}

// Runs the encoder over a window's samples, with what stands around them.
Result<SpeechStream::Impl::Window> SpeechStream::Impl::encode(const MelWindow& mel, int64_t from, int64_t original) {
  Clock::time_point start = Clock::now();
  const auto count = static_cast<int64_t>(mel.samples.size());
  Window window{from, count, static_cast<double>(count) / static_cast<double>(rate),
                static_cast<uint64_t>(original) * 1000003u};
  // Windows apart know nothing of each other, not how loud they are either.
  if (!given_spectrogram) SITU_RETURN_IF_ERROR(model.mel.window(mel, spectrogram, nullptr, apart ? nullptr : &peak));
  transcript.features_ms += ms_since(start);
  start = Clock::now();
  Result<Session> source = model.encode(spectrogram);
  if (!source.is_ok()) return source.status();
  window.source.emplace(std::move(*source));
  transcript.encode_ms += ms_since(start);
  return window;
}

// Decodes windows, in order, together.
Status SpeechStream::Impl::decode(std::span<Window> all) {
  const Clock::time_point start = Clock::now();
  SITU_RETURN_IF_ERROR(decode_with_fallback(all));
  decode_ms += ms_since(start);
  return Status::ok();
}

Status SpeechStream::Impl::advance() {
  if (apart) return advance_together();
  const Clock::time_point start = Clock::now();
  const Result<MelWindow> mel = windows->at(seek);
  if (!mel.is_ok()) return mel.status();
  // What is left of less than a frame is nothing that could be heard.
  if (static_cast<int>(mel->samples.size()) < model.mel.config().hop) {
    ended = true;
    return Status::ok();
  }
  transcript.features_ms += ms_since(start);
  if (!given_spectrogram && is_zero(mel->samples)) {
    seek += static_cast<int64_t>(mel->samples.size());
    return Status::ok();
  }
  Result<Window> window = encode(*mel, seek, seek);
  if (!window.is_ok()) return window.status();
  const Result<bool> known = knows_language(*window);
  if (!known.is_ok()) return known.status();
  if (!*known) {
    seek += window->count;
    return Status::ok();
  }
  SITU_RETURN_IF_ERROR(decode({&*window, 1}));
  const Result<int64_t> moved = keep(*window);
  if (!moved.is_ok()) return moved.status();
  seek += *moved;
  return Status::ok();
}

// As many windows as are asked for, and as the model has room for.
size_t SpeechStream::Impl::most_together() const {
  const Model::Impl& engine = model.engine();
  if (!engine.in_place) return static_cast<size_t>(options.batched);
  const StatePool& states = engine.in_place->states();
  const int64_t branches =
                    std::max(options.beams, std::ranges::max(options.temperatures) > 0 ? options.best_of : int64_t{1}),
                sources = states.space(SpaceKind::kSource).capacity() / engine.in_place->encoder()->most_rows(),
                texts = states.capacity() / engine.context_length / branches;
  return static_cast<size_t>(std::max<int64_t>(1, std::min({options.batched, sources, texts})));
}

// A window of those together, and then what is left of it, window by window, where its text ends with a pair of
// timestamps: speech goes on there. Less than a thirtieth of a window is the edge of a span.
Status SpeechStream::Impl::keep_all(Window window, std::span<const float> all) {
  const auto least = static_cast<int64_t>(model.mel.config().window_samples() / 30);
  for (;;) {
    const Result<int64_t> moved = keep(window);
    if (!moved.is_ok()) return moved.status();
    if (window.count - *moved < least) return Status::ok();
    all = all.subspan(static_cast<size_t>(*moved));
    const int64_t from = window.from + *moved;
    window.source.reset();  // its slots are the next one's
    Result<Window> rest = encode({all, {}, {}}, from, window.pieces.original(from, false));
    if (!rest.is_ok()) return rest.status();
    rest->pieces = std::move(window.pieces);
    window = std::move(*rest);
    SITU_RETURN_IF_ERROR(decode({&window, 1}));
  }
}

Status SpeechStream::Impl::advance_together() {
  std::vector<Window> all;
  std::vector<std::vector<float>> samples_of;
  for (const size_t most = most_together(); all.size() < most;) {
    const Clock::time_point start = Clock::now();
    Result<std::optional<SpeechWindow>> speech_window = apart->next();
    if (!speech_window.is_ok()) return speech_window.status();
    transcript.features_ms += ms_since(start);
    if (!*speech_window) break;
    Result<Window> window = encode({(*speech_window)->samples, {}, {}}, 0, (*speech_window)->begin());
    if (!window.is_ok()) return window.status();
    const Result<bool> known = knows_language(*window);
    if (!known.is_ok()) return known.status();
    if (!*known) continue;
    window->pieces = std::move((*speech_window)->pieces);
    all.push_back(std::move(*window));
    samples_of.push_back(std::move((*speech_window)->samples));
  }
  if (all.empty()) {
    ended = true;
    return Status::ok();
  }
  SITU_RETURN_IF_ERROR(decode(all));
  for (size_t i = 0; i < all.size(); ++i) SITU_RETURN_IF_ERROR(keep_all(std::move(all[i]), samples_of[i]));
  return Status::ok();
}

Status SpeechStream::Impl::too_short() const {
  const Status why = Status::error(
      Code::kInvalidArgument, "too short: samples at " + std::to_string(rate) + " Hz: " + std::to_string(samples) +
                                  ", and one frame of a spectrogram has " + std::to_string(model.mel.config().hop));
  return reader ? why.with_context(reader->name()) : why;
}

// What is known at the end, which may be met several times.
void SpeechStream::Impl::finish() {
  transcript.duration_s = static_cast<double>(samples) / static_cast<double>(rate);
  if (!reader || finished) return;
  finished = true;
  transcript.cut = reader->cut();
  if (!reader->note().empty()) transcript.notes.push_back(reader->note());
  if (reader->damaged_packets() > 0)
    transcript.notes.push_back(std::to_string(reader->damaged_packets()) +
                               " packets could not be decoded and were left out");
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
    if (ended && !transcript.cancelled && samples < model.mel.config().hop) {
      failed = too_short();
      return *failed;
    }
  }
  if (ready.empty()) {
    finish();
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
  return static_cast<double>(impl_->speech || impl_->apart ? impl_->samples : std::min(impl_->seek, impl_->samples)) /
         static_cast<double>(impl_->rate);
}
double SpeechStream::duration_s() const { return impl_->transcript.duration_s; }

}  // namespace situ
