// What a request does with the model: it says which tokens it would feed next, and takes their logits. It never calls
// an engine.
#pragma once

#include <span>
#include <vector>

#include "base/clock.h"
#include "requests/served.h"
#include "situ/generate.h"
#include "situ/generation.h"

namespace situ {

// What a strand would be fed next. The tokens stay until the step is over.
struct Want : Served::Feed {
  bool prompt = false;  // the end of a prompt: a piece from its front may be fed, without logits where they are wanted
                        // of the last token alone
  size_t branch = 0;    // the decoding's own number for the strand
};
// What the strand is to be fed next of `ids`, of which the first `prompt` are a prompt, the others came one by one, as
// many of them as a step of the model gives logits of. Logits are wanted after all of these; whoever takes them knows
// by the length of the strand which they are.
Want next_of(Strand& strand, std::span<const int64_t> ids, size_t prompt, size_t branch);

// What a request took, in time and in bytes of the ledger: its share by rows of the steps that it took part in.
struct Figures {
  double encode_ms = 0, prompt_ms = 0, decode_ms = 0;
  std::vector<Stage> stages;  // of encoders
  struct Bytes {
    double computed = 0, copied = 0;
  };
  Bytes encode, prompt, decode;
};

// What a request took, as the caller sees it. `fed`: tokens behind the prompt.
void report(const Figures& figures, int64_t fed, Generation& g);

using Rows = std::span<const std::span<const float>>;

class TextDecoding;

// begin() until it says true; then wants(), take() and settle() in each step, until it has ended; finish() and
// release(). All calls come from the scheduler's thread, but take(), which any thread of the pool makes, one at a time.
class Decoding {
 public:
  explicit Decoding(Served& served) : served_(served) {}
  virtual ~Decoding() = default;
  // The model whose slots it takes.
  Served& served() const { return served_; }
  // Tokens that it has and that are not fed: slots that it needs to begin, to begin again, or to go on.
  virtual int64_t tokens_to_feed() const = 0;
  // Rows of the source space that it needs.
  virtual int64_t source_rows() const { return 0; }
  // Makes the strand, which takes the slots of a kept prefix; runs encoders. False: these are not done (Encoding), and
  // it is to be called again. Error: no strand is left then.
  virtual Result<bool> begin(Clock::time_point until, Figures& figures) = 0;
  // Appends what it would feed now; nothing: it waits for what is found beside steps. An error ends it.
  virtual Status wants(std::vector<Want>& wants) = 0;
  // The logits of a want that was fed, [want.wanted][vocabulary].
  virtual void take(const Want& want, Rows rows) = 0;
  // A want that is not fed: it can never be.
  virtual void refuse(const Want&, Status why) { fail(why); }
  // After all that was fed in a step has been taken: forks, rewinds, keeps prefixes.
  virtual void settle() = 0;
  // Ends it: what comes next could not be had. kInterrupted: it is cancelled.
  virtual void fail(const Status& why) = 0;
  virtual void end(FinishReason reason) = 0;
  virtual bool ended() const = 0;
  // Whether the prompt is behind it: it has given tokens, or will with its next step.
  virtual bool answers() const = 0;
  // Asked after settle(): whether it is to be begun before it goes on, since what comes next has no strand.
  virtual bool begins_again() { return false; }
  // Feeds fewer tokens next time; false: there is nothing that could be left out.
  virtual bool drop_guesses() { return false; }
  // Several answers that do not fit the state together are fed one after the other from here on, each with the prompt
  // in front. False: they are already, or there is one.
  virtual bool take_turns() { return false; }
  // Preemption: gives all slots back and begins again later, with tokens_to_feed().
  virtual bool may_give_way() const { return false; }
  virtual void give_up_runs() {}
  virtual int64_t prompt_tokens() const { return 0; }
  // Not null: it has texts for the encoder, and wants nothing else.
  virtual TextDecoding* of_texts() { return nullptr; }
  // Appends the strands that have slots.
  virtual void strands(std::vector<const Strand*>&) const {}
  // Strands go, and what is kept of them. Nothing else is called afterwards but finish().
  virtual void release() = 0;
  // After its end: what came of it.
  virtual Result<Generation> finish(const Figures&) { return Generation(); }
  // Tokens for the caller since the last call.
  std::vector<Event> take_news() { return std::move(news_); }
  bool has_news() const { return !news_.empty(); }

 protected:
  Served& served_;
  std::vector<Event> news_;
};

// One without tokens for the caller, who waits for its end alone. It may have done all when it has begun.
class Errand : public Decoding {
 public:
  using Decoding::Decoding;
  Status wants(std::vector<Want>&) override { return Status::ok(); }
  void take(const Want&, Rows) override {}
  void settle() override {}
  void fail(const Status& why) override { end_with(why); }
  void end(FinishReason) override { end_with(Status::error(Code::kInterrupted, "interrupted")); }
  bool ended() const override { return ended_; }
  bool answers() const override { return false; }
  Result<Generation> finish(const Figures& figures) override;

 protected:
  void end_with(Status why) {
    if (!ended_) status_ = std::move(why);
    ended_ = true;
  }
  const Status& status() const { return status_; }

 private:
  bool ended_ = false;
  Status status_;
};

// What a decoding goes on from.
struct Opening {
  Start start;
  PrefixReuse reuse = PrefixReuse::kOff;
  bool may_give_way = true;
  std::string salt = {};  // of kept prefixes that it shares
};

// One that goes on behind a prompt: that is fed to one strand, and the others fork it.
class PromptDecoding : public Decoding {
 public:
  PromptDecoding(Served& served, Opening opening);
  int64_t source_rows() const override { return std::ssize(opening_.start.source_ids); }
  bool answers() const override { return prompt_done_; }
  bool may_give_way() const override { return opening_.may_give_way; }
  int64_t prompt_tokens() const override { return std::ssize(prompt()); }

 protected:
  const std::vector<int64_t>& prompt() const { return opening_.start.decoder; }
  // Gives a new strand, that of the prompt, the encoders' outputs and the slots of a kept prefix, as begin().
  virtual Result<bool> open(Strand& strand, Clock::time_point until, Figures& figures);
  // Logits after a token of the prompt.
  virtual void see_prompt(int64_t, std::span<const float>) {}
  // open(), and notes what was kept when it first began.
  Result<bool> begin_with(Strand& strand, Clock::time_point until, Figures& figures);
  // Keeps the prompt's rows, but the last: its logits are wanted by whoever begins alike.
  void keep_prompt(const Strand& strand) const;
  // What all results have. `fed`: tokens behind the prompt.
  void complete(const Figures& figures, int64_t fed, Generation& g) const;

  const Opening opening_;
  size_t prompt_rows_;  // tokens of the prompt that are fed as one; those behind come one by one
  bool prompt_done_ = false, begun_ = false;

 private:
  int64_t cached_ = 0;
};

}  // namespace situ
