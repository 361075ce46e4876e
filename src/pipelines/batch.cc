// Model::generate of several prompts: whoever has something to feed takes part in the next step, prompts and answers
// alike; who ends leaves, be it in an error, and the next prompt joins.
#include <algorithm>
#include <memory>

#include "base/clock.h"
#include "pipelines/answer.h"
#include "pipelines/out_of_memory.h"
#include "pipelines/start.h"

namespace situ {
namespace {

struct Request {
  size_t index;  // of the prompt
  Session session;
  Answer answer;
  std::span<const int64_t> prompt;
  int64_t cached;
  std::optional<uint64_t> seed;
  int64_t room;  // slots that it may come to need
  double encode_ms;
  Clock::time_point start = Clock::now(), prompt_done = start;
  int64_t next = -1;  // the token to be fed; -1: the prompt is not done
  // Of the step that runs: what is fed, behind how many tokens, and whether what follows is chosen.
  int64_t fed = -1, before = 0;
  bool chosen = false;
};

// One failing answer is an error of its own, but a call of which nothing came is one too: the first.
Result<std::vector<Generation>> unless_all_failed(std::vector<Generation> results) {
  const auto failed = [](const Generation& g) {
    return g.finish_reason == FinishReason::kError && g.output_ids.empty();
  };
  if (!results.empty() && std::all_of(results.begin(), results.end(), failed))
    return Status::error(results[0].error_code, results[0].error);
  return results;
}

class Batch {
 public:
  Batch(Model::Impl& model, std::span<const Start> prompts, const GenerateOptions& options, ResolvedOptions resolved,
        std::optional<Grammar> grammar, const Model::BatchCallback& on_token)
      : model_(model),
        prompts_(prompts),
        options_(options),
        resolved_(std::move(resolved)),
        grammar_(std::move(grammar)),
        on_token_(on_token),
        results_(prompts.size()),
        before_(model.ledger()) {
    prefixes_ = options.prefix_cache ? model.in_place->prefixes() : nullptr;
    free_ =
        model.in_place->states().free_slots() + (model.in_place->prefixes() ? model.in_place->prefixes()->tokens() : 0);
  }

  Result<std::vector<Generation>> run() {
    while (joined_ < prompts_.size() || !running_.empty()) {
      while (joined_ < prompts_.size() && has_room()) {
        const size_t index = joined_++;
        const Status joined = join(index);
        if (!joined.is_ok()) results_[index] = failed_answer(joined);
        if (joined.code() == Code::kInterrupted) cancel();
      }
      if (!step()) cancel();
      const auto ended =
          std::stable_partition(running_.begin(), running_.end(), [](const auto& r) { return !r->answer.ended(); });
      for (auto r = ended; r != running_.end(); ++r) SITU_RETURN_IF_ERROR(leave(**r));
      running_.erase(ended, running_.end());
    }
    share_figures();
    return unless_all_failed(std::move(results_));
  }

 private:
  void cancel() {
    for (const auto& r : running_) r->answer.refuse(FinishReason::kCancelled);
    while (joined_ < prompts_.size()) results_[joined_++].finish_reason = FinishReason::kNotStarted;
  }
  void fail(Request& r, const Status& why) const {
    if (why.code() == Code::kInterrupted) return r.answer.refuse(FinishReason::kCancelled);
    // The message of a prompt is about all of it, not the piece that failed.
    r.answer.fail(r.chosen || r.fed >= 0 ? why
                                         : why.with_context("prompt " + std::to_string(r.index) + " of " +
                                                            std::to_string(r.prompt.size()) + " tokens"));
  }
  int64_t room_of(size_t prompt) const {
    const int64_t tokens = static_cast<int64_t>(prompts_[prompt].decoder.size());
    return tokens + std::min(resolved_.length.most_new_after(tokens), model_.context_length - tokens);
  }
  // Alone, a request may try.
  bool has_room() const {
    const int64_t rows = static_cast<int64_t>(prompts_[joined_].source.ids.size());
    if (!running_.empty() && !model_.in_place->states().space(SpaceKind::kSource).fits(rows)) return false;
    int64_t taken = room_of(joined_);
    for (const auto& r : running_) taken += r->room;
    return running_.empty() || (static_cast<int64_t>(running_.size()) < model_.sequences() && taken <= free_);
  }

  Status join(size_t index) {
    const std::span<const int64_t> prompt = prompts_[index].decoder;
    ResolvedOptions resolved = resolved_;
    if (!options_.seed) resolved.sampling.seed = draw_seed();
    SITU_RETURN_IF_ERROR(resolved.begin(prompt, prompts_[index].source.ids, model_.context_length)
                             .with_context("prompt " + std::to_string(index)));
    Result<Session> session = model_.new_session();
    if (!session.is_ok()) return session.status();
    std::vector<Stage> stages;
    SITU_RETURN_IF_ERROR(
        encode_start(impl_of(*session), prompts_[index], &stages).with_context("prompt " + std::to_string(index)));
    if (prefixes_) impl_of(*session).take_prefix(*prefixes_, prompt);
    const int64_t cached = session->length();
    const std::optional<uint64_t> seed =
        resolved.sampling.sample ? std::optional(resolved.sampling.seed) : std::nullopt;
    TokenCallback tell;
    if (on_token_) tell = [this, index](const Token& token) { return on_token_(index, token); };
    std::optional<Grammar> grammar;
    if (grammar_) {
      Result<Grammar> own = grammar_->fork();
      if (!own.is_ok()) return own.status();
      grammar = std::move(*own);
    }
    Answer answer(model_, options_, std::move(resolved), std::move(grammar), prompt, std::move(tell));
    if (options_.echo) SITU_RETURN_IF_ERROR(answer.echo(prompt));
    running_.push_back(std::unique_ptr<Request>(new Request{index, std::move(*session), std::move(answer), prompt,
                                                            cached, seed, room_of(index), ms_of(stages)}));
    return Status::ok();
  }

  // One token of each, and pieces of prompts: whole ones, so that a prompt is cut as it is alone. False: interrupted.
  bool step() {
    const size_t chunk = static_cast<size_t>(model_.in_place->chunk());
    size_t room = chunk;
    std::vector<Model::Impl::Feed> feeds;
    std::vector<Request*> who;
    for (const std::unique_ptr<Request>& r : running_) {
      r->chosen = false;
      r->fed = r->next;
      r->before = r->session.length();
      Model::Impl::Feed feed{&impl_of(r->session), {&r->fed, 1}};
      if (r->fed < 0) {
        const std::span<const int64_t> rest = r->prompt.subspan(static_cast<size_t>(r->session.length()));
        const size_t piece = std::min(rest.size() - 1, chunk);
        if (piece > room) continue;
        room -= piece;
        const bool last = piece + 1 == rest.size();
        feed.wanted = last ? 1 : 0;
        feed.tokens = last ? rest : rest.first(piece);
        feed.whole = static_cast<int64_t>(r->prompt.size());
      }
      feeds.push_back(feed);
      who.push_back(r.get());
    }
    const Status together = run(feeds, who);
    if (together.is_ok() || together.code() == Code::kInterrupted) return together.is_ok();
    // What a kernel cannot use ends the whole step, whosever it is: each alone tells, from where it was before.
    for (size_t i = 0; i < feeds.size(); ++i) {
      const bool again = feeds.size() > 1 && who[i]->session.length() == who[i]->before;
      const Status alone = again ? run({&feeds[i], 1}, {&who[i], 1}) : together;
      if (alone.code() == Code::kInterrupted) return false;
      if (!alone.is_ok()) fail(*who[i], alone);
    }
    return true;
  }

  // Ends those that are refused. After an error nobody has been fed, though tokens may have been chosen.
  Status run(std::span<const Model::Impl::Feed> feeds, std::span<Request* const> who) {
    if (feeds.empty()) return Status::ok();
    const auto choose_of = [&](size_t i, std::span<const float> logits) {
      choose(*who[i], logits);
      return Status::ok();
    };
    const Result<std::vector<Status>> refused = or_out_of_memory([&] { return model_.step(feeds, choose_of); });
    if (!refused.is_ok()) return refused.status();
    for (size_t i = 0; i < who.size(); ++i)
      if (!(*refused)[i].is_ok()) fail(*who[i], (*refused)[i]);
    return Status::ok();
  }

  void choose(Request& r, std::span<const float> logits) {
    if (r.chosen) return;
    r.chosen = true;
    if (r.fed < 0) {
      r.prompt_done = Clock::now();
      if (prefixes_ && model_.in_place->has_replaced_states()) impl_of(r.session).keep_prefix(*prefixes_, r.prompt);
    }
    if (r.answer.ended()) return;  // its prompt's text was refused
    const Result<int64_t> id = r.answer.next(logits);
    if (!id.is_ok()) return fail(r, id.status().with_context(model_.folder.model_file.string()));
    if (r.session.length() >= model_.context_length) r.answer.end_by_length();
    r.next = *id;
  }

  Status leave(Request& r) {
    Result<Generation> done = r.answer.finish();
    if (!done.is_ok()) return done.status();
    Generation& g = results_[r.index] = std::move(*done);
    if (prefixes_ && g.finish_reason != FinishReason::kError)
      impl_of(r.session).keep_prefix(*prefixes_, r.answer.ids().first(static_cast<size_t>(r.session.length())));
    g.cached_tokens = r.cached;
    g.encode_ms = r.encode_ms;
    if (model_.has_encoder()) g.decoder_prompt_ids.assign(r.prompt.begin(), r.prompt.end());
    g.seed = r.seed;
    g.prefill_ms = std::chrono::duration<double, std::milli>(r.prompt_done - r.start).count();
    const int64_t fed = r.session.length() - static_cast<int64_t>(r.prompt.size());
    if (fed > 0) g.decode_ms_per_token = ms_since(r.prompt_done) / static_cast<double>(fed);
    return Status::ok();
  }

  // Bytes are those of all answers together.
  void share_figures() {
    double tokens = 0;
    for (const Generation& g : results_) tokens += static_cast<double>(g.output_ids.size());
    const Ledger after = model_.ledger();
    const double copied = static_cast<double>(after.copied - before_.copied),
                 written = copied + static_cast<double>(after.computed - before_.computed);
    for (Generation& g : results_) {
      g.bytes_copied_per_token = copied / std::max(1.0, tokens);
      g.bytes_written_per_token = written / std::max(1.0, tokens);
    }
  }

  Model::Impl& model_;
  const std::span<const Start> prompts_;
  const GenerateOptions& options_;
  const ResolvedOptions resolved_;
  const std::optional<Grammar> grammar_;  // every answer begins with a fork of it
  const Model::BatchCallback& on_token_;
  PrefixCache* prefixes_ = nullptr;
  int64_t free_ = 0;  // slots that there were before
  size_t joined_ = 0;
  std::vector<std::unique_ptr<Request>> running_;
  std::vector<Generation> results_;
  const Ledger before_;
};

}  // namespace

Result<std::vector<Generation>> Model::generate(std::span<const std::vector<int64_t>> prompts,
                                                const GenerateOptions& options, const BatchCallback& on_token) {
  std::vector<Prompt> all;
  for (const std::vector<int64_t>& ids : prompts) all.push_back({ids, {}, {}});
  return generate(all, options, on_token);
}

Result<std::vector<Generation>> Model::generate(std::span<const Prompt> prompts, const GenerateOptions& options,
                                                const BatchCallback& on_token) {
  SITU_RETURN_IF_ERROR(impl_->check_generates());
  std::vector<Start> starts;
  for (size_t i = 0; i < prompts.size(); ++i) {
    Result<Start> start = start_of(*impl_, prompts[i]);
    if (!start.is_ok()) return start.status().with_context("prompt " + std::to_string(i));
    starts.push_back(std::move(*start));
  }
  Result<ResolvedOptions> resolved = resolve_options(options, impl_->folder, impl_->text(), impl_->vocabulary);
  if (!resolved.is_ok()) return resolved.status().or_code(Code::kInvalidArgument);
  if (impl_->sequences() > 1 && resolved->beams.beams == 1 && options.prompt_lookup == 0 && options.draft_tokens == 0) {
    Result<std::optional<Grammar>> grammar = compile_constraint(options, impl_->text(), impl_->vocabulary);
    if (!grammar.is_ok()) return grammar.status().or_code(Code::kInvalidArgument);
    for (size_t i = 0; i < starts.size(); ++i)  // before anybody is answered
      SITU_RETURN_IF_ERROR(ResolvedOptions(*resolved)
                               .begin(starts[i].decoder, starts[i].source.ids, impl_->context_length)
                               .with_context("prompt " + std::to_string(i)));
    return Batch(*impl_, starts, options, std::move(*resolved), std::move(*grammar), on_token).run();
  }
  std::vector<Generation> results;
  for (size_t i = 0; i < prompts.size(); ++i) {
    TokenCallback tell;
    if (on_token) tell = [&, i](const Token& token) { return on_token(i, token); };
    Result<Generation> one = generate(prompts[i], options, tell);
    results.push_back(one.is_ok() ? std::move(*one) : failed_answer(one.status()));
    if (results[i].finish_reason != FinishReason::kCancelled) continue;
    results.resize(prompts.size());
    while (++i < prompts.size()) results[i].finish_reason = FinishReason::kNotStarted;
  }
  return unless_all_failed(std::move(results));
}

}  // namespace situ
