// A thread of its own for small jobs that had better be done while the program computes something else.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <deque>
#include <functional>
#include <mutex>
#include <vector>

#include "base/process_thread.h"

namespace situ {

// Does jobs one after the other, in the order in which they were given, by a thread that begins with the first one, in
// a child of fork() too. Any thread may call it.
class SideThread {
 public:
  SideThread() = default;
  // Ends after the job that it is at; those behind it are dropped.
  ~SideThread();
  SideThread(const SideThread&) = delete;
  SideThread& operator=(const SideThread&) = delete;

  // The job must not throw, and whoever needs it done must be able to do it himself: where the system has no thread
  // left (false) nobody else does it.
  bool post(std::function<void()> job);

 private:
  void run();

  std::mutex mutex_;  // of what follows
  std::deque<std::function<void()>> jobs_;
  std::vector<ProcessThread> thread_;  // one, once there was a job
  pid_t process_ = 0;                  // that has it
  std::atomic<unsigned> news_{0};
  std::atomic<bool> ended_{false};
};

// Jobs that take long have a thread of their own, so that the others do not wait behind them.
struct SideThreads {
  SideThread quick, slow;
};

}  // namespace situ
