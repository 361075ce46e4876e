// Answers to one prompt, token by token, with guesses or without.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "generate/guess_count.h"
#include "requests/answer.h"
#include "requests/decoding.h"
#include "requests/draft.h"

namespace situ {

class AnswerDecoding : public PromptDecoding {
 public:
  // One answer for each of `rules`. `guesses`: how many tokens at most, by the draft model or from the text itself.
  // Answers share the rows of their prompt; where sequences cannot, an answer is fed after the other, each with the
  // prompt in front.
  AnswerDecoding(Served& served, Opening opening, std::vector<AnswerRules> rules, int64_t guesses, bool by_draft);

  int64_t tokens_to_feed() const override;
  Result<bool> begin(Clock::time_point until, Figures& figures) override;
  Status wants(std::vector<Want>& wants) override;
  void take(const Want& want, Rows rows) override;
  void settle() override;
  void fail(const Status& why) override;
  void end(FinishReason reason) override;
  bool ended() const override;
  bool begins_again() override;
  bool drop_guesses() override;
  bool take_turns() override;
  void give_up_runs() override;
  void strands(std::vector<const Strand*>& to) const override {
    for (const Branch& b : branches_)
      if (b.strand.length() > 0) to.push_back(&b.strand);
  }
  void release() override;
  Result<Generation> finish(const Figures& figures) override;

 private:
  struct Branch {
    Branch(Served& served, Answer a, int64_t guesses, std::unique_ptr<Draft> d)
        : strand(served), answer(std::move(a)), count(guesses), draft(std::move(d)) {}
    Strand strand;
    Answer answer;
    GuessCount count;
    std::unique_ptr<Draft> draft;  // null: guesses come from the text
    bool guessed = false;          // for the next step: tokens of `fed` behind the first
    std::vector<int64_t> fed;
    int64_t right = -1;  // tokens of the strand that hold; -1: all
    bool late = false;   // the token behind the last one is fed again, since its grammar was late
    size_t tried = 0;
    void forget_guess() {
      guessed = false;
      fed.clear();
      tried = 0;
    }
  };
  // The token that follows `length` ones.
  void choose(Branch& branch, std::span<const float> logits, int64_t length);
  Branch* stem();
  void keep_once();
  bool all_may_choose() const;
  bool can_feed_again(const Branch& branch, int64_t at) const;
  void leave(Branch& branch);
  void give_up_runs(Branch& branch);
  void guess(Branch& branch);

  std::vector<Branch> branches_;
  const Branch* opened_ = nullptr;  // whose strand was begun
  const int64_t guesses_;
  const std::optional<uint64_t> seed_;
  bool in_turn_;  // one answer is fed after the other
  const bool echo_, score_;
  bool kept_ = false, no_guesses_ = false;
  int64_t guessed_ = 0, accepted_ = 0, fed_ = 0;  // fed_: behind the prompt, by those that have left
  Status failed_;                                 // before there was a token
};

}  // namespace situ
