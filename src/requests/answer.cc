#include "requests/answer.h"

#include <algorithm>
#include <cmath>

#include "base/assign.h"

namespace situ {

Generation failed_answer(const Status& why) {
  Generation g;
  const bool interrupted = why.code() == Code::kInterrupted;
  g.finish_reason = interrupted ? FinishReason::kCancelled : FinishReason::kError;
  if (interrupted) return g;
  g.error = why.message();
  g.error_code = why.code();
  return g;
}

void Said::add(const Event& event) {
  text += event.text;
  reasoning += event.reasoning;
  for (const CallPiece& piece : event.calls) {
    if (piece.call >= calls.size()) calls.push_back({piece.id, piece.name, ""}), ended.push_back(false);
    calls[piece.call].arguments_json += piece.arguments_json;
    ended[piece.call] = ended[piece.call] || piece.ended;
  }
}

std::vector<ToolCall> Said::take_calls() {
  std::vector<ToolCall> whole;
  for (size_t i = 0; i < calls.size(); ++i)
    if (ended[i]) whole.push_back(std::move(calls[i]));
  calls.clear(), ended.clear();
  return whole;
}

Answer::Answer(const Served& served, AnswerRules rules, std::span<const int64_t> prompt, SideThreads& beside,
               std::vector<Event>& shown, size_t choice)
    : text_(rules.text ? served.tokenizer : nullptr, rules.stop, rules.shown),
      parts_(std::move(rules.parts)),
      end_ids_(rules.sampling.end_ids),
      most_(rules.sampling.max_new_tokens),
      least_(rules.sampling.min_new_tokens),
      top_logprobs_(rules.logprobs),
      sampler_(std::move(rules.sampling), prompt, served.vocabulary),
      shown_(&shown),
      choice_(choice) {
  result_.notes = std::move(rules.notes);
  if (rules.grammar) constraint_.emplace(std::move(*rules.grammar), beside);
  if (rules.report_perplexity) likelihood_.emplace();
  if (rules.score) score_ = 0;
}

Status Answer::echo(std::span<const int64_t> prompt) {
  Result<std::string> text = text_.echo(prompt);
  if (text.is_ok() && !text->empty()) show({-1, *text});
  return text.status();
}

void Answer::fail(const Status& why) {
  if (ended()) return;
  if (why.code() == Code::kInterrupted) return end(FinishReason::kCancelled);
  result_.finish_reason = FinishReason::kError;
  result_.error = why.message();
  result_.error_code = why.code();
}

Status Answer::next(std::span<const float> logits) {
  AllowedTokens allowed;
  if (constraint_) {
    SITU_TAKE(may, constraint_->next());
    if (may.must_end) {
      // It may not: the same error as where bans leave nothing to choose.
      if (static_cast<int64_t>(result_.output_ids.size()) < least_) return sampler_.nothing_left(true);
      end(FinishReason::kStop);
      return Status::ok();
    }
    allowed = {may.allowed, may.may_end};
  }
  SITU_TAKE(chosen, sampler_.choose(logits, constraint_ ? &allowed : nullptr));
  if (score_) {
    logprobs_.read(sampler_.last_scores());
    *score_ += logprobs_.of(chosen);
  }
  if (std::find(end_ids_.begin(), end_ids_.end(), chosen) != end_ids_.end()) {
    end(FinishReason::kStop);
    return Status::ok();
  }
  sampler_.append(chosen);
  if (constraint_) constraint_->append(chosen);
  result_.output_ids.push_back(chosen);
  Event token;
  token.id = chosen;
  if (likelihood_) likelihood_->add(logits, chosen);
  if (top_logprobs_) {
    const Generation::Logprobs& l = report_logprobs(chosen, logits);
    token.logprob = l.logprob;
    token.top = l.top;
  }
  SITU_TAKE(text, text_.push(chosen));
  if (parts_)
    parts_->read(text, token);
  else
    token.text = text;
  show(std::move(token));
  if (text_.stopped()) end(FinishReason::kStopString);
  if (left() <= 0) end(FinishReason::kLength);
  return Status::ok();
}

void Answer::close() {
  if (closed_) return;
  closed_ = true;
  const Result<std::string> rest = text_.finish();
  if (text_.stopped() && result_.finish_reason != FinishReason::kError)
    result_.finish_reason = FinishReason::kStopString;
  Event last{-1, rest.is_ok() && !parts_ ? *rest : std::string()};
  if (parts_) {
    parts_->read(rest.is_ok() ? *rest : std::string(), last);
    result_.finish_reason = parts_->end(result_.finish_reason, last);
  }
  last.finish = result_.finish_reason;
  show(std::move(last));
}

Generation Answer::finish() {
  close();
  if (likelihood_ && likelihood_->sum().tokens > 0)
    result_.perplexity = std::exp(likelihood_->sum().nll / static_cast<double>(likelihood_->sum().tokens));
  result_.text = std::move(said_.text);
  result_.reasoning = std::move(said_.reasoning);
  result_.tool_calls = said_.take_calls();
  return std::move(result_);
}

void Answer::show(Event token) {
  said_.add(token);
  token.choice = choice_;
  shown_->push_back(std::move(token));
}

const Generation::Logprobs& Answer::report_logprobs(int64_t id, std::span<const float> logits) {
  logprobs_.read(logits);
  Generation::Logprobs& l = result_.logprobs.emplace_back();
  l.logprob = logprobs_.of(id);
  for (const LogProbabilities::Entry& e : logprobs_.top(*top_logprobs_)) l.top.push_back({e.id, e.logprob});
  return l;
}

}  // namespace situ
