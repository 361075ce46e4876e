#include "requests/scored_decoding.h"

#include <algorithm>

#include "generate/greedy.h"
#include "requests/answer_text.h"

namespace situ {

ScoredDecoding::ScoredDecoding(Served& served, std::vector<int64_t> prompt, int64_t top,
                               std::unique_ptr<Decoding> answer, NoAnswer otherwise)
    : Decoding(served),
      prompt_(std::move(prompt)),
      top_(top),
      answer_(std::move(answer)),
      otherwise_(otherwise),
      scored_(prompt_.size() < 2),  // nothing comes before the first token
      score_(Strand(served), prompt_, {{0, 1, std::ssize(prompt_)}}, false,
             [this](int64_t token, std::span<const float> logits) { read(token, logits); }) {}

void ScoredDecoding::read(int64_t token, std::span<const float> logits) {
  if (const int64_t id = largest_logit(logits).not_a_number; id >= 0 && failed_.is_ok())
    failed_ = Status::error("logits of id " + std::to_string(id) + " are not a number").with_context(served_.file);
  logprobs_.read(logits);
  Generation::PromptLogprob& p = found_.emplace_back();
  p.id = prompt_[static_cast<size_t>(token)];
  p.logprob = logprobs_.of(p.id);
  const float own = logits[static_cast<size_t>(p.id)];
  p.rank = 1 + std::count_if(logits.begin(), logits.end(), [&](float x) { return x > own; });
  for (const LogProbabilities::Entry& e : logprobs_.top(top_)) p.top.push_back({e.id, e.logprob});
}

int64_t ScoredDecoding::tokens_to_feed() const {
  const int64_t of_score = scored_ ? 0 : score_.tokens_to_feed();
  return answer_ ? std::max(of_score, answer_->tokens_to_feed()) : of_score;
}

Result<bool> ScoredDecoding::begin(Clock::time_point until, Figures& figures) {
  figures_ = &figures;
  if (!scored_) return score_.begin(until, figures);
  return answer_ ? answer_->begin(until, figures) : true;
}

void ScoredDecoding::take_over_news() {
  if (!answer_) return;
  for (Event& t : answer_->take_news()) news_.push_back(std::move(t));
}

void ScoredDecoding::settle() {
  if (scored_) {
    if (answer_) answer_->settle();
    return take_over_news();
  }
  if (!failed_.is_ok()) return fail(failed_);
  score_.settle();
  if (!score_.ended()) return;
  score_.release();
  scored_ = true;
  if (!answer_) return;
  // At once: there are no encoders.
  if (const auto begun = answer_->begin(Clock::time_point::max(), *figures_); !begun.is_ok())
    answer_->fail(begun.status());
  take_over_news();
}

void ScoredDecoding::fail(const Status& why) {
  if (answer_) return answer_->fail(why);
  if (scored_) return;
  if (failed_.is_ok()) failed_ = why;
  scored_ = true;
}

void ScoredDecoding::end(FinishReason reason) {
  if (answer_) return answer_->end(reason);
  if (!scored_) reason_ = reason;
  scored_ = true;
}

void ScoredDecoding::release() {
  score_.release();
  if (answer_) answer_->release();
}

Result<Generation> ScoredDecoding::finish(const Figures& figures) {
  Result<Generation> g = Generation();
  if (answer_) {
    g = answer_->finish(figures);
    take_over_news();
  } else if (failed_.code() == Code::kInterrupted) {
    g->finish_reason = FinishReason::kCancelled;
  } else if (!failed_.is_ok()) {
    return failed_;
  } else {
    g->finish_reason = reason_;
    for (size_t k = 0; k < static_cast<size_t>(otherwise_.count); ++k) {
      AnswerText text(served_.tokenizer, {}, k == 0 || !otherwise_.best ? &news_ : nullptr, k);
      if (otherwise_.echo) SITU_RETURN_IF_ERROR(text.echo(prompt_));
      Generation::Answer answer;
      answer.finish_reason = text.end(reason_);
      text.move_to(answer);
      if (k == 0) g->text = answer.text;
      if (otherwise_.count > 1) g->answers.push_back(std::move(answer));
    }
    report(figures, 0, *g);
  }
  if (g.is_ok()) g->prompt_logprobs = std::move(found_);
  return g;
}

}  // namespace situ
