// Model::generate: prompt, then choose, report and step until something ends the answer; or a beam search.
#include <algorithm>

#include "base/clock.h"
#include "pipelines/answer.h"
#include "pipelines/beams.h"
#include "pipelines/out_of_memory.h"
#include "pipelines/speculation.h"
#include "pipelines/start.h"

namespace situ {
namespace {

// What a generation took, from its beginning to its last step.
class Meter {
 public:
  explicit Meter(Model::Impl& model) : model_(model), before_(read()), start_(Clock::now()) {}
  // Where encoders add what they take.
  std::vector<Stage>* stages() { return &stages_; }
  void encoded() {
    encode_ms_ = ms_since(start_);
    encoded_ = read();
    start_ = Clock::now();
  }
  void prompt_done() {
    prompt_ms_ = ms_since(start_);
    prompt_done_ = read();
    start_ = Clock::now();
  }
  // `steps`: tokens fed since.
  void finish(int64_t steps, Generation& g) const {
    const Ledger after = read();
    const double decode_ms = ms_since(start_);
    const double tokens = std::max<double>(1, static_cast<double>(g.output_ids.size())),
                 counted = std::max<double>(1, static_cast<double>(steps));
    g.prefill_ms = prompt_ms_;
    if (steps > 0) g.decode_ms_per_token = decode_ms / counted;
    g.bytes_copied_per_token = static_cast<double>(after.copied - before_.copied) / tokens;
    const Ledger& from = steps > 0 ? prompt_done_ : before_;
    g.bytes_written_per_token =
        static_cast<double>(after.computed + after.copied - from.computed - from.copied) / counted;
    if (stages_.empty()) return;
    g.encode_ms = encode_ms_;
    g.stages = stages_;
    g.stages.push_back(stage("prefill", prompt_ms_, encoded_, prompt_done_));
    g.stages.push_back(steps > 0 ? stage("decode", decode_ms, prompt_done_, after) : Stage{"decode"});
  }

 private:
  Ledger read() const {
    Ledger both = model_.ledger();
    if (model_.draft) both.add(impl_of(*model_.draft).ledger());
    return both;
  }

  static Stage stage(const char* name, double ms, const Ledger& from, const Ledger& to) {
    const int64_t copied = to.copied - from.copied;
    return {name, ms, copied, copied + to.computed - from.computed};
  }

  Model::Impl& model_;
  Ledger before_, encoded_, prompt_done_;
  Clock::time_point start_;
  double encode_ms_ = 0, prompt_ms_ = 0;
  std::vector<Stage> stages_;  // of encoders
};

// What is not finished where the model is interrupted is no error.
Result<Generation> cancelled_or(const Status& error) {
  if (error.code() != Code::kInterrupted) return error;
  Generation nothing;
  nothing.finish_reason = FinishReason::kCancelled;
  return nothing;
}

// The answers as text; the best one is shown when it is known. `unended`: why those end that no end token did.
Result<Generation> found_answers(const Model::Impl& model, const GenerateOptions& options,
                                 std::span<const int64_t> prompt, const std::vector<BeamSearch::Answer>& answers,
                                 FinishReason unended, const TokenCallback& on_token) {
  Generation g;
  for (const BeamSearch::Answer& a : answers) {
    if (static_cast<int64_t>(g.answers.size()) == options.num_return) break;
    bool wanted = on_token && g.answers.empty();
    Generation::Answer& answer = g.answers.emplace_back();
    answer.output_ids = a.ids;
    answer.finish_reason = a.ended ? FinishReason::kStop : unended;
    answer.score = a.score;
    TextOutput output(model.text(), {});
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

// What a beam search that ended so found.
Result<Generation> searched_answers(const Model::Impl& model, const GenerateOptions& options,
                                    std::span<const int64_t> prompt, const BeamDecoder& decoder, const Status& searched,
                                    const TokenCallback& on_token) {
  if (searched.is_ok())
    return found_answers(model, options, prompt, decoder.answers(), FinishReason::kLength, on_token);
  const std::vector<BeamSearch::Answer> answers = decoder.answers_so_far();
  if (searched.code() == Code::kInterrupted || answers.empty()) return searched;
  Result<Generation> g = found_answers(model, options, prompt, answers, FinishReason::kError, on_token);
  if (!g.is_ok()) return g;
  g->finish_reason = FinishReason::kError;
  g->error = searched.message();
  g->error_code = searched.code();
  return g;
}

}  // namespace

Result<Generation> Model::generate(std::span<const int64_t> prompt, const GenerateOptions& options,
                                   const TokenCallback& on_token) {
  const Prompt all{{prompt.begin(), prompt.end()}, {}, {}};
  return generate(all, options, on_token);
}

Result<Generation> Model::generate(const Prompt& given, const GenerateOptions& options, const TokenCallback& on_token) {
  SITU_RETURN_IF_ERROR(impl_->check_generates());
  const Result<Start> start = start_of(*impl_, given);
  if (!start.is_ok()) return start.status();
  const std::span<const int64_t> prompt = start->decoder;
  Result<ResolvedOptions> resolved = resolve_options(options, impl_->folder, impl_->text(), impl_->vocabulary);
  if (!resolved.is_ok()) return cancelled_or(resolved.status().or_code(Code::kInvalidArgument));
  SITU_RETURN_IF_ERROR(resolved->begin(prompt, start->source.ids, impl_->context_length));
  Result<std::optional<Grammar>> grammar = compile_constraint(options, impl_->text(), impl_->vocabulary);
  if (!grammar.is_ok()) return grammar.status().or_code(Code::kInvalidArgument);
  Result<Session> session = new_session();
  if (!session.is_ok()) return session.status();
  Session::Impl& s = *session->impl_;
  const SamplingOptions& sampling = resolved->sampling;
  const std::optional<uint64_t> seed = sampling.sample ? std::optional(sampling.seed) : std::nullopt;
  if ((impl_->has_encoder() || !start->source.tensors.empty()) &&
      (options.prompt_lookup > 0 || options.draft_tokens > 0))
    return Status::error(Code::kInvalidArgument,
                         impl_->folder.model_file.string() + ": " +
                             (options.prompt_lookup > 0 ? "prompt lookup guesses by the prompt's own words"
                                                        : "a draft guesses from the tokens alone") +
                             ", and answers of a model with an encoder follow its source");
  Result<Speculation> speculation = Speculation::create(*impl_, options);
  if (!speculation.is_ok()) return speculation.status();
  Meter meter(*impl_);
  PrefixCache* prefixes = impl_->in_place && options.prefix_cache ? impl_->in_place->prefixes() : nullptr;
  const Status encoded = encode_start(s, *start, meter.stages());
  meter.encoded();
  if (!encoded.is_ok() && encoded.code() != Code::kInterrupted) return encoded;
  if (prefixes) s.take_prefix(*prefixes, prompt);
  const int64_t cached = s.length();
  const Status prompt_fed = !encoded.is_ok() ? encoded : s.step(prompt.subspan(static_cast<size_t>(cached)));
  if (!prompt_fed.is_ok() && prompt_fed.code() != Code::kInterrupted)
    return prompt_fed;  // interrupted, what there is so far is the answer
  // Whole states are known for a few steps only.
  if (prefixes && prompt_fed.is_ok() && impl_->in_place->has_replaced_states()) s.keep_prefix(*prefixes, prompt);
  meter.prompt_done();
  const auto describe = [&](Generation& g) {
    if (impl_->has_encoder()) g.decoder_prompt_ids = start->decoder;
  };
  if (resolved->beams.beams > 1) {
    BeamDecoder decoder(*impl_, std::move(*session), Sampler(sampling, prompt, impl_->vocabulary), resolved->beams);
    const Status searched =
        !prompt_fed.is_ok() ? prompt_fed : or_out_of_memory([&] { return decoder.run(impl_->logits()); });
    Result<Generation> g = searched_answers(*impl_, options, prompt, decoder, searched, on_token);
    if (!g.is_ok()) return cancelled_or(g.status());
    g->cached_tokens = cached;
    describe(*g);
    g->notes = resolved->notes;
    meter.finish(decoder.steps(), *g);
    return g;
  }
  Answer answer(*impl_, options, *resolved, std::move(*grammar), prompt, on_token);
  if (options.echo)
    if (const Status shown = answer.echo(prompt); !shown.is_ok()) return cancelled_or(shown);
  if (!prompt_fed.is_ok()) answer.refuse(FinishReason::kCancelled);
  Result<int64_t> id = -1;
  Status failed = Status::ok();
  if (!answer.ended()) id = answer.next(impl_->logits());  // the prompt's text may have been refused
  if (s.length() >= impl_->context_length) answer.end_by_length();
  while (id.is_ok() && !answer.ended()) {
    std::vector<int64_t> tokens{*id};
    const int64_t room = std::min(impl_->context_length - s.length(), answer.left()) - 1;
    const Result<std::span<const int64_t>> guess =
        speculation->guess(answer.sampler(), std::min(room, impl_->most_guesses(s.length())));
    if (guess.is_ok()) tokens.insert(tokens.end(), guess->begin(), guess->end());
    // A guess is right if it is the token that is chosen in any case: what is drawn depends on seed and position alone.
    const int64_t before = s.length();
    size_t right = 0;
    bool on = true;
    const InPlaceEngine::LogitsOf check = [&](size_t, std::span<const float> logits) {
      if (!on) return Status::ok();
      id = answer.next(logits);
      ++right;
      if (before + static_cast<int64_t>(right) >= impl_->context_length) answer.end_by_length();
      on = id.is_ok() && !answer.ended() && right < tokens.size() && *id == tokens[right];
      return Status::ok();
    };
    auto feed = [&] {
      const Model::Impl::Feed all{&s, tokens, static_cast<int64_t>(tokens.size())};
      return or_out_of_memory([&] { return impl_->step_all({&all, 1}, check); });
    };
    Status fed = guess.is_ok() ? feed() : guess.status();
    if (!fed.is_ok() && tokens.size() > 1 && right == 0) {  // guesses may not fit a state that the token alone does
      tokens.resize(1);
      fed = feed();
    }
    if (!fed.is_ok()) {
      failed = fed;
      break;
    }
    if (right < tokens.size()) s.sequence->rewind(before + static_cast<int64_t>(right));
    speculation->learn(static_cast<int64_t>(tokens.size()) - 1, static_cast<int64_t>(right) - 1);
  }
  if (!id.is_ok()) failed = id.status().with_context(impl_->folder.model_file.string());
  if (failed.code() == Code::kInterrupted)
    answer.refuse(FinishReason::kCancelled);  // the text of a token may be missing
  else if (!failed.is_ok() && !answer.has_tokens())
    return failed;
  else if (!failed.is_ok())
    answer.fail(failed);
  Result<Generation> done = answer.finish();
  if (!done.is_ok()) return done;
  Generation& g = *done;
  if (prefixes && g.finish_reason != FinishReason::kError)
    s.keep_prefix(*prefixes, answer.ids().first(static_cast<size_t>(s.length())));
  g.cached_tokens = cached;
  describe(g);
  g.seed = seed;
  g.guessed_tokens = speculation->guessed();
  g.accepted_tokens = speculation->accepted();
  meter.finish(s.length() - static_cast<int64_t>(prompt.size()), g);
  return done;
}

}  // namespace situ
