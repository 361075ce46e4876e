// A thread of its own for small jobs that are to be done while the program computes something else.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

namespace situ {

// Does jobs one after the other, in the order in which they were given. One thread at a time may call it.
class SideThread {
 public:
  // `beside` false, or no thread left in the system: post() does the job itself.
  explicit SideThread(bool beside = true);
  // Ends after the job that it is at; those behind it are dropped.
  ~SideThread();
  SideThread(const SideThread&) = delete;
  SideThread& operator=(const SideThread&) = delete;

  // Jobs must not throw. They are counted from 1.
  void post(std::function<void()> job);
  size_t posted() const { return posted_; }
  // Returns when so many jobs are done: what they wrote can be read then.
  void wait(size_t jobs);

 private:
  void run();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> jobs_;
  size_t posted_ = 0, done_ = 0;
  bool ended_ = false;
  std::thread thread_;
};

}  // namespace situ
