// Ends calls of the Rust library early, and knows that it did.
#pragma once

#include <atomic>

#include "text/owned_text.h"

namespace situ {

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
    return self.ended_ = self.flag_ && self.flag_->load(std::memory_order_relaxed);
  }

  const std::atomic<bool>* flag_;
  mutable bool ended_ = false;
};

}  // namespace situ
