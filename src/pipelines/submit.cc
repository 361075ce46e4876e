// From what a caller asks for to a request, and from requests to what he waits for.
#include <algorithm>
#include <condition_variable>
#include <mutex>

#include "base/assign.h"
#include "base/out_of_memory.h"
#include "pipelines/llm.h"
#include "pipelines/read_prompt.h"
#include "pipelines/sampling.h"
#include "pipelines/start.h"
#include "requests/answer_decoding.h"
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
                             ", and answers of a model with an encoder follow its source")
        .or_option(by_draft ? "draft_tokens" : "prompt_lookup");
  if (guesses >= m.rows_of_one()) {
    const std::string why = !m.in_place    ? " in naive mode"
                            : m.together() ? ""
                                           : ", since " + m.in_place->one_sequence();
    return Status::error(Code::kInvalidArgument, m.file + ": " + (by_draft ? "draft_tokens " : "prompt_lookup ") +
                                                     std::to_string(guesses) +
                                                     " wants the logits of as many tokens and one more; a step gives " +
                                                     std::to_string(m.rows_of_one()) + why)
        .or_option(by_draft ? "draft_tokens" : "prompt_lookup");
  }
  if (by_draft && !m.draft)
    return Status::wrong_option(
        "draft_tokens", "draft_tokens " + std::to_string(guesses) + ": no draft model was loaded (LoadOptions::draft)");
  return Status::ok();
}

// What is to be done for a prompt, before anything is computed.
struct ToBegin {
  Start start;
  GenerateOptions options;
  ResolvedOptions resolved;
  std::string salt = {};
  Dialog dialog = {};  // how the answer is read
};

// The decoding of an answer.
Result<std::unique_ptr<Decoding>> answer_decoding(Model::Impl& m, ToBegin todo) {
  auto& [start, options, resolved, salt, dialog] = todo;
  const bool beams = resolved.beams.beams > 1;
  if (beams && resolved.sampling.max_new_tokens > 1 && m.in_place && !m.in_place->can_fork()) {
    const std::string& why = m.in_place->one_sequence();
    return Status::error(Code::kUnsupportedModel, m.file + ": beams " + std::to_string(resolved.beams.beams) + ": " +
                                                      needs_one_run().message() + (why.empty() ? "" : " (" + why + ")"))
        .or_option("beams");
  }
  Result<std::optional<Grammar>> grammar = m.grammars.get(options, dialog.grammar, m.text(), m.vocabulary);
  if (!grammar.is_ok()) return grammar.status().or_code(Code::kInvalidArgument);
  if (beams && *grammar && dialog.grammar.option == "tools")
    return Status::wrong_option(
        "tools", "beams " + std::to_string(resolved.beams.beams) + " and tools: a beam search follows no grammar");
  const int64_t guesses = options.draft_tokens > 0 ? options.draft_tokens : options.prompt_lookup;
  if (!beams) SITU_RETURN_IF_ERROR(check_guesses(m, options, start, guesses));
  const auto rules = [&] {
    AnswerRules all{resolved.sampling,         resolved.beams, {.stop = resolved.stop}, resolved.notes,    {},
                    options.report_perplexity, options.echo,   options.logprobs,        options.num_return};
    if (!dialog.reads()) return all;
    all.text.reader = [dialog] { return dialog.reader(); };
    all.text.marks = dialog.form->shown;
    return all;
  };
  const bool may_give_way = m.in_place && !m.in_place->has_window();
  Opening opening{std::move(start), m.prefixes() ? options.prefix_cache : PrefixReuse::kOff, may_give_way,
                  std::move(salt)};
  if (beams) return std::unique_ptr<Decoding>(new BeamDecoding(m, std::move(opening), rules()));
  std::vector<AnswerRules> all;
  for (int64_t k = 0; k < options.choices; ++k) {
    AnswerRules& own = all.emplace_back(rules());
    own.sampling.seed += static_cast<uint64_t>(k);
    if (*grammar) SITU_RETURN_IF_ERROR(assign(&own.grammar, (*grammar)->fork()));
  }
  return std::unique_ptr<Decoding>(
      new AnswerDecoding(m, std::move(opening), std::move(all), guesses, options.draft_tokens > 0));
}

// The decoding that the options ask for.
Result<std::unique_ptr<Decoding>> decoding_of(Model::Impl& m, ToBegin todo) {
  const auto& [start, options, resolved, salt, dialog] = todo;
  if (!options.prompt_logprobs) return answer_decoding(m, std::move(todo));
  if (m.has_encoder() || !start.source.tensors.empty())
    return Status::error(Code::kUnsupportedModel,
                         m.file + ": prompt_logprobs are of a prompt of tokens alone, without an encoder's rows")
        .or_option("prompt_logprobs");
  std::vector<int64_t> prompt = start.decoder;
  const int64_t top = *options.prompt_logprobs;
  const bool beams = resolved.beams.beams > 1;
  const ScoredDecoding::NoAnswer otherwise{options.echo, beams, beams ? options.num_return : options.choices};
  std::unique_ptr<Decoding> answer;
  if (options.max_new_tokens != 0) SITU_RETURN_IF_ERROR(assign(&answer, answer_decoding(m, std::move(todo))));
  return std::unique_ptr<Decoding>(new ScoredDecoding(m, std::move(prompt), top, std::move(answer), otherwise));
}

// Answers that a call waits for, together. Those that it does not wait for to their end are cancelled.
class Followed {
 public:
  Followed(Model::Impl& m, size_t count, const Model::BatchCallback& on_event)
      : m_(m), on_event_(on_event), results_(count) {
    live_.reserve(count);  // so that nothing fails between submission and add()
  }

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
    for (Live& l : live_) {
      if (!l.job) continue;
      l.job->on_ready(nullptr);
      l.job->cancel();
    }
  }

 private:
  struct Live {
    size_t index;
    std::shared_ptr<Job> job;
    Said said;  // that was shown
    std::vector<int64_t> ids;
    bool ended_by_caller;
  };

  // Behind the token that the callback refuses the answer has nothing more, whatever was computed meanwhile.
  void read(Live& l) {
    while (std::optional<Event> token = l.job->next(std::chrono::milliseconds(0))) {
      if (l.ended_by_caller || !token->is_shown()) continue;
      l.said.add(*token);
      if (token->id >= 0) l.ids.push_back(token->id);
      if (!on_event_ || on_event_(l.index, *token)) continue;
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
      l.said.move_to(g);
      g.reasoning_tokens = std::min(g.reasoning_tokens, std::ssize(g.output_ids));
      g.logprobs.resize(std::min(g.logprobs.size(), g.output_ids.size()));
    } else if (result.is_ok() && result->finish_reason == FinishReason::kCancelled && !l.job->begun) {
      result->finish_reason = FinishReason::kNotStarted;
    }
    put(l.index, std::move(result));
    l.job->on_ready(nullptr);
    l.job = nullptr;
  }

  Model::Impl& m_;
  const Model::BatchCallback& on_event_;
  std::vector<std::optional<Result<Generation>>> results_;
  std::vector<Live> live_;
  bool stopped_ = false;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool news_ = false;
};

// A conversation says what else is not said: turns end it, and the model's files how it is drawn.
GenerateOptions settled(GenerateOptions options, bool conversation) {
  const bool said =
      options.sample || options.temperature || options.top_k || options.top_p || options.min_p || options.typical_p;
  if (!options.end_of_turn) options.end_of_turn = conversation;
  if (!options.sample_as_files) options.sample_as_files = conversation && !said;
  return options;
}

// An answer that is read here, as the conversation's dialog says.
Status read_by(const Dialog& of_prompt, const Model::Impl& m, ToBegin* todo) {
  Dialog& dialog = todo->dialog = of_prompt;
  SITU_RETURN_IF_ERROR(set_grammar(&dialog, todo->options, *m.text()));
  if (!dialog.tools.empty() && !dialog.form->form.tools_shown)
    todo->resolved.notes.push_back("the chat template shows no tools: the prompt describes them in a text of its own");
  return Status::ok();
}

// `name`: of the prompt, for what is wrong with it.
Result<ToBegin> prepare(const Model::Impl& m, const Prompt& prompt, const GenerateOptions& options,
                        const std::string& name = "") {
  SITU_RETURN_IF_ERROR(m.check_generates());
  const auto named = [&](const Status& wrong) { return name.empty() ? wrong : wrong.with_context(name); };
  const Result<Prompt> read = read_prompt(m, prompt);
  if (!read.is_ok()) return named(read.status());
  ToBegin todo;
  SITU_RETURN_IF_ERROR(named(assign(&todo.start, start_of(m, *read))));
  todo.options = settled(options, read->is_conversation);
  SITU_RETURN_IF_ERROR(assign(&todo.resolved, resolve_options(todo.options, m.folder, m.text(), m.vocabulary))
                           .or_code(Code::kInvalidArgument));
  SITU_RETURN_IF_ERROR(named(todo.resolved.begin(todo.start.decoder, todo.start.source_ids, m.context_length)));
  if (read->dialog) SITU_RETURN_IF_ERROR(named(read_by(*read->dialog, m, &todo)));
  return todo;
}

Treatment treatment_of(const Request& r) { return {r.interactive, false, r.priority, r.client, r.deadline}; }

}  // namespace

Ticket::Ticket(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}
Ticket::Ticket(Ticket&&) noexcept = default;
Ticket& Ticket::operator=(Ticket&& other) noexcept {
  const Ticket former(std::exchange(impl_, std::move(other.impl_)));
  return *this;
}
Ticket::~Ticket() {
  if (!impl_) return;
  impl_->job->on_ready(nullptr);
  impl_->job->cancel();
}
std::optional<Event> Ticket::next(std::chrono::milliseconds patience) { return impl_->job->next(patience); }
bool Ticket::ended() const { return impl_->job->ended(); }
void Ticket::on_ready(std::function<void()> ready) { impl_->job->on_ready(std::move(ready)); }
bool Ticket::wait(std::chrono::milliseconds patience) { return impl_->job->wait(patience); }
void Ticket::cancel() { impl_->job->cancel(); }
Result<Generation> Ticket::result() { return impl_->job->result(); }
uint64_t Ticket::number() const { return impl_->job->number; }

Result<Ticket> Model::submit(Request request) const {
  return or_out_of_memory([&]() -> Result<Ticket> {
    SITU_TAKE(prepared, prepare(*impl_, request.prompt, request.options));
    prepared.salt = request.salt;
    SITU_TAKE(decoding, decoding_of(*impl_, std::move(prepared)));
    auto ticket = std::make_shared<Ticket::Impl>();  // before somebody has to take the request back
    SITU_RETURN_IF_ERROR(assign(&ticket->job, impl_->scheduler->submit(std::move(decoding), treatment_of(request))));
    return Ticket(std::move(ticket));
  });
}

Result<Generation> Model::generate(const Prompt& prompt, const GenerateOptions& options,
                                   const EventCallback& on_event) const {
  return or_out_of_memory([&]() -> Result<Generation> {
    SITU_TAKE(prepared, prepare(*impl_, prompt, options));
    Result<std::unique_ptr<Decoding>> decoding = decoding_of(*impl_, std::move(prepared));
    if (!decoding.is_ok()) {
      if (decoding.status().code() != Code::kInterrupted) return decoding.status();
      return failed_answer(decoding.status());
    }
    BatchCallback tell;
    if (on_event) tell = [&](size_t, const Event& token) { return on_event(token); };
    Followed followed(*impl_, 1, tell);
    followed.add(0, impl_->scheduler->submit_part(std::move(*decoding),
                                                  {.interactive = static_cast<bool>(on_event), .follows_flag = true}));
    followed.wait_for_one();
    Result<Generation> g = *std::move(followed.results()[0]);
    if (g.is_ok() && g->finish_reason == FinishReason::kNotStarted) g->finish_reason = FinishReason::kCancelled;
    return g;
  });
}

Result<std::vector<Generation>> Model::generate(std::span<const std::vector<int64_t>> prompts,
                                                const GenerateOptions& options, const BatchCallback& on_event) const {
  return generate(std::vector<Prompt>(prompts.begin(), prompts.end()), options, on_event);
}

// As many as the queue takes; the others as it has room.
Result<std::vector<Generation>> Model::generate(std::span<const Prompt> prompts, const GenerateOptions& options,
                                                const BatchCallback& on_event) const {
  return or_out_of_memory([&]() -> Result<std::vector<Generation>> {
    SITU_RETURN_IF_ERROR(impl_->check_generates());
    std::vector<ToBegin> all_prepared;
    for (size_t i = 0; i < prompts.size(); ++i) {  // before anybody is answered
      SITU_TAKE(prepared, prepare(*impl_, prompts[i], options, "prompt " + std::to_string(i)));
      all_prepared.push_back(std::move(prepared));
    }
    Followed followed(*impl_, prompts.size(), on_event);
    std::vector<size_t> lengths;
    for (size_t i = 0; i < prompts.size() && !followed.stopped(); ++i) {
      lengths.push_back(all_prepared[i].start.decoder.size());
      Result<std::unique_ptr<Decoding>> decoding = decoding_of(*impl_, std::move(all_prepared[i]));
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
