// Who joins, how much of a prompt is fed beside answers, and who gives way: decisions without an engine.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>

namespace situ {

// One thread at a time.
class Policy {
 public:
  // A request that waits.
  struct Waiting {
    int priority = 0;
    std::string client;
    bool preempted = false;  // it has begun before: at the head of its queue
    uint64_t number = 0;     // in the order of submission
  };
  // Whose turn it is: the highest priority; within one the client who came in longest ago; of his requests those that
  // were preempted, then the first one. Precondition: there is one.
  // A client who is seen for the first time comes behind those who have waited since their last turn.
  size_t next(std::span<const Waiting> waiting);
  // That one was admitted: its client has had his turn.
  void admitted(const Waiting& request);

  // Whether a request that takes `needed` slots at once may join where so many are free. One slot in 32 is held back
  // for those that run to grow, but for whoever is alone.
  static bool fits(int64_t needed, int64_t free, int64_t capacity, bool alone) {
    return needed <= free - (alone ? 0 : capacity / kHeldBack);
  }

  // Of those that run, by priority and in the order of submission: the lowest priority, and of these the youngest.
  struct Running {
    int priority = 0;
    uint64_t number = 0;
    bool may_give_way = true;
  };
  // Which of them gives its slots up; -1: none may.
  static int64_t victim(std::span<const Running> running);

  // Rows of prompts that the next step may have beside answers. `interactive`: somebody waits for their tokens: then
  // the step takes twice the time of one without prompts at most, or 30 ms, as far as is known what a row costs.
  // `spent_ms`: what encoders have taken of that.
  int64_t prompt_rows(bool answers, bool interactive, int64_t most, double spent_ms = 0) const;
  // For so long encoders go on before the next step: beside answers that somebody waits for, what these and a few rows
  // of prompts leave; else so long that whoever comes anew waits little.
  double encoder_ms(bool interactive) const;
  // A step of so many rows of each kind took so long.
  void learn(double ms, int64_t answer_rows, int64_t prompt_rows);

 private:
  static constexpr int64_t kHeldBack = 32;
  static constexpr int64_t kLeastRows = 16;  // so that prompts come to an end beside answers
  static constexpr double kShortMs = 30, kLongMs = 250;
  // What answers leave of a step.
  double room_ms() const { return decode_ms_ > kShortMs / 2 ? decode_ms_ : kShortMs - decode_ms_; }

  std::map<std::string, uint64_t> turns_;  // by client: number of its last one
  uint64_t turn_ = 0;
  double decode_ms_ = 0, row_ms_ = 0;  // of a step of answers, of a row of a prompt beside them; 0: not known
};

}  // namespace situ
