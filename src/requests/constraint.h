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
  Constraint(Grammar grammar, SideThread& beside);

  struct Next {
    std::span<const uint32_t> allowed;  // bit (id % 32) of word id / 32; the ids that end an answer are not in it
    bool may_end = false;               // the text so far is whole
    bool must_end = false;              // and nothing can follow it
  };
  // Error: the grammar takes too many steps here; no token goes on with it.
  Result<Next> next();
  // The answer goes on with this token, which is allowed.
  void append(int64_t id) { look_ahead(id); }

 private:
  // What two threads may be at: whoever claims it looks.
  struct Look {
    enum State : int { kOpen, kClaimed, kDone };
    explicit Look(Grammar g) : grammar(std::move(g)) {}
    void try_it(int expected_round);
    Grammar grammar;
    std::optional<int64_t> token;
    Next next;
    Status status = Status::ok();
    std::atomic<int> state{kDone};
    std::atomic<int> round{0};
  };
  void look_ahead(std::optional<int64_t> token);

  std::shared_ptr<Look> look_;
  SideThread* beside_;
};

}  // namespace situ
