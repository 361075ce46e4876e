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

// What a decoding goes on from.
struct Opening {
  Start start;
  PrefixReuse reuse = PrefixReuse::kOff;
  bool may_give_way = true;
};

// Gives a new strand the encoders' outputs and the slots of a kept prefix of the prompt, as Decoding::begin. `figures`
// gets the encoders' time.
Result<bool> open_strand(Strand& strand, const Opening& opening, Clock::time_point until, Figures& figures);

class AnswerDecoding : public Decoding {
 public:
  // One answer for each of `rules`. `guesses`: how many tokens at most, by the draft model or from the text itself.
  // Answers share the rows of their prompt; where sequences cannot, an answer is fed after the other, each with the
  // prompt in front.
  AnswerDecoding(Served& served, Opening opening, std::vector<AnswerRules> rules, int64_t guesses, bool by_draft);

  Served& served() const override { return served_; }
  int64_t tokens_to_begin() const override;
  int64_t source_rows() const override { return std::ssize(opening_.start.source_ids); }
  Result<bool> begin(Clock::time_point until, Figures& figures) override;
  Status wants(std::vector<Want>& wants) override;
  void take(const Want& want, Rows rows) override;
  void settle() override;
  void fail(const Status& why) override;
  void end(FinishReason reason) override;
  bool ended() const override;
  bool answers() const override { return prompt_done_; }
  bool begins_again() override;
  bool drop_guesses() override;
  bool may_give_way() const override { return opening_.may_give_way; }
  void give_up_runs() override;
  int64_t prompt_tokens() const override { return static_cast<int64_t>(prompt().size()); }
  void strands(std::vector<const Strand*>& to) const override {
    for (const Branch& b : branches_)
      if (b.strand.length() > 0) to.push_back(&b.strand);
  }
  void release() override;
  Result<Generation> finish(const Figures& figures) override;

 protected:
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
    size_t tried = 0;
  };
  const std::vector<int64_t>& prompt() const { return opening_.start.decoder; }
  // The strand that the prompt is fed to.
  virtual Result<bool> open(Strand& strand, Clock::time_point until, Figures& figures);
  // Logits after a token of the prompt.
  virtual void see_prompt(int64_t, std::span<const float>) {}
  // The token that follows `length` ones.
  virtual Status choose(Branch& branch, std::span<const float> logits, int64_t length);
  size_t prompt_rows_;  // tokens of the prompt that are fed as one; those behind come one by one
  Served& served_;
  const Opening opening_;
  std::vector<Branch> branches_;

 private:
  Branch* stem();
  void leave(Branch& branch);
  void guess(Branch& branch);

  const Branch* opened_ = nullptr;  // whose strand was begun
  const int64_t guesses_;
  const std::optional<uint64_t> seed_;
  const bool in_turn_;
  bool echo_, prompt_done_ = false, kept_ = false, no_guesses_ = false, begun_ = false;
  int64_t cached_ = 0, guessed_ = 0, accepted_ = 0, fed_ = 0;  // fed_: behind the prompt, by those that have left
  Status failed_;                                              // before there was a token
};

// What a request took, as the caller sees it. `fed`: tokens behind the prompt.
void report(const Figures& figures, int64_t fed, Generation& g);

}  // namespace situ
