#include "pipelines/answer.h"

#include <algorithm>
#include <cmath>

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

Status Answer::echo(std::span<const int64_t> prompt) {
  Result<std::string> text = text_.echo(prompt);
  if (text.is_ok() && !text->empty()) show({-1, *text, {}});
  return text.status();
}

Result<int64_t> Answer::next(std::span<const float> logits) {
  AllowedTokens allowed;
  if (constraint_) {
    const Result<Constraint::Next> may = constraint_->next();
    if (!may.is_ok()) return may.status();
    if (may->must_end) {
      // It may not: the same error as where bans leave nothing to choose.
      if (static_cast<int64_t>(result_.output_ids.size()) < least_) return sampler_.nothing_left(true);
      result_.finish_reason = FinishReason::kStop;
      return -1;
    }
    allowed = {may->allowed, may->may_end};
  }
  Result<int64_t> chosen = sampler_.choose(logits, constraint_ ? &allowed : nullptr);
  if (!chosen.is_ok()) return chosen;
  if (std::find(end_ids_.begin(), end_ids_.end(), *chosen) != end_ids_.end()) {
    result_.finish_reason = FinishReason::kStop;
    return chosen;
  }
  sampler_.append(*chosen);
  if (constraint_) constraint_->append(*chosen);
  result_.output_ids.push_back(*chosen);
  Token token;
  token.id = *chosen;
  if (likelihood_) likelihood_->meter().add(logits, *chosen);
  if (options_.logprobs) token.logprob = report_logprobs(*chosen, logits);
  Result<std::string> text = text_.push(*chosen);
  if (!text.is_ok()) return text.status();
  token.text = *text;
  show(token);
  if (text_.stopped()) result_.finish_reason = FinishReason::kStopString;
  if (left() <= 0) end_by_length();
  return chosen;
}

Result<Generation> Answer::finish() {
  Result<std::string> rest = text_.finish();
  if (rest.is_ok() && !rest->empty()) show({-1, *rest, {}});
  if (text_.stopped() && result_.finish_reason != FinishReason::kError)
    result_.finish_reason = FinishReason::kStopString;
  if (likelihood_) {
    const LikelihoodMeter::Sum sum = likelihood_->meter().sum();
    if (sum.tokens > 0) result_.perplexity = std::exp(sum.nll / static_cast<double>(sum.tokens));
  }
  return std::move(result_);
}

void Answer::show(const Token& token) {
  result_.text += token.text;
  if (on_token_ && !refused_ && !on_token_(token)) {
    if (result_.finish_reason != FinishReason::kError) result_.finish_reason = FinishReason::kNone;
    refuse(model_.interrupted() ? FinishReason::kCancelled : FinishReason::kCallback);
  }
}

double Answer::report_logprobs(int64_t id, std::span<const float> logits) {
  logprobs_.read(logits);
  Generation::Logprobs& l = result_.logprobs.emplace_back();
  l.logprob = logprobs_.of(id);
  for (const LogProbabilities::Entry& e : logprobs_.top(*options_.logprobs)) l.top.push_back({e.id, e.logprob});
  return l.logprob;
}

}  // namespace situ
