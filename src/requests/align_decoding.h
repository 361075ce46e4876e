// What tokens look at in a source: a step of a program of its own, in slices as encoders are.
#pragma once

#include <memory>
#include <vector>

#include "requests/decoding.h"

namespace situ {

class AlignDecoding : public Errand {
 public:
  // `strand` has a source and no tokens. `weights`: as InPlaceEngine::Alignment gives them; it must live until the end.
  AlignDecoding(Strand strand, std::vector<int64_t> tokens, std::vector<AttentionHead> heads,
                std::vector<float>* weights)
      : Errand(*strand.served),
        strand_(std::move(strand)),
        tokens_(std::move(tokens)),
        heads_(std::move(heads)),
        weights_(weights) {}

  int64_t tokens_to_feed() const override { return step_ ? 0 : std::ssize(tokens_); }
  Result<bool> begin(Clock::time_point until, Figures&) override {
    if (!step_) {
      Result<std::unique_ptr<InPlaceEngine::Alignment>> begun =
          served_.in_place->align(*strand_.sequence, tokens_, heads_);
      if (!begun.is_ok()) return begun.status().with_context(served_.file);
      step_ = std::move(*begun);
      if (!step_) return false;
    }
    const Result<bool> done = step_->go_on(until);
    if (!done.is_ok() || !*done) return done;
    *weights_ = step_->take_weights();
    step_ = nullptr;
    end_with(Status::ok());
    return true;
  }
  bool may_give_way() const override { return true; }
  void give_up_runs() override { step_ = nullptr; }
  void strands(std::vector<const Strand*>& to) const override { to.push_back(&strand_); }
  void release() override {
    step_ = nullptr;
    strand_ = Strand();
  }

 private:
  Strand strand_;
  const std::vector<int64_t> tokens_;
  const std::vector<AttentionHead> heads_;
  std::vector<float>* const weights_;
  std::unique_ptr<InPlaceEngine::Alignment> step_;
};

}  // namespace situ
