// Where segments and words stand in the recording.
#include <cmath>
#include <tuple>

#include "speech/speech_stream.h"
#include "speech/words.h"

namespace situ {

// A window moves by this part of its length at least, if words say how far.
static constexpr double kShortMove = 30;

std::pair<double, double> SpeechStream::Impl::seconds(const Window& window, double begin, double end, bool word) const {
  const auto samples_of = [&](double s) { return static_cast<int64_t>(std::llround(s * static_cast<double>(rate))); };
  KeptPieces::Span s{samples_of(begin), samples_of(end)};
  if (const KeptPieces* pieces = apart ? &window.pieces : speech ? &speech->pieces() : nullptr) {
    // No speech is in the padding of a piece, and little behind what ends it. A word is in one piece: in the later one,
    // unless it ends in that one's padding, since words that begin a sentence are found too long, not too short.
    const VoiceOptions voice;
    const int64_t padding = samples_of(voice.padding);
    s = pieces->without_edges(s, 0, padding);
    s = pieces->without_edges(s, word ? samples_of(30) : samples_of(voice.hangover) + padding, 0);
    s = {pieces->original(s.begin, false), pieces->original(s.end, true)};
  }
  return {static_cast<double>(s.begin) / static_cast<double>(rate),
          static_cast<double>(s.end) / static_cast<double>(rate)};
}

// Words of segments whose times are those of what is read in windows. `most`: seconds into the window where all words
// end at the latest.
Status SpeechStream::Impl::add_words(const Window& window, double most, std::span<SpeechSegment> segments) {
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
  Result<FoundWords> found = find_words(model.engine(), model.tokens, *window.source, start, ids, language,
                                        window.duration, model.mel.config().chunk_seconds);
  if (!found.is_ok()) return found.status();
  size_t segment = 0, at = 0;
  for (size_t i = 0; i < found->words.size(); ++i) {
    while (segment + 1 < ends.size() && at >= ends[segment]) ++segment;
    SpeechWord& w = found->words[i];
    w.start = start_of(window) + std::min(w.start, most);
    w.end = start_of(window) + std::min(w.end, most);
    segments[segment].words.push_back(std::move(w));
    at += found->counts[i];
  }
  // Where the words before these ended, if no pause was left out since then.
  const double pause = seconds(window, start_of(window), start_of(window), true).first - spoken;
  fit_to_words(segments, found->middle, start_of(window) - pause);
  return Status::ok();
}

// Seconds from the window's start to where the last word ends: there the next window begins, unless nothing is said
// behind it. Words that all lie at the window's very start are no place to go on from: the same would be heard again.
double SpeechStream::Impl::move_by_words(const CutWindow& cut, double start,
                                         std::span<const SpeechSegment> segments) const {
  if (cut.ended) return cut.next;
  for (size_t i = segments.size(); i-- > 0;) {
    if (segments[i].words.empty()) continue;
    const double next = segments[i].words.back().end - start;
    return next * kShortMove < model.mel.config().chunk_seconds ? cut.next : next;
  }
  return cut.next;
}

// Segments and their words at their times of the recording.
void SpeechStream::Impl::place(const Window& window, std::vector<SpeechSegment>& segments) {
  for (SpeechSegment& s : segments) {
    std::tie(s.start, s.end) = seconds(window, s.start, s.end, false);
    for (SpeechWord& w : s.words) std::tie(w.start, w.end) = seconds(window, w.start, w.end, true);
  }
  if (options.timestamps == Timestamps::kWord) spoken = put_in_order(segments, spoken);
}

}  // namespace situ
