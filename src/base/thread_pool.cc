#include "base/thread_pool.h"

#include <sched.h>

#include <algorithm>

namespace situ {
namespace {

// About 50 us of PAUSE on current x86: longer than any gap between two kernels of a step, shorter than
// what a person or a scheduler would call burning a core.
constexpr int kSpins = 2000;

inline void pause_cpu() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

// Returns when `word` no longer holds `old`.
template <typename T>
void wait_change(std::atomic<T>& word, T old) {
  for (int i = 0; i < kSpins; ++i) {
    if (word.load(std::memory_order_acquire) != old) return;
    pause_cpu();
  }
  while (word.load(std::memory_order_acquire) == old) word.wait(old, std::memory_order_acquire);
}

int usable_cpus() {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof(set), &set) == 0) return CPU_COUNT(&set);
  return static_cast<int>(std::thread::hardware_concurrency());
}

}  // namespace

void Barrier::wait() {
  if (threads_ == 1) return;
  const unsigned epoch = epoch_.load(std::memory_order_relaxed);
  if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 == threads_) {
    arrived_.store(0, std::memory_order_relaxed);
    epoch_.store(epoch + 1, std::memory_order_release);
    epoch_.notify_all();
  } else {
    wait_change(epoch_, epoch);
  }
}

ThreadPool::ThreadPool(int threads)
    : threads_(threads > 0 ? threads : std::max(1, usable_cpus())), barrier_(threads_) {
  try {
    for (int t = 1; t < threads_; ++t) workers_.emplace_back([this, t] { work(t); });
  } catch (...) {  // the system has no thread left: those that run must end before the exception goes on
    end_workers();
    throw;
  }
}

ThreadPool::~ThreadPool() { end_workers(); }

void ThreadPool::end_workers() {
  stop_.store(true);
  epoch_.fetch_add(1, std::memory_order_release);
  epoch_.notify_all();
  for (std::thread& w : workers_) w.join();
}

void ThreadPool::run(Job job, void* argument) {
  if (threads_ == 1) return job(argument, 0, 1);
  job_ = job;
  argument_ = argument;
  running_.store(threads_ - 1, std::memory_order_relaxed);
  epoch_.fetch_add(1, std::memory_order_release);
  epoch_.notify_all();
  job(argument, 0, threads_);
  for (int left = running_.load(std::memory_order_acquire); left != 0; left = running_.load(std::memory_order_acquire))
    wait_change(running_, left);
}

void ThreadPool::work(int thread) {
  unsigned seen = 0;
  while (true) {
    wait_change(epoch_, seen);
    ++seen;
    if (stop_.load(std::memory_order_acquire)) return;
    job_(argument_, thread, threads_);
    if (running_.fetch_sub(1, std::memory_order_acq_rel) == 1) running_.notify_all();
  }
}

}  // namespace situ
