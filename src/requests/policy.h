// Who joins, how much of a prompt is fed beside answers, and who gives way: decisions without an engine.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

namespace situ {

// The time of a step, a + b * answers + c * rows of prompts, fitted to all steps. Later steps count more.
class StepCost {
 public:
  void learn(double ms, int64_t answers, int64_t rows);
  // Milliseconds of a step of so many answers, 0: not known; of a row of a prompt, 0: not known.
  double answers_ms(int64_t answers) const { return fit_[0] + fit_[1] * static_cast<double>(answers); }
  double row_ms() const { return fit_[2]; }

 private:
  void solve();
  std::array<std::array<double, 3>, 3> products_{};  // sums of products of (1, answers, rows)
  std::array<double, 3> sums_{}, fit_{};             // of these with the time; a, b, c
};

// One thread at a time.
class Policy {
 public:
  // A request that waits.
  struct Waiting {
    int priority = 0;
    std::string client;
    bool preempted = false;  // it has begun before: at the head of its queue
    uint64_t number = 0;     // in the order of submission
    int64_t seconds = 0;     // that it has waited
    int64_t passed = 0;      // requests that were admitted before it, since it did not fit
  };
  // Whose turn it is: the highest priority; within one the client who came in longest ago; of his requests those that
  // were preempted, then the first one. Precondition: there is one.
  // A client who is seen for the first time comes behind those who have waited since their last turn. A second of
  // waiting counts as a priority of one, up to the highest among `waiting`.
  size_t next(std::span<const Waiting> waiting);
  // The first of them, in that order, that fits; waiting.size(): none may be admitted now. One that does not fit lets
  // others pass, but not for ever. Asks for few.
  size_t choose(std::span<Waiting> waiting, const std::function<bool(size_t)>& fits);
  // What its priority has become.
  static int64_t level(const Waiting& request, std::span<const Waiting> waiting);
  // That one was admitted: its client has had his turn.
  void admitted(const Waiting& request);

  // The slots of a state. `promised`: those that requests which run still need for the tokens that they have.
  struct Room {
    int64_t free = 0, promised = 0, capacity = 0;
    bool alone = false;  // nobody else runs
  };
  // Whether a request that takes `needed` slots may join. One slot in 32 is held back for those that run to grow.
  //
  // Whoever runs longest comes to an end. Let F be the request that runs with the highest (priority, age). F changes
  // when it ends, or when a request with a higher rank is admitted; a rank is fixed while its request runs and never
  // falls, so that the second happens a limited number of times. F never gives way: victim() takes the lowest rank, and
  // a request that runs alone ends where the state ends. Let F be refused slots. Then another request gives way, and no
  // request that waits can take these slots before F: what F lacks is promised, and fits() leaves what is promised. So
  // each refusal of F makes the requests that run one fewer, and F is fed at the latest when it is alone. A step leaves
  // no request out for ever: rows of answers go to those that were not fed for longest, and the first prompt has half
  // of the rows of prompts. So F is fed all its tokens, and ends. A request that waits and does not fit is passed by
  // kMostPassed others at most; then those that run end, and it is alone.
  static bool fits(int64_t needed, const Room& room) {
    return room.alone || needed <= room.free - room.promised - room.capacity / kHeldBack;
  }

  // Of those that run, by priority and in the order of submission: the lowest priority, and of these the youngest.
  struct Running {
    int64_t priority = 0;
    uint64_t number = 0;
    bool may_give_way = true;
  };
  // Which of them gives its slots up; -1: none may.
  static int64_t victim(std::span<const Running> running);

  // A prompt that is being read.
  struct Reading {
    int64_t priority = 0;
    uint64_t number = 0;
    int64_t left = 0;  // rows that it has to be fed
  };
  // How `room` rows are shared: within the highest priority half of them goes to who came first, the others to who
  // needs fewest, so that a short prompt passes a long one and none stands still.
  static std::vector<int64_t> share(std::span<const Reading> prompts, int64_t room);
  // The same where a step takes one prompt: which. Who came first and who needs fewest take turns.
  size_t one_of(std::span<const Reading> prompts);

  // What a step may be, where somebody waits for tokens. All models of a process share it.
  struct Budget {
    bool interactive = false;  // somebody waits for tokens: see Scheduler::is_awaited
    double backlog_ms = 0;     // that all prompts which wait take
    bool fed = false;          // another model was fed rows of prompts
    bool later = false;        // another model's prompts come first, whose step is still to come
    double spent_ms = 0;       // of what is left for prompts, by encoders and by other models
  };
  // Milliseconds that are left for prompts beside so many answers: a step takes max(30 ms, twice what answers take),
  // and more where prompts wait for longer than a second, up to 80 ms, so that a step that takes a quarter more than
  // its rows were thought to is no gap above 100 ms. (With 1.5 ms more for each second of waiting in place of 30,
  // prompts share weights with fewer rows: 8 clients had 0.90 of the tokens a second.)
  double room_ms(int64_t answers, const Budget& budget) const;
  // Rows of prompts that the next step may have beside answers: one at least, but for prompts of another model.
  int64_t prompt_rows(int64_t answers, int64_t most, const Budget& budget) const;
  // For so long encoders go on before the next step: beside answers that somebody waits for half of what these leave;
  // else so long that whoever comes anew waits little.
  double encoder_ms(int64_t answers, const Budget& budget) const;
  StepCost cost;

 private:
  static constexpr int64_t kHeldBack = 32, kMostPassed = 16, kMostAsked = 8;
  static constexpr int64_t kFirstRows = 16;  // as long as it is not known what a row takes
  static constexpr double kShortMs = 30, kLongestMs = 80, kBacklogMs = 1000, kLongMs = 250;

  size_t next(std::span<const Waiting> waiting, const std::vector<bool>& passed);

  std::map<std::string, uint64_t> turns_;  // by client: number of its last one
  uint64_t turn_ = 0, read_ = 0;
};

// The first pick of each job, in their order. Picks of one job, which one thread takes, stand apart where others were
// not fed for longer.
template <typename Picks>
void first_picks(const Picks& picks, std::vector<size_t>* firsts) {
  firsts->clear();
  for (size_t i = 0; i < picks.size(); ++i)
    if (std::none_of(firsts->begin(), firsts->end(), [&](size_t f) { return picks[f].job == picks[i].job; }))
      firsts->push_back(i);
}

}  // namespace situ
