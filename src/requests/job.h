// A request between the threads that wait for it and the one that works on it.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "base/clock.h"
#include "base/thread_flag.h"
#include "requests/decoding.h"

namespace situ {

// How a request is treated beside others.
struct Treatment {
  bool interactive = false;
  bool follows_flag = false;  // Served::interrupt cancels it
  int priority = 0;
  std::string client;
  std::optional<Clock::time_point> deadline;
  SharedFlag flag = thread_flag();  // of the thread that asks: cancels it; null: none
};

class Job {
 public:
  Job(std::unique_ptr<Decoding> d, Treatment t) : treatment(std::move(t)), decoding(std::move(d)) {}

  const Treatment treatment;
  // Of the scheduler's thread until the end; the caller's afterwards.
  const std::unique_ptr<Decoding> decoding;
  Figures figures;
  uint64_t number = 0;  // in the order of submission
  const Clock::time_point submitted = Clock::now();
  int64_t seconds() const { return static_cast<int64_t>(ms_since(submitted) / 1000); }
  int64_t level = INT64_MIN;                  // its priority when it was admitted
  int64_t passed = 0;                         // requests that were admitted before it, since it did not fit
  std::vector<uint64_t> fed_in;               // by branch: number of the last step that fed it tokens of an answer
  std::optional<Result<Generation>> outcome;  // what the caller is told next
  bool begun = false, preempted = false;
  Clock::time_point prompt_begun, prompt_done;
  bool prompt_is_done = false;

  // -- any thread
  std::optional<Event> next(std::chrono::milliseconds patience);
  bool ended() const;
  void on_ready(std::function<void()> ready);
  void cancel();
  bool cancelled() const { return cancelled_.load(std::memory_order_relaxed); }
  // The flag of others that ends it; null: none.
  const std::atomic<bool>* flag() const {
    if (treatment.flag) return treatment.flag.get();
    return treatment.follows_flag ? decoding->served().interrupt.load() : nullptr;
  }
  bool interrupted() const {
    const std::atomic<bool>* const set = flag();
    return set && set->load(std::memory_order_relaxed);
  }
  Result<Generation> result();
  // Whether it was over within so long.
  bool wait(std::chrono::milliseconds patience);
  // Tells the scheduler's thread of a cancel. Set before it is submitted.
  std::function<void()> on_cancel;

  // -- the scheduler's thread
  void deliver(std::vector<Event> tokens);
  void finish(Result<Generation> result);

 private:
  void tell(bool end);

  std::atomic<bool> cancelled_{false};
  mutable std::mutex mutex_;  // of what follows
  std::condition_variable changed_;
  std::deque<Event> tokens_;
  std::optional<Result<Generation>> result_;
  std::function<void()> ready_;
  Status thrown_;                      // by ready_
  int wait_token_ = 0, wait_end_ = 0;  // threads
};

}  // namespace situ
