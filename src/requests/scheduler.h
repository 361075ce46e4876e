// The one loop that feeds tokens to engines. Its thread admits requests, plans a step of those that run, runs it, lets
// their decodings choose on the pool, and delivers.
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "base/process_thread.h"
#include "base/side_thread.h"
#include "base/thread_pool.h"
#include "requests/job.h"
#include "requests/policy.h"
#include "situ/generation.h"

namespace situ {

// Any thread may call it. In a child of fork() the thread begins anew, as long as the parent's had nothing to do when
// it forked.
class Scheduler {
 public:
  // `pool` must outlive it.
  explicit Scheduler(ThreadPool& pool);
  ~Scheduler();
  Scheduler(const Scheduler&) = delete;
  Scheduler& operator=(const Scheduler&) = delete;

  // A model whose requests it takes, until remove(), which ends those that there are.
  void add(Served& served);
  void remove(Served& served);

  // Never waits for a step. Error kBusy: Served::queue_limit requests wait.
  Result<std::shared_ptr<Job>> submit(std::unique_ptr<Decoding> decoding, Treatment treatment);
  // The same, whatever the queue holds: for parts of something that was let in.
  std::shared_ptr<Job> submit_part(std::unique_ptr<Decoding> decoding, Treatment treatment);
  // As it is now, or, during a step, as it was at the end of the one before. Nobody waits for a step.
  Stats stats(Served& served);
  // How things stood between two steps, and asks for another look, which the thread takes after the step that it is at.
  // Nobody waits for it. Null: nobody has asked before.
  std::shared_ptr<const Picture> picture(Served& served);

  // Returns work(), called between two steps: by this thread, if the scheduler's has nothing to do. For what requests
  // are kept by: it computes nothing, and waits for nothing. Whatever takes time is a request.
  template <typename Work>
  auto call(Work&& work) -> decltype(work()) {
    std::optional<decltype(work())> result;
    std::exception_ptr thrown;
    const auto run = [&] {
      try {
        result.emplace(work());
      } catch (...) {
        thrown = std::current_exception();
      }
    };
    call_by_thread([](void* p) { (*static_cast<decltype(run)*>(p))(); },
                   const_cast<void*>(static_cast<const void*>(&run)));
    if (thrown) std::rethrow_exception(thrown);
    return *std::move(result);
  }
  // Slots are given back by the scheduler's thread.
  struct Discarded {
    Strand strand;
    std::unique_ptr<Discarded> next;
  };
  void discard(std::unique_ptr<Discarded> strand);

  // Small jobs beside steps: which tokens a grammar lets come next.
  SideThreads& beside() { return beside_; }

 private:
  struct Lane;
  struct Picked;
  struct Call {
    void (*run)(void*) = nullptr;
    void* argument = nullptr;
    Call* next = nullptr;
    std::atomic<bool> done{false};
  };
  // What threads meet in; a child of fork() has a new one.
  struct Meeting {
    std::mutex mutex;
    std::condition_variable changed;
    std::vector<std::shared_ptr<Job>> submitted;
    Call *first_call = nullptr, *last_call = nullptr;
    std::unique_ptr<Discarded> discarded;
    bool news = false, stop = false;  // news: somebody has cancelled, or asked for a look
  };

  void call_by_thread(void (*run)(void*), void* argument);
  Meeting& meet();
  void work();
  Call* collect(Meeting& meeting, bool own_thread);
  void note_cancel();
  void wake();
  static Stats stats_of(const Lane& lane);
  static void look(const Lane& lane);

  Lane& lane_of(const Served& served);
  void step(Lane& lane);
  void sweep(Lane& lane);
  void go_on(Lane& lane, Clock::time_point until);
  void admit(Lane& lane, Clock::time_point until);
  bool begin(Lane& lane, Job& job, Clock::time_point until);
  void give_up(Lane& lane, size_t running);
  void begin_round();
  bool is_awaited(size_t lane) const;
  bool fits(const Lane& lane, Job& job) const;
  bool ask(Lane& lane, std::vector<Picked>& answers, std::vector<Picked>& prompts);
  void pick_prompts(Lane& lane, std::vector<Picked>& prompts, int64_t answers,
                    const std::function<void(Picked, bool)>& add);
  std::vector<std::vector<Picked>> pick(Lane& lane);
  void run(Lane& lane, std::vector<Picked>& group);
  Status run_once(Served& served, std::span<Picked> group);
  void take(std::span<Picked> group);
  void gather_texts(Lane& lane);
  void step_texts(Lane& lane);
  Result<bool> run_texts(Lane& lane, size_t first, size_t count, Clock::time_point until);
  static void drop_texts(Lane& lane);
  void make_room(Lane& lane, const Picked& refused);
  void settle(Lane& lane);
  void conclude(Lane& lane, Job& job);
  void conclude_ended(Lane& lane, std::vector<std::shared_ptr<Job>>& jobs);
  void end_all(Lane& lane);
  void stepping(std::vector<Job*> jobs);

  ThreadPool& pool_;
  SideThreads beside_;
  std::mutex start_mutex_;
  pid_t process_ = 0;  // that has the thread
  std::unique_ptr<Meeting> meeting_;
  // Who has it may touch engines and sequences: the scheduler's thread while it works, or a caller while it does not.
  std::mutex turn_;
  std::vector<std::unique_ptr<Lane>> lanes_;
  size_t first_fed_ = 0;       // whose prompts the round feeds first
  Policy::Budget budget_;      // of one step of each model
  std::vector<size_t> parts_;  // of a step: the first pick of each request
  std::atomic<uint64_t> submitted_{0};
  std::mutex stepping_mutex_;
  std::vector<Job*> stepping_;  // those that take part in what runs
  std::atomic<bool> abort_{false};
  std::vector<ProcessThread> thread_;  // one, once it was needed
};

}  // namespace situ
