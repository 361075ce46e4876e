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

Answer::Answer(const Served& served, AnswerRules rules, std::span<const int64_t> prompt, SideThreads& beside,
               std::vector<Event>& shown, size_t choice)
    : text_(served.tokenizer, rules.text, &shown, choice),
      end_ids_(rules.sampling.end_ids),
      most_(rules.sampling.max_new_tokens),
      least_(rules.sampling.min_new_tokens),
      top_logprobs_(rules.logprobs),
      sampler_(std::move(rules.sampling), prompt, served.vocabulary) {
  result_.notes = std::move(rules.notes);
  if (rules.grammar) constraint_.emplace(std::move(*rules.grammar), beside);
  if (rules.report_perplexity) likelihood_.emplace();
  if (rules.score) score_ = 0;
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
  SITU_RETURN_IF_ERROR(text_.push(std::move(token)));
  if (text_.stopped()) end(FinishReason::kStopString);
  if (left() <= 0) end(FinishReason::kLength);
  return Status::ok();
}

void Answer::close() {
  if (!closed_) result_.finish_reason = text_.end(result_.finish_reason);
  closed_ = true;
}

Generation Answer::finish() {
  close();
  if (likelihood_ && likelihood_->sum().tokens > 0)
    result_.perplexity = std::exp(likelihood_->sum().nll / static_cast<double>(likelihood_->sum().tokens));
  text_.move_to(result_);
  return std::move(result_);
}

const Generation::Logprobs& Answer::report_logprobs(int64_t id, std::span<const float> logits) {
  logprobs_.read(logits);
  Generation::Logprobs& l = result_.logprobs.emplace_back();
  l.logprob = logprobs_.of(id);
  for (const LogProbabilities::Entry& e : logprobs_.top(*top_logprobs_)) l.top.push_back({e.id, e.logprob});
  return l;
}

}  // namespace situ
