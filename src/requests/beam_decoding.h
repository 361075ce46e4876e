// A beam search over the answers to one prompt: a strand for each beam, all over one state, in the same steps.
#pragma once

#include <vector>

#include "generate/beam_search.h"
#include "generate/logprobs.h"
#include "generate/sampler.h"
#include "requests/answer.h"
#include "requests/decoding.h"

namespace situ {

// A beam that several go on from is forked: its slots are shared, nothing is copied.
class BeamDecoding : public PromptDecoding {
 public:
  // `renormalised`: what penalties and bans leave is made probabilities again, as in openai/whisper; transformers does
  // not.
  BeamDecoding(Served& served, Opening opening, AnswerRules rules, bool renormalised = false);

  int64_t tokens_to_feed() const override;
  Result<bool> begin(Clock::time_point until, Figures& figures) override;
  Status wants(std::vector<Want>& wants) override;
  void take(const Want& want, Rows rows) override;
  void settle() override;
  void fail(const Status& why) override;
  void end(FinishReason reason) override;
  bool ended() const override { return reason_ != FinishReason::kNone; }
  void give_up_runs() override;
  void strands(std::vector<const Strand*>& to) const override {
    for (const Branch& b : branches_) to.push_back(&b.strand);
  }
  void release() override { branches_.clear(); }
  Result<Generation> finish(const Figures& figures) override;

  // After its end, where it did not fail: best first.
  std::vector<BeamSearch::Answer> answers_found() const { return search_.answers(); }
  const Status& failure() const { return failed_; }

 private:
  // One beam: what it has been fed, and what its penalties look at.
  struct Branch {
    Strand strand;
    Sampler sampler;
    bool offered = false;  // what follows its tokens is known to the search
  };
  struct Root {
    size_t beam = 0;
    int64_t tokens = 0;  // in common with it
  };
  Root root_of(size_t beam) const;
  Status offer(size_t beam, std::span<const float> logits);
  void branch();
  Result<Generation> found(const std::vector<BeamSearch::Answer>& answers, FinishReason unended);

  const AnswerRules rules_;
  const bool renormalised_;
  BeamSearch search_;
  std::vector<float> log_probabilities_;  // [vocabulary]
  std::vector<Branch> branches_;          // as search_.running()
  FinishReason reason_ = FinishReason::kNone;
  Status failed_;
  int64_t steps_ = 0;
};

}  // namespace situ
