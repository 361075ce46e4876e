#include "base/thread_pool.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <new>
#include <string>
#include <system_error>

namespace situ {
namespace {

// About 50 us of PAUSE on current x86: longer than any gap between two kernels of a step, shorter than
// what a person or a scheduler would call burning a core.
constexpr int kSpins = 2000;
// After kInVain waits in a row that ended in sleep nobody spins, but one in kTries.
constexpr int kInVain = 4, kTries = 32;

inline void pause_cpu() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

// CPUs that the quotas of this process's control groups amount to, rounded up; 0: none is set. A group's quota holds
// for the groups below it. (Version 2: cpu.max holds "quota period" or "max period"; version 1: two files.)
int quota_cpus() {
  int least = 0;
  auto limit = [&](double quota, double period) {
    if (quota <= 0 || period <= 0) return;
    const int cpus = std::max(1, static_cast<int>(std::ceil(quota / period)));
    least = least == 0 ? cpus : std::min(least, cpus);
  };
  std::ifstream groups("/proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {
    const size_t name = line.find(':'), path = name == std::string::npos ? name : line.find(':', name + 1);
    if (path == std::string::npos) continue;
    const std::string controllers = line.substr(name + 1, path - name - 1);
    const bool second = controllers.empty(), first = ("," + controllers + ",").find(",cpu,") != std::string::npos;
    if (!second && !first) continue;
    // Within a container the path may be that of the host: its root is the container's group.
    for (std::string group = line.substr(path + 1);;
         group.resize(group.rfind('/') == std::string::npos ? 0 : group.rfind('/'))) {
      const std::string folder = "/sys/fs/cgroup" + std::string(second ? "" : "/cpu") + (group == "/" ? "" : group);
      double quota = 0, period = 0;
      if (second)
        std::ifstream(folder + "/cpu.max") >> quota >> period;
      else if (std::ifstream(folder + "/cpu.cfs_quota_us") >> quota)
        std::ifstream(folder + "/cpu.cfs_period_us") >> period;
      limit(quota, period);
      if (group.empty() || group == "/") break;
    }
  }
  return least;
}

int usable_cpus() {
  cpu_set_t set;
  const int cpus = sched_getaffinity(0, sizeof(set), &set) == 0 ? CPU_COUNT(&set)
                                                                : static_cast<int>(std::thread::hardware_concurrency());
  const int quota = quota_cpus();
  return std::max(1, quota > 0 ? std::min(quota, cpus) : cpus);
}

// More threads than CPUs: who spins keeps the one that is waited for from running (SmolLM2 on 2 CPUs with 3, 4 and 8
// threads: 12, 11 and 28 ms a token; 8.5, 6.7 and 4.1 ms without).
int spins(int threads) { return threads > 1 && threads > usable_cpus() ? 0 : kSpins; }

}  // namespace

template <typename T>
bool Waiting::until_changed(std::atomic<T>& word, T old) {
  const int slept = slept_.load(std::memory_order_relaxed);
  const int spins = slept < kInVain || slept == kTries ? spins_ : 0;
  for (int i = 0; i < spins; ++i) {
    if (word.load(std::memory_order_acquire) != old) {
      if (slept != 0 && i > 0) slept_.store(0, std::memory_order_relaxed);
      return false;
    }
    pause_cpu();
  }
  bool sleeps = false;
  for (; word.load(std::memory_order_acquire) == old; sleeps = true) word.wait(old, std::memory_order_acquire);
  if (sleeps) slept_.store(slept < kTries ? slept + 1 : kInVain, std::memory_order_relaxed);
  return sleeps;
}

void Barrier::wait() {
  if (threads_ == 1) return;
  const unsigned epoch = epoch_.load(std::memory_order_relaxed);
  if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 == threads_) {
    arrived_.store(0, std::memory_order_relaxed);
    epoch_.store(epoch + 1, std::memory_order_release);
    epoch_.notify_all();
  } else {
    if (waiting_.until_changed(epoch_, epoch)) sleeps_.fetch_add(1, std::memory_order_relaxed);
  }
}

ThreadPool::ThreadPool(int threads)
    : threads_(threads > 0 ? threads : usable_cpus()),
      for_job_(spins(threads_)),
      for_workers_(for_job_.spins()),
      places_(threads_),
      barrier_(threads_, for_job_.spins()) {
  begin_workers();
}

ThreadPool::~ThreadPool() { end_workers(); }

void ThreadPool::begin_workers() {
  workers_.clear();
  barrier_.forget();
  places_.forget();
  epoch_ = 0;
  stop_ = false;
  process_ = getpid();
  try {
    for (int t = 1; t < threads_; ++t) workers_.emplace_back([this, t] { work(t); });
  } catch (...) {  // the system has no thread left: those that run must end before the exception goes on
    end_workers();
    throw;
  }
}

void ThreadPool::end_workers() {
  stop_.store(true);
  epoch_.fetch_add(1, std::memory_order_release);
  epoch_.notify_all();
  workers_.clear();  // which joins them
}

void ThreadPool::run(Job job, void* argument) {
  const std::lock_guard turn(turn_);
  if (threads_ == 1) return job(argument, 0, 1);
  if (getpid() != process_) try {
      begin_workers();
    } catch (const std::system_error&) {
      throw std::bad_alloc();  // what callers know
    }
  places_.part();
  job_ = job;
  argument_ = argument;
  running_.store(threads_ - 1, std::memory_order_relaxed);
  epoch_.fetch_add(1, std::memory_order_release);
  epoch_.notify_all();
  job(argument, 0, threads_);
  for (int left = running_.load(std::memory_order_acquire); left != 0; left = running_.load(std::memory_order_acquire))
    for_workers_.until_changed(running_, left);
}

void ThreadPool::work(int thread) {
  unsigned seen = 0;
  places_.begin(thread);
  while (true) {
    for_job_.until_changed(epoch_, seen);
    ++seen;
    if (stop_.load(std::memory_order_acquire)) return;
    places_.woken(thread);
    job_(argument_, thread, threads_);
    places_.done(thread);
    if (running_.fetch_sub(1, std::memory_order_acq_rel) == 1) running_.notify_all();
  }
}

}  // namespace situ
