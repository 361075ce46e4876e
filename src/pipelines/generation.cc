// Model::generate: prompt, then choose, report and step until something ends the answer; or a beam search.
#include <algorithm>

#include "base/clock.h"
#include "generate/logprobs.h"
#include "pipelines/beams.h"
#include "pipelines/llm.h"
#include "pipelines/sampling.h"
#include "pipelines/text_output.h"

namespace situ {
namespace {

// One answer while it is made: the choice of its tokens, and what the caller gets to see of them.
class Answer {
 public:
  Answer(const Model::Impl& model, const GenerateOptions& options, ResolvedOptions resolved, std::span<const int64_t> prompt, const TokenCallback& on_token)
      : options_(options),
        on_token_(on_token),
        text_(model.tokenizer ? &*model.tokenizer : nullptr, resolved.stop),
        end_ids_(resolved.sampling.end_ids),
        sampler_(std::move(resolved.sampling), prompt, model.vocabulary) {}

  Status echo(std::span<const int64_t> prompt) {
    Result<std::string> text = text_.echo(prompt);
    if (text.is_ok() && !text->empty()) show({-1, *text});
    return text.status();
  }

  // Chooses the next token by the logits and reports it. ended() afterwards: this was the last, or it is no token.
  Result<int64_t> next(std::span<const float> logits) {
    Result<int64_t> chosen = sampler_.choose(logits);
    if (!chosen.is_ok()) return chosen;
    if (std::find(end_ids_.begin(), end_ids_.end(), *chosen) != end_ids_.end()) {
      result_.finish_reason = "stop";
      return chosen;
    }
    sampler_.append(*chosen);
    result_.output_ids.push_back(*chosen);
    Token token;
    token.id = *chosen;
    if (options_.logprobs) token.logprob = report_logprobs(*chosen, logits);
    Result<std::string> text = text_.push(*chosen);
    if (!text.is_ok()) return text.status();
    token.text = *text;
    show(token);
    if (text_.stopped()) result_.finish_reason = "stop";
    if (static_cast<int64_t>(result_.output_ids.size()) >= options_.max_new_tokens) end_by_length();
    return chosen;
  }

  bool ended() const { return !result_.finish_reason.empty(); }
  void end_by_length() {
    if (!ended()) result_.finish_reason = "length";
  }

  Result<Generation> finish() {
    Result<std::string> rest = text_.finish();
    if (rest.is_ok() && !rest->empty()) show({-1, *rest});
    if (text_.stopped()) result_.finish_reason = "stop";
    return std::move(result_);
  }

 private:
  void show(const Token& token) {
    result_.text += token.text;
    if (!on_token_ || refused_ || on_token_(token)) return;
    refused_ = true;
    result_.finish_reason = "stop";
  }

  double report_logprobs(int64_t id, std::span<const float> logits) {
    logprobs_.read(logits);
    Generation::Logprobs& l = result_.logprobs.emplace_back();
    l.logprob = logprobs_.of(id);
    for (const LogProbabilities::Entry& e : logprobs_.top(*options_.logprobs)) l.top.push_back({e.id, e.logprob});
    return l.logprob;
  }

  const GenerateOptions& options_;
  const TokenCallback& on_token_;
  TextOutput text_;
  std::vector<int64_t> end_ids_;
  Sampler sampler_;
  LogProbabilities logprobs_;
  Generation result_;
  bool refused_ = false;  // by the callback, which is then not called again
};

// What a generation took, from its beginning to its last step.
class Meter {
 public:
  explicit Meter(Model::Impl& model) : model_(model), before_(model.ledger()), start_(Clock::now()) {}
  void prompt_done() {
    prompt_ms_ = ms_since(start_);
    prompt_done_ = model_.ledger();
    start_ = Clock::now();
  }
  void finish(int64_t steps, Generation& g) const {
    const Ledger after = model_.ledger();
    const double tokens = std::max<double>(1, static_cast<double>(g.output_ids.size())), counted = std::max<double>(1, static_cast<double>(steps));
    g.prefill_ms = prompt_ms_;
    if (steps > 0) g.decode_ms_per_token = ms_since(start_) / counted;
    g.bytes_copied_per_token = static_cast<double>(after.copied - before_.copied) / tokens;
    const Ledger& from = steps > 0 ? prompt_done_ : before_;
    g.bytes_written_per_token = static_cast<double>(after.computed + after.copied - from.computed - from.copied) / counted;
  }

 private:
  Model::Impl& model_;
  Ledger before_, prompt_done_;
  Clock::time_point start_;
  double prompt_ms_ = 0;
};

// The answers as text; the best one is shown when it is known.
Result<Generation> found_answers(const Model::Impl& model, const GenerateOptions& options, std::span<const int64_t> prompt, const std::vector<BeamSearch::Answer>& answers, const TokenCallback& on_token) {
  Generation g;
  for (const BeamSearch::Answer& a : answers) {
    if (static_cast<int64_t>(g.answers.size()) == options.num_return) break;
    bool wanted = on_token && g.answers.empty();
    Generation::Answer& answer = g.answers.emplace_back();
    answer.output_ids = a.ids;
    answer.finish_reason = a.ended ? "stop" : "length";
    answer.score = a.score;
    TextOutput output(model.tokenizer ? &*model.tokenizer : nullptr, {});
    const auto add = [&](int64_t id, const Result<std::string>& text) {
      if (!text.is_ok()) return text.status();
      answer.text += *text;
      if (wanted && (id >= 0 || !text->empty())) wanted = on_token({id, *text, {}});
      return Status::ok();
    };
    if (options.echo) SITU_RETURN_IF_ERROR(add(-1, output.echo(prompt)));
    for (const int64_t id : a.ids) SITU_RETURN_IF_ERROR(add(id, output.push(id)));
    SITU_RETURN_IF_ERROR(add(-1, output.finish()));
  }
  g.output_ids = g.answers[0].output_ids;
  g.text = g.answers[0].text;
  g.finish_reason = g.answers[0].finish_reason;
  return g;
}

}  // namespace

Result<Generation> Model::generate(std::span<const int64_t> prompt, const GenerateOptions& options, const TokenCallback& on_token) {
  SITU_RETURN_IF_ERROR(impl_->check(prompt, 0));
  Result<ResolvedOptions> resolved = resolve_options(options, impl_->folder, impl_->tokenizer ? &*impl_->tokenizer : nullptr, impl_->vocabulary);
  if (!resolved.is_ok()) return resolved.status();
  Result<Session> session = new_session();
  if (!session.is_ok()) return session.status();
  Session::Impl& s = *session->impl_;
  const SamplingOptions& sampling = resolved->sampling;
  const std::optional<uint64_t> seed = sampling.sample ? std::optional(sampling.seed) : std::nullopt;
  Meter meter(*impl_);
  PrefixCache* prefixes = impl_->in_place && options.prefix_cache ? impl_->in_place->prefixes() : nullptr;
  // The last token is computed in any case: its logits are not kept.
  if (prefixes) s.sequence = prefixes->find(prompt.first(prompt.size() - 1));
  const int64_t cached = s.length();
  SITU_RETURN_IF_ERROR(s.step(prompt.subspan(static_cast<size_t>(cached))));
  meter.prompt_done();
  if (options.beams > 1) {
    BeamOptions beams = resolved->beams;
    beams.max_new_tokens = std::min(options.max_new_tokens, impl_->context_length - s.length() + 1);  // the last one is not fed
    BeamDecoder decoder(std::move(*session), Sampler(sampling, prompt, impl_->vocabulary), beams, impl_->vocabulary);
    SITU_RETURN_IF_ERROR(decoder.run(impl_->logits()));
    const std::vector<BeamSearch::Answer> answers = decoder.answers();
    if (answers.empty()) return decoder.nothing_left().with_context(impl_->folder.model_file.string());
    Result<Generation> g = found_answers(*impl_, options, prompt, answers, on_token);
    if (!g.is_ok()) return g;
    g->cached_tokens = cached;
    meter.finish(decoder.steps(), *g);
    return g;
  }
  Answer answer(*impl_, options, *resolved, prompt, on_token);
  if (options.echo) SITU_RETURN_IF_ERROR(answer.echo(prompt));
  int64_t steps = 0;
  while (!answer.ended()) {
    Result<int64_t> id = answer.next(impl_->logits());
    if (!id.is_ok()) return id.status().with_context(impl_->folder.model_file.string());
    if (s.length() >= impl_->context_length) answer.end_by_length();
    if (answer.ended()) break;
    SITU_RETURN_IF_ERROR(s.step({&*id, 1}));
    ++steps;
  }
  Result<Generation> done = answer.finish();
  if (!done.is_ok()) return done;
  Generation& g = *done;
  if (prefixes) {
    std::vector<int64_t> fed(prompt.begin(), prompt.end());
    fed.insert(fed.end(), g.output_ids.begin(), g.output_ids.end());
    fed.resize(static_cast<size_t>(s.length()));
    prefixes->keep(fed, *s.sequence);
  }
  g.cached_tokens = cached;
  g.seed = seed;
  meter.finish(steps, g);
  return done;
}

}  // namespace situ
