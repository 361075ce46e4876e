// One answer while it is made: the choice of its tokens, and what the caller gets to see of them.
#pragma once

#include <memory>
#include <optional>

#include "generate/beam_search.h"
#include "generate/likelihood.h"
#include "generate/logprobs.h"
#include "generate/sampler.h"
#include "requests/answer_text.h"
#include "requests/constraint.h"
#include "requests/served.h"
#include "situ/generate.h"

namespace situ {

// What the caller and the model's files ask for, checked and settled for one prompt.
struct AnswerRules {
  SamplingOptions sampling;  // end_ids too: the ids that end the answer
  BeamOptions beams;
  AnswerText::Rules text;
  std::vector<std::string> notes;  // Generation::notes
  std::optional<Grammar> grammar;  // at its beginning
  bool report_perplexity = false, echo = false;
  std::optional<int64_t> logprobs;
  int64_t num_return = 1;
  bool score = false;  // Generation::Answer::score: the log-probability of tokens and end, as they were chosen from
};

// What there is of an answer that fails before its first token. Interrupted, it is cancelled.
Generation failed_answer(const Status& why);

class Answer {
 public:
  // `served` must outlive it. `beside`: for its grammar. `shown`: where its tokens go.
  Answer(const Served& served, AnswerRules rules, std::span<const int64_t> prompt, SideThreads& beside,
         std::vector<Event>& shown, size_t choice);

  // The prompt's text, in front of the answer's.
  Status echo(std::span<const int64_t> prompt) { return text_.echo(prompt); }
  // Whether its grammar has said what may come next. next() waits for that.
  bool may_choose() const { return !constraint_ || constraint_->ready(); }
  // The same, after the few milliseconds that a step may wait for it.
  bool may_choose_soon() { return !constraint_ || constraint_->ready_soon(); }
  // What may come next takes so long to find that a step does not go on beside it.
  bool slow() const { return constraint_ && constraint_->slow(); }
  // Chooses the next token by the logits and reports it. ended() afterwards: this was the last, or it is no token.
  Status next(std::span<const float> logits);
  // The text so far, as ids: prompt and answer.
  std::span<const int64_t> ids() const { return sampler_.ids(); }
  const Sampler& sampler() const { return sampler_; }
  // Tokens at most.
  int64_t left() const { return most_ - static_cast<int64_t>(result_.output_ids.size()); }
  bool ended() const { return result_.finish_reason != FinishReason::kNone; }
  void end(FinishReason reason) {
    if (!ended()) result_.finish_reason = reason;
  }
  double score() const { return score_.value_or(0); }
  bool has_tokens() const { return !result_.output_ids.empty(); }
  // The next token could not be had.
  void fail(const Status& why);
  // Of one that has ended: what is left of the text is shown, and the end.
  void close();
  // Closed. Once.
  Generation finish();

 private:
  const Generation::Logprobs& report_logprobs(int64_t id, std::span<const float> logits);

  AnswerText text_;
  std::vector<int64_t> end_ids_;
  int64_t most_, least_;  // new tokens
  std::optional<int64_t> top_logprobs_;
  Sampler sampler_;
  LogProbabilities logprobs_;
  std::optional<double> score_;
  std::optional<Constraint> constraint_;
  std::optional<LikelihoodMeter> likelihood_;
  bool closed_ = false;
  Generation result_;
};

}  // namespace situ
