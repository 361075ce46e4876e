// A thread that is joined in the process that began it, and nowhere else.
#pragma once

#include <unistd.h>

#include <memory>
#include <thread>
#include <utility>

namespace situ {

// A child of fork() has the objects of its parent, but none of its threads: to join one would wait for ever. What is
// left of it there is forgotten.
class ProcessThread {
 public:
  ProcessThread() = default;
  // Throws std::system_error: the system has no thread left.
  template <typename Work>
  explicit ProcessThread(Work&& work)
      : thread_(std::make_unique<std::thread>(std::forward<Work>(work))), process_(getpid()) {}
  ProcessThread(ProcessThread&&) noexcept = default;
  ProcessThread& operator=(ProcessThread&& other) noexcept {
    join();
    thread_ = std::move(other.thread_);
    process_ = other.process_;
    return *this;
  }
  ~ProcessThread() { join(); }

  // Waits for its end, where it runs. Once.
  void join() {
    if (!thread_) return;
    if (getpid() == process_)
      thread_->join();
    else
      static_cast<void>(thread_.release());  // no destructor: it is one that was not joined
    thread_.reset();
  }

 private:
  std::unique_ptr<std::thread> thread_;
  pid_t process_ = 0;
};

}  // namespace situ
