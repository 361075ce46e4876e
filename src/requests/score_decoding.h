// How given tokens are foretold: they are fed, and what the model says before each is read. No token is chosen.
#pragma once

#include <functional>
#include <vector>

#include "requests/decoding.h"

namespace situ {

class ScoreDecoding : public Errand {
 public:
  // Tokens [begin, end) are fed to a strand of their own, but for the last; those from `scored` on are scored.
  struct Window {
    int64_t begin = 0, scored = 1, end = 0;
  };
  // `read`: what comes before token number `token`; called in order, by one thread at a time. `from`: what windows
  // begin with, a strand without tokens. `in_one`: what comes before the first scored token is fed in one step, as a
  // prompt is.
  using Read = std::function<void(int64_t token, std::span<const float> logits)>;
  ScoreDecoding(Strand from, std::vector<int64_t> tokens, std::vector<Window> windows, bool in_one, Read read);

  int64_t tokens_to_feed() const override;
  Result<bool> begin(Clock::time_point until, Figures& figures) override;
  Status wants(std::vector<Want>& wants) override;
  void take(const Want& want, Rows rows) override;
  void settle() override;
  bool may_give_way() const override { return true; }
  void give_up_runs() override { strand_ = Strand(); }
  void strands(std::vector<const Strand*>& to) const override { to.push_back(&strand_); }
  void release() override { from_ = Strand(), strand_ = Strand(); }

 private:
  Strand from_, strand_;
  const std::vector<int64_t> tokens_;
  const std::vector<Window> windows_;
  const bool in_one_;
  const Read read_;
  size_t window_ = 0;
  int64_t next_ = 0;  // token to be scored
};

}  // namespace situ
