// An answer whose prompt is scored first: on a strand of its own, so that the answer is what it is without.
#pragma once

#include <memory>
#include <vector>

#include "generate/logprobs.h"
#include "requests/score_decoding.h"

namespace situ {

class ScoredDecoding : public Decoding {
 public:
  // `answer`: null where the score is all: the result then has `count` answers without tokens, with the prompt's text
  // where it is to be echoed; all of them come as events, or (`best`) the first. `top`: alternatives of each token.
  struct NoAnswer {
    bool echo = false, best = false;
    int64_t count = 1;
  };
  ScoredDecoding(Served& served, std::vector<int64_t> prompt, int64_t top, std::unique_ptr<Decoding> answer,
                 NoAnswer otherwise);

  int64_t tokens_to_feed() const override;
  Result<bool> begin(Clock::time_point until, Figures& figures) override;
  Status wants(std::vector<Want>& wants) override { return now().wants(wants); }
  void take(const Want& want, Rows rows) override { now().take(want, rows); }
  void settle() override;
  void fail(const Status& why) override;
  void end(FinishReason reason) override;
  bool ended() const override { return answer_ ? answer_->ended() : scored_; }
  bool answers() const override { return answer_ ? answer_->answers() : scored_; }
  bool drop_guesses() override { return scored_ && answer_ && answer_->drop_guesses(); }
  bool take_turns() override { return scored_ && answer_ && answer_->take_turns(); }
  bool may_give_way() const override { return answer_ ? answer_->may_give_way() : true; }
  void give_up_runs() override { now().give_up_runs(); }
  int64_t prompt_tokens() const override { return std::ssize(prompt_); }
  void strands(std::vector<const Strand*>& to) const override {
    score_.strands(to);
    if (answer_) answer_->strands(to);
  }
  void release() override;
  Result<Generation> finish(const Figures& figures) override;

 private:
  Decoding& now() { return scored_ && answer_ ? *answer_ : static_cast<Decoding&>(score_); }
  void read(int64_t token, std::span<const float> logits);
  void take_over_news();

  const std::vector<int64_t> prompt_;
  const int64_t top_;
  std::unique_ptr<Decoding> answer_;
  const NoAnswer otherwise_;
  bool scored_ = false;
  FinishReason reason_ = FinishReason::kLength;  // without an answer
  Status failed_;
  ScoreDecoding score_;
  LogProbabilities logprobs_;
  std::vector<Generation::PromptLogprob> found_;
  Figures* figures_ = nullptr;
};

}  // namespace situ
