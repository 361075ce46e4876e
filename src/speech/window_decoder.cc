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

// A window's text, greedily or the best of several that are drawn.
class WindowDecoding : public Decoding {
 public:
  struct Plan {
    const SpeechTokens& tokens;
    const WindowDecoder::PromptIds& prompt;
    int64_t most = 0;  // tokens of the text
  };
  WindowDecoding(Strand source, Plan plan, std::vector<Sampler> samplers)
      : served_(*source.served), source_(std::move(source)), plan_(plan) {
    for (Sampler& s : samplers) branches_.push_back({Strand(), std::move(s), {}, false});
  }

  Served& served() const override { return served_; }
  int64_t tokens_to_begin() const override {
    int64_t tokens = std::ssize(plan_.prompt.ids);
    for (const Branch& b : branches_) tokens += std::ssize(b.text.ids);
    return tokens;
  }
  Result<bool> begin(Clock::time_point, Figures&) override {
    for (Branch& b : branches_) b.strand = source_.fork();
    return true;
  }
  Status wants(std::vector<Want>& wants) override {
    const Branch* const first = stem();
    for (size_t i = 0; i < branches_.size(); ++i) {
      Branch& b = branches_[i];
      if (b.ended || (&b != first && b.strand.length() < prompt())) continue;
      wants.push_back(next_of(b.strand, b.sampler.ids(), prompt_rows(), i));
    }
    return Status::ok();
  }
  void take(const Want& want, Rows rows) override {
    Branch& b = branches_[want.branch];
    for (int64_t r = 0; r < std::ssize(rows) && !b.ended; ++r) {
      const int64_t at = b.strand.length() - std::ssize(rows) + r;
      const std::span<const float> row = rows[static_cast<size_t>(r)];
      if (at == static_cast<int64_t>(plan_.prompt.start_at)) no_speech_ = probability_of(row, plan_.tokens.no_speech);
      if (at + 1 < std::ssize(b.sampler.ids())) continue;
      const bool begins = !answers_;
      answers_ = true;
      for (Branch& each : branches_)
        if (begins || &each == &b)
          if (const Status done = choose(each, row, at + 1); !done.is_ok()) return fail(done);
    }
  }
  void settle() override {
    // The one that was fed the prompt, which may have ended with its first token.
    const auto fed = std::find_if(branches_.begin(), branches_.end(),
                                  [&](const Branch& b) { return b.strand.length() == prompt(); });
    for (Branch& b : branches_)
      if (fed != branches_.end() && !b.ended && b.strand.length() == 0) b.strand = fed->strand.fork();
  }
  void fail(const Status& why) override {
    status_ = why;
    for (Branch& b : branches_) b.ended = true;
  }
  void end(FinishReason reason) override {
    if (reason == FinishReason::kLength) {
      for (Branch& b : branches_) b.ended = true;
    } else {
      fail(Status::error(Code::kInterrupted, "interrupted"));
    }
  }
  bool ended() const override {
    return std::all_of(branches_.begin(), branches_.end(), [](const Branch& b) { return b.ended; });
  }
  bool answers() const override { return answers_; }
  bool may_give_way() const override { return true; }
  void give_up_runs() override {
    for (Branch& b : branches_) b.strand = Strand();
  }
  void release() override {
    give_up_runs();
    source_ = Strand();
  }
  Result<Generation> finish(const Figures&) override {
    if (!status_.is_ok()) return status_;
    return Generation();
  }
  double no_speech() const { return no_speech_; }
  const WindowText& best() const {
    const Branch* found = &branches_[0];
    for (const Branch& b : branches_)
      if (found->text.avg_logprob() < b.text.avg_logprob()) found = &b;
    return found->text;
  }

 private:
  struct Branch {
    Strand strand;
    Sampler sampler;
    WindowText text;
    bool ended = false;
  };
  int64_t prompt() const { return std::ssize(plan_.prompt.ids); }
  // The row of the first token is wanted too, where a step gives several.
  size_t prompt_rows() const { return served_.rows_of_one() > 1 ? plan_.prompt.start_at + 1 : plan_.prompt.ids.size(); }
  Branch* stem() {
    const auto b = std::find_if(branches_.begin(), branches_.end(), [](const Branch& branch) { return !branch.ended; });
    return b == branches_.end() ? nullptr : &*b;
  }
  // The token that follows a branch of so many tokens.
  Status choose(Branch& b, std::span<const float> logits, int64_t length) {
    const Result<int64_t> id = b.sampler.choose(logits);
    if (!id.is_ok()) return id.status();
    LogProbabilities read;
    read.read(b.sampler.last_scores());
    b.text.log_probability += read.of(*id);
    b.ended = *id == plan_.tokens.end;
    if (b.ended) return Status::ok();
    b.text.ids.push_back(*id);
    b.sampler.append(*id);
    b.ended = std::ssize(b.text.ids) >= plan_.most || length >= served_.context_length;
    return Status::ok();
  }

  Served& served_;
  Strand source_;
  const Plan plan_;
  std::vector<Branch> branches_;
  bool answers_ = false;
  double no_speech_ = 0;
  Status status_;
};

Opening opening_of(const WindowDecoder::PromptIds& prompt) {
  Opening opening;
  opening.start.decoder = prompt.ids;
  return opening;
}

class WindowSearch : public BeamDecoding {
 public:
  WindowSearch(Strand source, const SpeechTokens& tokens, const WindowDecoder::PromptIds& prompt, AnswerRules rules)
      : BeamDecoding(*source.served, opening_of(prompt), std::move(rules), true),
        source_(std::move(source)),
        tokens_(tokens),
        start_at_(prompt.start_at) {
    if (served_.rows_of_one() > 1) prompt_rows_ = prompt.start_at + 1;
  }
  void release() override {
    BeamDecoding::release();
    source_ = Strand();
  }
  double no_speech() const { return no_speech_; }

 protected:
  Result<bool> open(Strand& strand, Clock::time_point, Figures&) override {
    strand = source_.fork();
    return true;
  }
  void see_prompt(int64_t at, std::span<const float> row) override {
    if (at == static_cast<int64_t>(start_at_)) no_speech_ = probability_of(row, tokens_.no_speech);
  }

 private:
  Strand source_;
  const SpeechTokens& tokens_;
  const size_t start_at_;
  double no_speech_ = 0;
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
  Awaited awaited;
  std::vector<std::shared_ptr<Job>>& jobs = awaited.jobs;
  jobs.reserve(windows.size());  // so that nothing fails behind a submission
  for (const Window& w : windows) {
    Strand source = impl_of(*w.source).strand().fork();
    std::unique_ptr<Decoding> decoding;
    if (search) {
      AnswerRules rules;
      rules.sampling = sampling(0, 0, most);
      rules.beams.beams = options_.beams;
      rules.beams.length_penalty = options_.length_penalty;
      rules.beams.patience = options_.patience;
      rules.beams.early_stopping = EarlyStopping::kFirst;
      rules.beams.max_new_tokens = most;
      rules.beams.end_ids = {tokens_.end};
      decoding = std::make_unique<WindowSearch>(std::move(source), tokens_, prompt, std::move(rules));
    } else {
      std::vector<Sampler> samplers;
      const auto count = static_cast<uint64_t>(temperature > 0 ? options_.best_of : 1);
      for (uint64_t i = 1; i <= count; ++i)
        samplers.emplace_back(sampling(temperature, w.draw + i % count, most), prompt.ids, model_.vocabulary);
      decoding = std::make_unique<WindowDecoding>(std::move(source), WindowDecoding::Plan{tokens_, prompt, most},
                                                  std::move(samplers));
    }
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
