#include "speech/words.h"

#include <algorithm>
#include <cmath>

#include "generate/logprobs.h"
#include "requests/align_decoding.h"
#include "requests/score_decoding.h"
#include "speech/alignment.h"

namespace situ {
namespace {

constexpr double kShortest = 0.02;   // seconds of a segment
constexpr double kMostMiddle = 0.7;  // seconds
constexpr double kMuch = 0.5;        // seconds that a word may reach beyond its segment

// Times are multiples of frames: what is as late is not later by rounding.
bool is_above(double a, double b) { return a - b > 1e-6; }

bool writes_no_spaces(const std::string& language) {
  for (const char* code : {"zh", "ja", "th", "lo", "my", "yue"})
    if (language == code) return true;
  return false;
}

bool is_ascii_mark(const std::string& text) {
  return text.size() == 1 && std::ispunct(static_cast<unsigned char>(text[0]));
}

std::string without_spaces(const std::string& text) {
  const size_t from = text.find_first_not_of(' '), to = text.find_last_not_of(' ');
  return from == std::string::npos ? "" : text.substr(from, to - from + 1);
}

// Whole characters: a token may end within one.
Result<std::vector<TokenWord>> split_characters(const FolderTokenizer& tokenizer, std::span<const int64_t> ids) {
  std::vector<TokenWord> words;
  const std::string unfinished = "\xef\xbf\xbd";
  for (size_t from = 0, to = 1; to <= ids.size(); ++to) {
    Result<std::string> text = tokenizer.decode(ids.subspan(from, to - from), false);
    if (!text.is_ok()) return text.status();
    if (text->find(unfinished) != std::string::npos && to < ids.size() && to - from < 8) continue;
    words.push_back({std::move(*text), to - from});
    from = to;
  }
  return words;
}

// Marks before a word, or spaces alone, and marks behind it are part of it.
void join_marks(std::vector<SpeechWord>& words, std::vector<size_t>& counts) {
  static const std::string kBefore[] = {"", "\"", "'", "“", "¿", "(", "[", "{", "-"};
  static const std::string kBehind[] = {"\"", "'", ".",  "。", ",", "，", "!", "！", "?",
                                        "？", ":", "：", "”",  ")", "]",  "}", "、"};
  const auto in = [](const auto& marks, const std::string& text) {
    return std::find(std::begin(marks), std::end(marks), text) != std::end(marks);
  };
  for (size_t i = words.size(); i-- > 1;) {
    SpeechWord &mark = words[i - 1], &word = words[i];
    if (mark.word.empty() || mark.word[0] != ' ' || !in(kBefore, without_spaces(mark.word))) continue;
    word.word = mark.word + word.word;
    counts[i] += counts[i - 1];
    words.erase(words.begin() + static_cast<int64_t>(i - 1));
    counts.erase(counts.begin() + static_cast<int64_t>(i - 1));
  }
  for (size_t i = 0; i + 1 < words.size();) {
    if (words[i].word.ends_with(' ') || !in(kBehind, words[i + 1].word)) {
      ++i;
      continue;
    }
    words[i].word += words[i + 1].word;
    counts[i] += counts[i + 1];
    words.erase(words.begin() + static_cast<int64_t>(i + 1));
    counts.erase(counts.begin() + static_cast<int64_t>(i + 1));
  }
}

// How probable the model finds each of `ids` behind the prompt and those before it.
Result<std::vector<double>> probabilities(Model::Impl& model, const Session& source, std::span<const int64_t> prompt,
                                          std::span<const int64_t> ids) {
  std::vector<int64_t> all(prompt.begin(), prompt.end());
  all.insert(all.end(), ids.begin(), ids.end());
  std::vector<double> found;
  LogProbabilities read;
  const auto count = std::ssize(prompt);
  const Result<Generation> done = model.wait_for(std::make_unique<ScoreDecoding>(
      impl_of(source).strand().fork(), all, std::vector<ScoreDecoding::Window>{{0, count, std::ssize(all)}}, true,
      [&](int64_t token, std::span<const float> logits) {
        read.read(logits);
        found.push_back(std::exp(read.of(all[static_cast<size_t>(token)])));
      }));
  if (!done.is_ok()) return done.status();
  return found;
}

}  // namespace

Result<std::vector<TokenWord>> split_words(const FolderTokenizer& tokenizer, std::span<const int64_t> ids,
                                           const std::string& language) {
  Result<std::vector<TokenWord>> parts = split_characters(tokenizer, ids);
  if (!parts.is_ok() || writes_no_spaces(language)) return parts;
  std::vector<TokenWord> words;
  for (TokenWord& p : *parts) {
    const bool begins = p.text.starts_with(' ') || is_ascii_mark(without_spaces(p.text)) || words.empty();
    if (begins) {
      words.push_back(std::move(p));
    } else {
      words.back().text += p.text;
      words.back().tokens += p.tokens;
    }
  }
  return words;
}

double middle_length(std::span<const SpeechWord> words) {
  std::vector<double> lengths;
  for (const SpeechWord& w : words)
    if (w.end != w.start) lengths.push_back(w.end - w.start);
  if (lengths.empty()) return 0;
  std::sort(lengths.begin(), lengths.end());
  const size_t half = lengths.size() / 2;
  const double middle = lengths.size() % 2 == 1 ? lengths[half] : (lengths[half - 1] + lengths[half]) / 2;
  return std::min(middle, kMostMiddle);
}

void shorten_at_sentences(std::span<SpeechWord> words, double middle) {
  const auto ends_sentence = [](const SpeechWord& w) {
    for (const char* mark : {".", "。", "!", "！", "?", "？"})
      if (w.word == mark) return true;
    return false;
  };
  const double most = 2 * middle;
  for (size_t i = 1; i < words.size() && middle > 0; ++i) {
    SpeechWord& w = words[i];
    if (!is_above(w.end - w.start, most)) continue;
    if (ends_sentence(w))
      w.end = w.start + most;
    else if (ends_sentence(words[i - 1]))
      w.start = w.end - most;
  }
}

void fit_to_words(std::span<SpeechSegment> segments, double middle, double spoken) {
  const double most = 2 * middle;
  for (SpeechSegment& s : segments) {
    if (s.words.empty()) continue;
    SpeechWord &first = s.words.front(), &last = s.words.back();
    SpeechWord* second = s.words.size() > 1 ? &s.words[1] : nullptr;
    const bool is_long =
        is_above(first.end - first.start, most) || (second && is_above(second->end - first.start, 2 * most));
    if (is_above(first.end - spoken, 4 * middle) && is_long) {
      if (second && is_above(second->end - second->start, most))
        first.end = second->start = std::max(second->end / 2, second->end - most);
      first.start = std::max(0.0, first.end - most);
    }
    if (is_above(first.end, s.start) && is_above(s.start - kMuch, first.start))
      first.start = std::max(0.0, std::min(first.end - middle, s.start));
    else
      s.start = first.start;
    if (is_above(s.end, last.start) && is_above(last.end, s.end + kMuch))
      last.end = std::max(last.start + middle, s.end);
    else
      s.end = last.end;
    spoken = s.end;
  }
}

double put_in_order(std::span<SpeechSegment> segments, double spoken) {
  for (SpeechSegment& s : segments) {
    double end = spoken;
    for (SpeechWord& w : s.words) {
      w.start = std::max(w.start, end);
      end = w.end = std::max(w.end, w.start);
    }
    s.start = std::max(s.start, spoken);
    if (!s.words.empty()) s.start = std::min(s.start, s.words.front().start);
    s.end = std::max(s.end, end);
    if (!(s.end > s.start)) s.end = s.start + kShortest;
    spoken = s.end;
  }
  return spoken;
}

Result<FoundWords> find_words(Model::Impl& model, const SpeechTokens& tokens, const Session& source,
                              std::span<const int64_t> prompt, std::span<const int64_t> ids,
                              const std::string& language, double duration, double longest) {
  FoundWords found;
  if (ids.empty()) return found;
  if (!model.in_place)
    return Status::error(Code::kInvalidArgument, "word times come from placed programs; the naive mode has none");
  const auto shape = model.in_place->attending_heads();
  if (!shape.is_ok()) return shape.status();
  std::vector<AttentionHead> heads;
  for (const auto& [layer, head] : tokens.alignment_heads) heads.push_back({layer, head});
  if (heads.empty())
    for (int64_t layer = shape->first / 2; layer < shape->first; ++layer)
      for (int64_t head = 0; head < shape->second; ++head) heads.push_back({layer, head});
  std::vector<int64_t> fed(prompt.begin(), prompt.end());
  fed.push_back(tokens.no_timestamps);
  fed.insert(fed.end(), ids.begin(), ids.end());
  fed.push_back(tokens.end);
  const auto rows = static_cast<int64_t>(fed.size()), count = static_cast<int64_t>(heads.size());
  std::vector<float> weights;
  SITU_RETURN_IF_ERROR(
      model.wait_for(std::make_unique<AlignDecoding>(impl_of(source).strand().fork(), fed, std::move(heads), &weights))
          .status());
  const int64_t stride = std::ssize(weights) / (rows * count);
  const double frame = longest / static_cast<double>(stride);  // seconds
  const int64_t frames = std::clamp<int64_t>(static_cast<int64_t>(duration / frame), 1, stride);
  const std::vector<int64_t> begins = align_tokens(
      weights, count, rows, stride, frames, static_cast<int64_t>(prompt.size()), static_cast<int64_t>(ids.size()));
  fed.pop_back();
  const Result<std::vector<double>> likely = probabilities(model, source, std::span(fed).first(prompt.size() + 1), ids);
  if (!likely.is_ok()) return likely.status();
  Result<std::vector<TokenWord>> parts = split_words(*model.tokenizer, ids, language);
  if (!parts.is_ok()) return parts.status();
  size_t at = 0;
  for (TokenWord& p : *parts) {
    double sum = 0;
    for (size_t i = at; i < at + p.tokens; ++i) sum += (*likely)[i];
    found.words.push_back({frame * static_cast<double>(begins[at]), frame * static_cast<double>(begins[at + p.tokens]),
                           std::move(p.text), sum / static_cast<double>(p.tokens)});
    found.counts.push_back(p.tokens);
    at += p.tokens;
  }
  found.middle = middle_length(found.words);
  shorten_at_sentences(found.words, found.middle);
  join_marks(found.words, found.counts);
  return found;
}

}  // namespace situ
