#include "speech/window_decoder.h"

#include <algorithm>
#include <cmath>

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

// A window's text, greedily or the best of several that are drawn.
class WindowDecoding : public OfWindow<AnswerDecoding> {
 public:
  WindowDecoding(Strand source, const SpeechTokens& tokens, const WindowDecoder::PromptIds& prompt,
                 std::vector<AnswerRules> rules)
      : OfWindow(std::move(source), tokens, prompt, std::move(rules), 0, false), texts_(branches_.size()) {}

  void fail(const Status& why) override {
    if (status_.is_ok()) status_ = why;
    OfWindow::fail(why);
  }
  void end(FinishReason reason) override {
    if (reason != FinishReason::kLength) status_ = Status::error(Code::kInterrupted, "interrupted");
    OfWindow::end(reason);
  }
  Result<Generation> finish(const Figures&) override {
    if (!status_.is_ok()) return status_;
    return Generation();
  }
  const WindowText& best() const {
    return *std::max_element(texts_.begin(), texts_.end(), [](const WindowText& a, const WindowText& b) {
      return a.avg_logprob() < b.avg_logprob();
    });
  }

 protected:
  Status choose(Branch& branch, std::span<const float> logits, int64_t length) override {
    const size_t before = branch.answer.ids().size();
    if (const Status done = OfWindow::choose(branch, logits, length); !done.is_ok()) {
      fail(done);
      return done;
    }
    const bool ends = branch.answer.ids().size() == before;
    const int64_t id = ends ? tokens_.end : branch.answer.ids().back();
    WindowText& text = texts_[static_cast<size_t>(&branch - branches_.data())];
    LogProbabilities read;
    read.read(branch.answer.sampler().last_scores());
    text.log_probability += read.of(id);
    if (!ends) text.ids.push_back(id);
    return Status::ok();
  }

 private:
  std::vector<WindowText> texts_;  // by branch
  Status status_;
};

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
      own.text = false;
    }
    if (search)
      decoding = std::make_unique<WindowSearch>(std::move(source), tokens_, prompt, std::move(all[0]), true);
    else
      decoding = std::make_unique<WindowDecoding>(std::move(source), tokens_, prompt, std::move(all));
    jobs.push_back(model_.scheduler->submit_part(std::move(decoding), {.follows_flag = true}));
  }
  Status failed;
  for (const auto& job : jobs)
    if (const Result<Generation> done = job->result(); !done.is_ok() && failed.is_ok()) failed = done.status();
  if (!failed.is_ok()) return failed;
  std::vector<WindowText> texts;
  for (size_t i = 0; i < windows.size(); ++i) {
    WindowText& text = texts.emplace_back();
    if (search) {
      const auto& found = static_cast<WindowSearch&>(*jobs[i]->decoding);
      if (!found.failure().is_ok()) return found.failure();
      const std::vector<BeamSearch::Answer> answers = found.answers_found();
      text.ids = answers[0].ids;
      text.log_probability = answers[0].log_probability;
      text.no_speech_prob = found.no_speech();
    } else {
      const auto& found = static_cast<WindowDecoding&>(*jobs[i]->decoding);
      text = found.best();
      text.no_speech_prob = found.no_speech();
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
