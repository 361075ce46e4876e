// Ends calls of the Rust library early, and knows that it did.
#pragma once

#include <atomic>
#include <utility>

#include "text/owned_text.h"

namespace situ {

// Calls of this thread end when the flag is true, as long as this lives. Null: none does.
class StopOfThread {
 public:
  explicit StopOfThread(const std::atomic<bool>* flag) : former_(std::exchange(now_, flag)) {}
  StopOfThread(const StopOfThread&) = delete;
  StopOfThread& operator=(const StopOfThread&) = delete;
  ~StopOfThread() { now_ = former_; }
  static bool asked() { return now_ && now_->load(std::memory_order_relaxed); }

 private:
  inline static thread_local const std::atomic<bool>* now_ = nullptr;
  const std::atomic<bool>* former_;
};

// Of one call, by the thread that waits for it.
class Stop {
 public:
  // Calls end within milliseconds when the flag is true; null: none does.
  explicit Stop(const std::atomic<bool>* flag) : flag_(flag) {}
  Stop(const Stop&) = delete;
  Stop& operator=(const Stop&) = delete;

  situ_text_stop for_call() const { return {&Stop::asked, this}; }
  // Of a call that failed.
  Status status(const OwnedText& error) const {
    const Status failed = error.status();
    return ended_ ? Status::error(Code::kInterrupted, failed.message()) : failed;
  }

 private:
  static bool asked(const void* stop) {
    const Stop& self = *static_cast<const Stop*>(stop);
    return self.ended_ = StopOfThread::asked() || (self.flag_ && self.flag_->load(std::memory_order_relaxed));
  }

  const std::atomic<bool>* flag_;
  mutable bool ended_ = false;
};

}  // namespace situ
