// From what a caller asks for to a request, and from requests to what he waits for.
#include <algorithm>
#include <condition_variable>
#include <mutex>

#include "base/out_of_memory.h"
#include "pipelines/llm.h"
#include "pipelines/sampling.h"
#include "pipelines/start.h"
#include "requests/beam_decoding.h"
#include "requests/scored_decoding.h"

namespace situ {

struct Ticket::Impl {
  std::shared_ptr<Job> job;
};

namespace {

Status check_guesses(const Model::Impl& m, const GenerateOptions& options, const Start& start, int64_t guesses) {
  const bool by_draft = options.draft_tokens > 0;
  if (guesses == 0) return Status::ok();
  if (m.has_encoder() || !start.source.tensors.empty())
    return Status::error(Code::kInvalidArgument,
                         m.file + ": " +
                             (options.prompt_lookup > 0 ? "prompt lookup guesses by the prompt's own words"
                                                        : "a draft guesses from the tokens alone") +
                             ", and answers of a model with an encoder follow its source");
  if (guesses >= m.rows_of_one()) {
    const std::string why = !m.in_place    ? " in naive mode"
                            : m.together() ? ""
                                           : ", since " + m.in_place->one_sequence();
    return Status::error(Code::kInvalidArgument, m.file + ": " + (by_draft ? "draft_tokens " : "prompt_lookup ") +
                                                     std::to_string(guesses) +
                                                     " wants the logits of as many tokens and one more; a step gives " +
                                                     std::to_string(m.rows_of_one()) + why);
  }
  if (by_draft && !m.draft)
    return Status::error(Code::kInvalidArgument, "draft_tokens " + std::to_string(guesses) +
                                                     ": no draft model was loaded (LoadOptions::draft)");
  return Status::ok();
}

// The decoding of an answer.
Result<std::unique_ptr<Decoding>> answer_decoding(Model::Impl& m, Start start, const GenerateOptions& options,
                                                  Result<ResolvedOptions> resolved,
                                                  std::shared_ptr<const void> memory) {
  Result<std::optional<Grammar>> grammar = m.grammars.get(options, m.text(), m.vocabulary);
  if (!grammar.is_ok()) return grammar.status().or_code(Code::kInvalidArgument);
  const int64_t guesses = options.draft_tokens > 0 ? options.draft_tokens : options.prompt_lookup;
  const bool beams = resolved->beams.beams > 1;
  if (!beams) SITU_RETURN_IF_ERROR(check_guesses(m, options, start, guesses));
  AnswerRules rules{
      std::move(resolved->sampling), resolved->beams, std::move(resolved->stop), std::move(resolved->notes), {},
      options.report_perplexity,     options.echo,    options.logprobs,          options.num_return};
  const bool may_give_way = m.in_place && !m.in_place->has_window();
  Opening opening{std::move(start), std::move(memory), m.prefixes() ? options.prefix_cache : PrefixReuse::kOff,
                  may_give_way};
  if (beams) return std::unique_ptr<Decoding>(new BeamDecoding(m, std::move(opening), std::move(rules)));
  std::vector<AnswerRules> all;
  for (int64_t k = 0; k < options.choices; ++k) {
    AnswerRules own{rules.sampling,          rules.beams, rules.stop,     rules.notes,     {},
                    rules.report_perplexity, rules.echo,  rules.logprobs, rules.num_return};
    own.sampling.seed += static_cast<uint64_t>(k);
    if (*grammar) {
      Result<Grammar> fork = (*grammar)->fork();
      if (!fork.is_ok()) return fork.status();
      own.grammar = std::move(*fork);
    }
    all.push_back(std::move(own));
  }
  return std::unique_ptr<Decoding>(
      new AnswerDecoding(m, std::move(opening), std::move(all), guesses, options.draft_tokens > 0));
}

// The decoding that the options ask for.
Result<std::unique_ptr<Decoding>> decoding_of(Model::Impl& m, Start start, const GenerateOptions& options,
                                              std::shared_ptr<const void> memory) {
  Result<ResolvedOptions> resolved = resolve_options(options, m.folder, m.text(), m.vocabulary);
  if (!resolved.is_ok()) return resolved.status().or_code(Code::kInvalidArgument);
  SITU_RETURN_IF_ERROR(resolved->begin(start.decoder, start.source_ids, m.context_length));
  if (!options.prompt_logprobs)
    return answer_decoding(m, std::move(start), options, std::move(resolved), std::move(memory));
  if (m.has_encoder() || !start.source.tensors.empty())
    return Status::error(Code::kInvalidArgument,
                         m.file + ": prompt_logprobs are of a prompt of tokens alone, without an encoder's rows");
  std::vector<int64_t> prompt = start.decoder;
  std::unique_ptr<Decoding> answer;
  if (options.max_new_tokens != 0) {
    Result<std::unique_ptr<Decoding>> made =
        answer_decoding(m, std::move(start), options, std::move(resolved), std::move(memory));
    if (!made.is_ok()) return made;
    answer = std::move(*made);
  }
  return std::unique_ptr<Decoding>(
      new ScoredDecoding(m, std::move(prompt), *options.prompt_logprobs, std::move(answer), options.echo));
}

// Answers that a call waits for, together.
class Followed {
 public:
  Followed(Model::Impl& m, size_t count, const Model::BatchCallback& on_token)
      : m_(m), on_token_(on_token), results_(count) {}

  void add(size_t index, std::shared_ptr<Job> job) {
    job->on_ready([this] {
      const std::lock_guard held(mutex_);
      news_ = true;
      changed_.notify_all();
    });
    live_.push_back({index, std::move(job), {}, {}, false});
  }
  void put(size_t index, Result<Generation> result) { results_[index].emplace(std::move(result)); }
  bool any() const { return !live_.empty(); }
  bool stopped() const { return stopped_; }

  // Until there is one fewer.
  void wait_for_one() {
    const size_t before = live_.size();
    while (live_.size() == before) {
      {
        constexpr std::chrono::milliseconds kLook{10};  // at the flag of the model
        std::unique_lock held(mutex_);
        changed_.wait_for(held, kLook, [&] { return news_; });
        news_ = false;
      }
      stopped_ = stopped_ || m_.interrupted();
      for (Live& l : live_) read(l);
      std::erase_if(live_, [](const Live& l) { return !l.job; });
    }
  }
  std::vector<std::optional<Result<Generation>>>& results() { return results_; }
  ~Followed() {
    for (Live& l : live_) l.job->on_ready(nullptr);
  }

 private:
  struct Live {
    size_t index;
    std::shared_ptr<Job> job;
    std::string text;  // that was shown
    std::vector<int64_t> ids;
    bool ended_by_caller;
  };

  // Behind the token that the callback refuses the answer has nothing more, whatever was computed meanwhile.
  void read(Live& l) {
    while (std::optional<Token> token = l.job->next(std::chrono::milliseconds(0))) {
      if (l.ended_by_caller) continue;
      l.text += token->text;
      if (token->id >= 0) l.ids.push_back(token->id);
      if (!on_token_ || on_token_(l.index, *token)) continue;
      l.ended_by_caller = true;
      l.job->cancel();
    }
    if (!l.job->ended()) return;
    Result<Generation> result = l.job->result();
    if (result.is_ok() && l.ended_by_caller) {
      Generation& g = *result;
      g.finish_reason = m_.interrupted() ? FinishReason::kCancelled
                        : g.finish_reason == FinishReason::kStopString && l.ids.size() == g.output_ids.size()
                            ? FinishReason::kStopString
                            : FinishReason::kCallback;
      g.output_ids = std::move(l.ids);
      g.text = std::move(l.text);
      g.logprobs.resize(std::min(g.logprobs.size(), g.output_ids.size()));
    } else if (result.is_ok() && result->finish_reason == FinishReason::kCancelled && !l.job->begun) {
      result->finish_reason = FinishReason::kNotStarted;
    }
    put(l.index, std::move(result));
    l.job->on_ready(nullptr);
    l.job = nullptr;
  }

  Model::Impl& m_;
  const Model::BatchCallback& on_token_;
  std::vector<std::optional<Result<Generation>>> results_;
  std::vector<Live> live_;
  bool stopped_ = false;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool news_ = false;
};

Treatment treatment_of(const Request& r) { return {r.interactive, false, r.priority, r.client, r.deadline}; }

}  // namespace

Ticket::Ticket(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}
Ticket::Ticket(Ticket&&) noexcept = default;
Ticket& Ticket::operator=(Ticket&& other) noexcept {
  if (impl_) impl_->job->cancel();
  impl_ = std::move(other.impl_);
  return *this;
}
Ticket::~Ticket() {
  if (!impl_) return;
  impl_->job->on_ready(nullptr);
  impl_->job->cancel();
}
std::optional<Token> Ticket::next(std::chrono::milliseconds patience) { return impl_->job->next(patience); }
bool Ticket::ended() const { return impl_->job->ended(); }
void Ticket::on_ready(std::function<void()> ready) { impl_->job->on_ready(std::move(ready)); }
bool Ticket::wait(std::chrono::milliseconds patience) { return impl_->job->wait(patience); }
void Ticket::cancel() { impl_->job->cancel(); }
Result<Generation> Ticket::result() { return impl_->job->result(); }

Result<Ticket> Model::submit(Request request) {
  return or_out_of_memory([&]() -> Result<Ticket> {
    SITU_RETURN_IF_ERROR(impl_->check_generates());
    Result<Start> start = start_of(*impl_, request.prompt);
    if (!start.is_ok()) return start.status();
    Result<std::unique_ptr<Decoding>> decoding =
        decoding_of(*impl_, std::move(*start), request.options, request.memory);
    if (!decoding.is_ok()) return decoding.status();
    Result<std::shared_ptr<Job>> job = impl_->scheduler->submit(std::move(*decoding), treatment_of(request));
    if (!job.is_ok()) return job.status();
    return Ticket(std::make_shared<Ticket::Impl>(Ticket::Impl{std::move(*job)}));
  });
}

Result<Generation> Model::generate(std::span<const int64_t> prompt, const GenerateOptions& options,
                                   const TokenCallback& on_token) {
  return generate(Prompt{{prompt.begin(), prompt.end()}, {}, {}}, options, on_token);
}

Result<Generation> Model::generate(const Prompt& prompt, const GenerateOptions& options,
                                   const TokenCallback& on_token) {
  return or_out_of_memory([&]() -> Result<Generation> {
    SITU_RETURN_IF_ERROR(impl_->check_generates());
    Result<Start> start = start_of(*impl_, prompt);
    if (!start.is_ok()) return start.status();
    Result<std::unique_ptr<Decoding>> decoding = decoding_of(*impl_, std::move(*start), options, nullptr);
    if (!decoding.is_ok()) {
      if (decoding.status().code() != Code::kInterrupted) return decoding.status();
      return failed_answer(decoding.status());
    }
    BatchCallback tell;
    if (on_token) tell = [&](size_t, const Token& token) { return on_token(token); };
    Followed followed(*impl_, 1, tell);
    followed.add(0, impl_->scheduler->submit_part(std::move(*decoding),
                                                  {.interactive = static_cast<bool>(on_token), .follows_flag = true}));
    followed.wait_for_one();
    Result<Generation> g = *std::move(followed.results()[0]);
    if (g.is_ok() && g->finish_reason == FinishReason::kNotStarted) g->finish_reason = FinishReason::kCancelled;
    return g;
  });
}

Result<std::vector<Generation>> Model::generate(std::span<const std::vector<int64_t>> prompts,
                                                const GenerateOptions& options, const BatchCallback& on_token) {
  std::vector<Prompt> all;
  for (const std::vector<int64_t>& ids : prompts) all.push_back({ids, {}, {}});
  return generate(all, options, on_token);
}

// As many as the queue takes; the others as it has room.
Result<std::vector<Generation>> Model::generate(std::span<const Prompt> prompts, const GenerateOptions& options,
                                                const BatchCallback& on_token) {
  return or_out_of_memory([&]() -> Result<std::vector<Generation>> {
    SITU_RETURN_IF_ERROR(impl_->check_generates());
    std::vector<Start> starts;
    const Result<ResolvedOptions> resolved = resolve_options(options, impl_->folder, impl_->text(), impl_->vocabulary);
    for (size_t i = 0; i < prompts.size(); ++i) {  // before anybody is answered
      const std::string name = "prompt " + std::to_string(i);
      Result<Start> start = start_of(*impl_, prompts[i]);
      if (!start.is_ok()) return start.status().with_context(name);
      if (!resolved.is_ok()) return resolved.status().or_code(Code::kInvalidArgument);
      SITU_RETURN_IF_ERROR(ResolvedOptions(*resolved)
                               .begin(start->decoder, start->source_ids, impl_->context_length)
                               .with_context(name));
      starts.push_back(std::move(*start));
    }
    Followed followed(*impl_, prompts.size(), on_token);
    std::vector<size_t> lengths;
    for (size_t i = 0; i < prompts.size() && !followed.stopped(); ++i) {
      lengths.push_back(starts[i].decoder.size());
      Result<std::unique_ptr<Decoding>> decoding = decoding_of(*impl_, std::move(starts[i]), options, nullptr);
      if (!decoding.is_ok() && decoding.status().code() != Code::kInterrupted) return decoding.status();
      if (!decoding.is_ok()) break;
      while (impl_->waiting >= impl_->queue_limit && followed.any()) followed.wait_for_one();
      if (followed.stopped()) break;
      followed.add(i, impl_->scheduler->submit_part(std::move(*decoding), {.follows_flag = true}));
    }
    while (followed.any()) followed.wait_for_one();
    std::vector<Generation> all;
    Status first;
    bool any = false;
    for (size_t i = 0; i < prompts.size(); ++i) {
      std::optional<Result<Generation>>& r = followed.results()[i];
      Generation& g = all.emplace_back();
      if (!r) {
        g.finish_reason = FinishReason::kNotStarted;
      } else if (r->is_ok()) {
        g = std::move(**r);
      } else {  // before its first token
        const Status why =
            r->status().with_context("prompt " + std::to_string(i) + " of " + std::to_string(lengths[i]) + " tokens");
        if (first.is_ok()) first = why;
        g = failed_answer(why);
        continue;
      }
      any = true;
    }
    // One failing answer is an error of its own, but a call of which nothing came is one too.
    if (!any && !first.is_ok()) return first;
    return all;
  });
}

}  // namespace situ
