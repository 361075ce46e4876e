#include "speech/window_decoder.h"

#include <algorithm>
#include <cmath>

#include "base/assign.h"
#include "requests/answer_decoding.h"
#include "requests/beam_decoding.h"
#include "requests/score_decoding.h"
#include "speech/timestamp_rule.h"

namespace situ {

WindowDecoder::WindowDecoder(Model::Impl& model, const SpeechTokens& tokens, const WindowOptions& options)
    : model_(model), tokens_(tokens), options_(options) {
  if (options.timestamps) rule_ = std::make_shared<TimestampRule>(tokens);
}

SamplingOptions WindowDecoder::sampling(double temperature, uint64_t draw, int64_t most) const {
  SamplingOptions s;
  s.sample = temperature > 0;
  s.temperature = static_cast<float>(temperature);
  s.seed = options_.seed * 0x9e3779b97f4a7c15u + draw;
  s.end_ids = {tokens_.end};
  s.max_new_tokens = most;
  s.suppressed = tokens_.suppressed;
  s.suppressed_first = tokens_.suppressed_first;
  s.rule = rule_;
  return s;
}

namespace {

double probability_of(std::span<const float> logits, int64_t id) {
  LogProbabilities read;
  read.read(logits);
  return std::exp(read.of(id));
}

Opening opening_of(const WindowDecoder::PromptIds& prompt) {
  Opening opening;
  opening.start.decoder = prompt.ids;
  return opening;
}

// A window as a request: behind the encoder's output, which there is. The row of the first token is wanted too, where a
// step gives several.
template <typename Base>
class OfWindow : public Base {
 public:
  template <typename... Rules>
  OfWindow(Strand source, const SpeechTokens& tokens, const WindowDecoder::PromptIds& prompt, Rules&&... rules)
      : Base(*source.served, opening_of(prompt), std::forward<Rules>(rules)...),
        tokens_(tokens),
        source_(std::move(source)),
        start_at_(static_cast<int64_t>(prompt.start_at)) {
    if (this->served_.rows_of_one() > 1) this->prompt_rows_ = prompt.start_at + 1;
  }
  void release() override {
    Base::release();
    source_ = Strand();
  }
  double no_speech() const { return no_speech_; }

 protected:
  Result<bool> open(Strand& strand, Clock::time_point, Figures&) override {
    strand = source_.fork();
    return true;
  }
  void see_prompt(int64_t at, std::span<const float> row) override {
    if (at == start_at_) no_speech_ = probability_of(row, tokens_.no_speech);
  }
  const SpeechTokens& tokens_;

 private:
  Strand source_;
  const int64_t start_at_;
  double no_speech_ = 0;
};

using WindowSearch = OfWindow<BeamDecoding>;
using WindowAnswers = OfWindow<AnswerDecoding>;  // greedily, or several that are drawn

// The likeliest of the answers.
Result<WindowText> best_of(const Generation& g) {
  WindowText best;
  for (const Generation::Answer& a : g.answers) {
    if (a.finish_reason == FinishReason::kError)
      return g.finish_reason == FinishReason::kError ? Status::error(g.error_code, g.error) : Status::error(a.error);
    if (a.finish_reason == FinishReason::kCancelled) return Status::error(Code::kInterrupted, "interrupted");
    WindowText text;
    text.ids = a.output_ids;
    text.log_probability = a.score;
    if (&a == &g.answers[0] || text.avg_logprob() > best.avg_logprob()) best = std::move(text);
  }
  return best;
}

// Jobs that look at what a call has: it does not end before them, however it ends.
struct Awaited {
  std::vector<std::shared_ptr<Job>> jobs;
  ~Awaited() {
    for (const auto& job : jobs) job->cancel();
    for (const auto& job : jobs)
      while (!job->wait(std::chrono::hours(24))) {
      }
  }
};

}  // namespace

Result<std::vector<WindowText>> WindowDecoder::decode(std::span<const Window> windows, const PromptIds& prompt,
                                                      double temperature) {
  // As many tokens as the reference allows: half the context, and no more than it holds.
  const int64_t context = model_.context_length,
                most = std::max<int64_t>(1, std::min(context / 2, context - static_cast<int64_t>(prompt.ids.size())));
  const bool search = temperature <= 0 && options_.beams > 1;
  BeamOptions beams;
  beams.beams = options_.beams;
  beams.length_penalty = options_.length_penalty;
  beams.patience = options_.patience;
  beams.early_stopping = EarlyStopping::kFirst;
  beams.max_new_tokens = most;
  beams.end_ids = {tokens_.end};
  Awaited awaited;
  std::vector<std::shared_ptr<Job>>& jobs = awaited.jobs;
  jobs.reserve(windows.size());  // so that nothing fails behind a submission
  for (const Window& w : windows) {
    Strand source = impl_of(*w.source).strand().fork();
    std::unique_ptr<Decoding> decoding;
    const auto count = static_cast<uint64_t>(temperature > 0 ? options_.best_of : 1);
    std::vector<AnswerRules> all;
    for (uint64_t i = 1; i <= count; ++i) {
      AnswerRules& own = all.emplace_back();
      own.sampling = sampling(temperature, search ? 0 : w.draw + i % count, most);
      own.beams = beams;
      own.text.wanted = false;
      own.score = true;
    }
    if (search)
      decoding = std::make_unique<WindowSearch>(std::move(source), tokens_, prompt, std::move(all[0]), true);
    else
      decoding = std::make_unique<WindowAnswers>(std::move(source), tokens_, prompt, std::move(all), 0, false);
    jobs.push_back(model_.scheduler->submit_part(std::move(decoding), {.follows_flag = true}));
  }
  Status failed;
  std::vector<Result<Generation>> made;
  for (const auto& job : jobs)
    if (!made.emplace_back(job->result()).is_ok() && failed.is_ok()) failed = made.back().status();
  if (!failed.is_ok()) return failed;
  std::vector<WindowText> texts;
  for (size_t i = 0; i < windows.size(); ++i) {
    WindowText& text = texts.emplace_back();
    if (search) {
      const auto& found = static_cast<WindowSearch&>(*jobs[i]->decoding);
      if (!found.failure().is_ok()) return found.failure();
      const std::vector<BeamSearch::Answer> answers = found.answers_found();
      if (made[i]->finish_reason == FinishReason::kCancelled) return Status::error(Code::kInterrupted, "interrupted");
      if (answers.empty()) return Status::error(Code::kNoRoom, "the state has no room for an answer to a window");
      text.ids = answers[0].ids;
      text.log_probability = answers[0].log_probability;
      text.no_speech_prob = found.no_speech();
    } else {
      SITU_RETURN_IF_ERROR(assign(&text, best_of(*made[i])));
      text.no_speech_prob = static_cast<WindowAnswers&>(*jobs[i]->decoding).no_speech();
    }
    text.temperature = temperature;
    if (model_.rows_of_one() > 1 || prompt.ids.size() == prompt.start_at + 1) continue;
    // A step gives one row: that of the first token comes by a step of its own.
    const auto row = logits_after(*windows[i].source, std::span(prompt.ids).first(prompt.start_at + 1));
    if (!row.is_ok()) return row.status();
    text.no_speech_prob = probability_of(*row, tokens_.no_speech);
  }
  return texts;
}

Result<std::vector<float>> WindowDecoder::logits_after(const Session& source, std::span<const int64_t> tokens) {
  std::vector<int64_t> all(tokens.begin(), tokens.end());
  all.push_back(0);  // what is scored, whatever it is
  std::vector<float> found;
  const int64_t count = std::ssize(tokens);
  const Result<Generation> done = model_.wait_for(std::make_unique<ScoreDecoding>(
      impl_of(source).strand().fork(), std::move(all), std::vector<ScoreDecoding::Window>{{0, count, count + 1}}, true,
      [&](int64_t, std::span<const float> logits) { found.assign(logits.begin(), logits.end()); }));
  if (!done.is_ok()) return done.status();
  return found;
}

Result<WindowDecoder::FirstToken> WindowDecoder::first_token(const Session& source) {
  const Result<std::vector<float>> logits = logits_after(source, {&tokens_.start, 1});
  if (!logits.is_ok()) return logits.status();
  FirstToken first;
  auto& found = first.languages;
  double largest = -std::numeric_limits<double>::infinity(), sum = 0;
  for (const auto& [code, id] : tokens_.languages) {
    const float x = (*logits)[static_cast<size_t>(id)];
    found.emplace_back(code, x == x ? static_cast<double>(x) : -std::numeric_limits<double>::infinity());
    largest = std::max(largest, found.back().second);
  }
  for (auto& [code, p] : found) sum += p = std::exp(p - largest);
  for (auto& [code, p] : found) p /= sum;
  std::stable_sort(found.begin(), found.end(), [](const auto& a, const auto& b) { return a.second > b.second; });
  first.no_speech_prob = probability_of(*logits, tokens_.no_speech);
  return first;
}

}  // namespace situ
