#include "base/thread_places.h"

#include <unistd.h>

namespace situ {
namespace {

// False: it was in it already.
bool take(int processor, cpu_set_t& taken) {
  if (processor < 0 || processor >= CPU_SETSIZE) return true;
  if (CPU_ISSET(processor, &taken)) return false;
  CPU_SET(processor, &taken);
  return true;
}

}  // namespace

void ThreadPlaces::begin(int thread) {
  done(thread);
  workers_[static_cast<size_t>(thread)].id.store(gettid(), std::memory_order_release);
}

void ThreadPlaces::part() {
  const int here = sched_getcpu();
  cpu_set_t taken;
  const auto each = [&](auto&& visit) {
    for (size_t t = 1; t < workers_.size(); ++t)
      if (!take(workers_[t].processor.load(std::memory_order_relaxed), taken)) visit(workers_[t]);
  };
  CPU_ZERO(&taken);
  take(here, taken);
  bool shared = false;
  each([&](const Worker&) { shared = true; });
  if (!shared || (parted_ != Clock::time_point{} && ms_since(parted_) < kPauseMs)) return;
  const cpu_set_t all = taken;
  CPU_ZERO(&taken);
  take(here, taken);
  each([&](Worker& worker) {
    if (move(worker, all)) parted_ = Clock::now();
  });
}

// Among those that nobody has the kernel chooses, which knows who is idle.
bool ThreadPlaces::move(Worker& worker, const cpu_set_t& taken) {
  const pid_t id = worker.id.load(std::memory_order_acquire);
  if (id == 0 || sched_getaffinity(id, sizeof(worker.allowed), &worker.allowed) != 0) return false;
  cpu_set_t free = worker.allowed;
  for (int p = 0; p < CPU_SETSIZE; ++p)
    if (CPU_ISSET(p, &taken)) CPU_CLR(p, &free);
  if (CPU_COUNT(&free) == 0 || sched_setaffinity(id, sizeof(free), &free) != 0) return false;
  worker.moved.store(true);
  return true;
}

void ThreadPlaces::woken(int thread) {
  Worker& worker = workers_[static_cast<size_t>(thread)];
  if (worker.moved.load(std::memory_order_relaxed) && worker.moved.exchange(false))
    static_cast<void>(sched_setaffinity(0, sizeof(worker.allowed), &worker.allowed));
}

void ThreadPlaces::done(int thread) {
  workers_[static_cast<size_t>(thread)].processor.store(sched_getcpu(), std::memory_order_relaxed);
}

void ThreadPlaces::forget() {
  for (Worker& worker : workers_) {
    worker.id.store(0);
    worker.processor.store(-1);
    worker.moved.store(false);
  }
}

}  // namespace situ
