// How streams wake the one reader of an event loop, with one descriptor for all of them.
#pragma once

#include <cstdint>
#include <mutex>
#include <vector>

namespace situ::python {

// The numbers of streams that have something to poll for. Any thread.
class Wakeups {
 public:
  // Throws std::system_error: the process has no descriptor left.
  Wakeups();
  ~Wakeups();
  Wakeups(const Wakeups&) = delete;
  Wakeups& operator=(const Wakeups&) = delete;

  // Readable from add() to take().
  int descriptor() const { return event_; }
  void add(uint64_t number);
  std::vector<uint64_t> take();

 private:
  const int event_;
  std::mutex mutex_;
  std::vector<uint64_t> numbers_;
};

}  // namespace situ::python
