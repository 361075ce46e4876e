// What may come next in one answer, by its grammar: found beside the step, or by whoever needs it first.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <span>

#include "base/side_thread.h"
#include "text/grammar.h"

namespace situ {

class Constraint {
 public:
  // `beside` must outlive it.
  Constraint(Grammar grammar, SideThreads& beside);

  struct Next {
    std::span<const uint32_t> allowed;  // bit (id % 32) of word id / 32; the ids that end an answer are not in it
    bool may_end = false;               // the text so far is whole
    bool must_end = false;              // and nothing can follow it
  };
  // Whether it is known.
  bool ready() const { return look_->state == Look::kDone; }
  // The same, after a few milliseconds at most. False: it takes long; others should not wait for it.
  bool ready_soon();
  // The last one took long: no step waits for the next one.
  bool slow() const { return look_->ms > kSlowMs; }
  // Waits until it is known. Error: the grammar takes too many steps here, or too much time for all of the answer; no
  // token goes on with it.
  Result<Next> next();
  // The answer goes on with this token, which is allowed.
  void append(int64_t id) { look_ahead(id); }

 private:
  static constexpr double kSlowMs = 2;
  // Processor's time for all of an answer: what grammars in use take is below 1 ms a token.
  static constexpr double kMostMs = 10000, kMostMsPerToken = 50;

  // What two threads may be at: whoever claims it looks.
  struct Look {
    enum State : int { kOpen, kClaimed, kDone };
    explicit Look(Grammar g) : grammar(std::move(g)) {}
    void try_it(int expected_round);
    void find();
    Grammar grammar;
    std::optional<int64_t> token;
    Next next;
    Status status = Status::ok();
    std::atomic<double> ms{0};  // processor's time of the last one
    double all_ms = 0;          // of all, by whoever claims it
    std::atomic<int> state{kDone};
    std::atomic<int> round{0};
  };
  void look_ahead(std::optional<int64_t> token);

  std::shared_ptr<Look> look_;
  SideThreads* beside_;
};

}  // namespace situ
