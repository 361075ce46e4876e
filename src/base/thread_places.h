// Threads of one job on processors of their own. The kernel wakes a thread where it ran last or where its waker runs,
// and parts two that share a processor only when it balances loads, some 20 ms later: half of all first tokens took 20
// ms instead of 12 (SmolLM2-135M, two threads on two idle processors), and so did the first after an idle second.
#pragma once

#include <sched.h>
#include <sys/types.h>

#include <atomic>
#include <vector>

#include "base/clock.h"

namespace situ {

// Threads are moved, never bound: a thread that was moved may run wherever it might before as soon as it runs.
class ThreadPlaces {
 public:
  explicit ThreadPlaces(int threads) : workers_(static_cast<size_t>(threads)) {}
  // By thread `thread` of the pool, when it begins.
  void begin(int thread);
  // By thread 0, before the others are woken: a thread that ran last where this one runs, or where another one did, is
  // woken on a processor that none of them has. Nothing happens where there is none.
  void part();
  // By each of the others, when it is woken, and when its part is done.
  void woken(int thread);
  void done(int thread);
  // The threads are those of another process.
  void forget();

 private:
  struct Worker {
    std::atomic<pid_t> id{0};
    std::atomic<int> processor{-1};  // where it ran last; -1: not known
    std::atomic<bool> moved{false};  // and must give itself back
    cpu_set_t allowed{};             // those, before it was moved
  };
  static bool move(Worker& worker, const cpu_set_t& taken);

  // Another process may have a processor, or two may be one core: the kernel is left to know better for so long.
  static constexpr double kPauseMs = 50;
  std::vector<Worker> workers_;  // by thread; nothing is known of thread 0
  Clock::time_point parted_;
};

}  // namespace situ
