// Persistent workers. One job at a time; a job is one function that every thread enters.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <vector>

#include "base/process_thread.h"
#include "base/thread_places.h"

namespace situ {

// How threads wait for one word: they spin a little, then sleep, so that a descheduled partner does not burn the other
// core's time slice. After a few waits in a row that ended in sleep they sleep at once, and see now and then whether
// spinning helps again: two threads on one CPU, which other processes leave them, would spin against each other at
// every barrier (step_memory_test: 19 s alone; beside a busy loop 72 s, 32 s so).
class Waiting {
 public:
  explicit Waiting(int spins) : spins_(spins) {}
  int spins() const { return spins_; }
  // Returns when `word` no longer holds `old`; whether it slept until then.
  template <typename T>
  bool until_changed(std::atomic<T>& word, T old);

 private:
  const int spins_;
  std::atomic<int> slept_{0};  // waits in a row
};

// A line of the cache: what one thread writes and others spin on has one of its own.
constexpr size_t kCacheLine = 64;

// Threads meet here between the kernel calls of a job.
class Barrier {
 public:
  Barrier(int threads, int spins) : threads_(threads), waiting_(spins) {}
  void wait();
  // Nobody is here: the threads that were are those of another process.
  void forget() { arrived_.store(0, std::memory_order_relaxed); }
  // How often a thread has gone to sleep here so far.
  int sleeps() const { return sleeps_.load(std::memory_order_relaxed); }

 private:
  const int threads_;
  Waiting waiting_;
  std::atomic<int> sleeps_{0};
  alignas(kCacheLine) std::atomic<int> arrived_{0};
  alignas(kCacheLine) std::atomic<unsigned> epoch_{0};
};

// Any thread may call run(); jobs of several threads are run one after the other. In a child of fork() workers begin
// anew with the first job, as long as the parent ran none when it forked.
class ThreadPool {
 public:
  static constexpr int kMost = 1024;
  // threads <= 0: one per CPU that this process may use (sched_getaffinity, quotas of control groups).
  explicit ThreadPool(int threads = 0);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int threads() const { return threads_; }
  Barrier& barrier() { return barrier_; }
  // Work in parts looks at these flags between them and ends early when one is true. Null: none. They must live until
  // others are given.
  void interrupt_when(const std::atomic<bool>* flag, const std::atomic<bool>* other = nullptr) {
    interrupt_[0] = flag;
    interrupt_[1] = other;
  }
  bool interrupted() const {
    const auto is_set = [](const std::atomic<bool>* flag) { return flag && flag->load(std::memory_order_relaxed); };
    return is_set(interrupt_[0].load(std::memory_order_relaxed)) ||
           is_set(interrupt_[1].load(std::memory_order_relaxed));
  }
  using Job = void (*)(void* argument, int thread, int threads);
  // Calls job(argument, t, threads()) on every thread (the caller is thread 0); returns when all did.
  void run(Job job, void* argument);
  template <typename F>
  void run(F&& f) {
    run([](void* p, int t, int n) { (*static_cast<std::remove_reference_t<F>*>(p))(t, n); }, &f);
  }

 private:
  void begin_workers();
  void work(int thread);
  void end_workers();

  const int threads_;
  std::mutex turn_;  // of who runs a job
  Waiting for_job_, for_workers_;
  ThreadPlaces places_;
  Barrier barrier_;
  Job job_ = nullptr;
  void* argument_ = nullptr;
  alignas(kCacheLine) std::atomic<unsigned> epoch_{0};
  alignas(kCacheLine) std::atomic<int> running_{0};
  alignas(kCacheLine) std::atomic<bool> stop_{false};
  std::atomic<const std::atomic<bool>*> interrupt_[2] = {};
  pid_t process_;  // of the workers
  std::vector<ProcessThread> workers_;
};

}  // namespace situ
