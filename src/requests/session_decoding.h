// What sessions ask for: the encoders' rows that they begin with, and tokens of theirs, each as pieces of steps.
#pragma once

#include <vector>

#include "requests/decoding.h"

namespace situ {

// The beginning of a session: what encoders make for it.
class SessionOpening : public Errand {
 public:
  SessionOpening(Served& served, Start start) : Errand(served), start_(std::move(start)), strand_(served) {}

  int64_t tokens_to_feed() const override { return 0; }
  int64_t source_rows() const override { return std::ssize(start_.source_ids); }
  Result<bool> begin(Clock::time_point until, Figures&) override {
    const Result<bool> done = strand_.encode(start_, until, nullptr);
    if (done.is_ok() && *done) end_with(Status::ok());
    return done;
  }
  void release() override {
    if (!status().is_ok()) strand_ = Strand();
  }
  Strand take_strand() { return std::move(strand_); }

 private:
  const Start start_;
  Strand strand_;
};

// The next tokens of sessions, with the logits after the last one of each. A session that is refused is what it was;
// after an error of the whole all are.
class SessionStep : public Errand {
 public:
  struct Part {
    Strand* strand = nullptr;  // each once
    std::span<const int64_t> tokens;
    Status refused = {};
    std::span<const float> logits = {};  // in `place`, unless refused
  };
  // `place`: [parts, vocabulary]. It, strands and tokens must live until the end.
  SessionStep(Served& served, std::vector<Part> parts, float* place)
      : Errand(served), parts_(std::move(parts)), place_(place) {}

  // The state may be too small for all of them: whichever is fed last is refused then.
  int64_t tokens_to_feed() const override;
  Result<bool> begin(Clock::time_point until, Figures& figures) override;
  Status wants(std::vector<Want>& wants) override;
  void take(const Want& want, Rows rows) override { parts_[want.branch].logits = rows[0]; }
  void settle() override;
  void refuse(const Want& want, Status why) override;
  // Behind a window what is taken back may be lost.
  bool may_give_way() const override { return served_.in_place && !served_.in_place->has_window(); }
  void give_up_runs() override { go_back(); }
  void strands(std::vector<const Strand*>& to) const override {
    for (const Part& p : parts_) to.push_back(p.strand);
  }
  void release() override;
  std::vector<Part> take_parts() { return std::move(parts_); }

 private:
  // As it was, of a strand in place or of a naive one.
  struct Before {
    int64_t length = 0;
    std::optional<InPlaceEngine::Undo> undo = {};
    NaiveSequence naive = {};
  };
  bool is_open(size_t i) const { return parts_[i].refused.is_ok() && parts_[i].logits.empty(); }
  std::span<const int64_t> left(size_t i) const;
  void go_back(size_t i);
  void go_back();

  std::vector<Part> parts_;
  std::vector<Before> before_;  // by part, from begin() on
  float* const place_;
};

}  // namespace situ
