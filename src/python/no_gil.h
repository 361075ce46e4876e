// Threads that have let go of Python's lock (GIL) to compute, and the end of the program.
#pragma once

#include <nanobind/nanobind.h>

#include <atomic>
#include <memory>

namespace situ::python {

struct Outside;  // the threads that are outside of the lock

// Lets go of Python's lock as long as it lives. Once the program ends, Python kills each thread but its last one where
// that thread asks for the lock, in the midst of functions that cannot be left so. Such a thread sleeps here instead,
// outside of the lock, until the process is no more.
class NoGil {
 public:
  NoGil();
  ~NoGil();
  NoGil(const NoGil&) = delete;
  NoGil& operator=(const NoGil&) = delete;

 private:
  Outside& outside_;
  PyThreadState* state_ = nullptr;
};

// True while the program ends: what threads compute, and what they have asked for, ends.
std::shared_ptr<const std::atomic<bool>> ending();

// Ends what other threads compute, and waits until they sleep: libraries that the process takes down must not be used.
// For the last thread, which holds the lock.
void end_other_threads();
// Then calls of this thread work again.
void begin_last_calls();

}  // namespace situ::python
