// The flag that ends what a thread asks for. A request takes it along: whoever computes for the request looks at it.
#pragma once

#include <atomic>
#include <memory>
#include <utility>

namespace situ {

using SharedFlag = std::shared_ptr<const std::atomic<bool>>;

// Of this thread; null: none.
inline SharedFlag& thread_flag() {
  static thread_local SharedFlag flag;
  return flag;
}

// The flag of this thread, or, without one, `otherwise`, that of the model.
inline const std::atomic<bool>* thread_flag_or(const std::atomic<bool>* otherwise) {
  const SharedFlag& own = thread_flag();
  return own ? own.get() : otherwise;
}

// Gives this thread another flag as long as it lives.
class ThreadFlag {
 public:
  explicit ThreadFlag(SharedFlag flag) : former_(std::exchange(thread_flag(), std::move(flag))) {}
  ~ThreadFlag() { thread_flag() = std::move(former_); }
  ThreadFlag(const ThreadFlag&) = delete;
  ThreadFlag& operator=(const ThreadFlag&) = delete;

 private:
  SharedFlag former_;
};

}  // namespace situ
