// What the scheduler's thread knows of a model, and of what a step feeds.
#pragma once

#include <algorithm>
#include <exception>
#include <memory>
#include <new>
#include <string>
#include <vector>

#include "requests/scheduler.h"

namespace situ {

struct Scheduler::Lane {
  explicit Lane(Served& of) : served(of) {}
  Served& served;
  std::vector<std::shared_ptr<Job>> waiting, running;  // running: in the order of admission
  Policy policy;
  Stats stats;         // but for what is "now"
  uint64_t steps = 0;  // that were tried
  uint64_t fed = 0;    // the last of them that fed anything
  int64_t ended = 0;
  int failures = 0;                         // attempts in a row that memory ran out in
  bool watched = false;                     // somebody waits for each token of an answer
  bool answers_now = false;                 // the step of this round may give answers a token
  bool idle = false;                        // all that run wait for programs of encoders
  std::vector<std::shared_ptr<Job>> texts;  // whose texts the step of the encoder has that is begun, one of each entry
  double texts_ms = 0;                      // that it has taken
  Policy encoder;                           // of its steps
  int64_t answers() const {
    return std::ranges::count_if(running,
                                 [](const auto& j) { return j->decoding->answers() && !j->decoding->ended(); });
  }
};

// What is thrown fails the request that it was done for, not the process.
inline Status thrown() {
  try {
    throw;
  } catch (const std::bad_alloc&) {
    return Status::error(Code::kNoRoom, "out of memory");
  } catch (const std::exception& e) {
    return Status::error(std::string("an exception: ") + e.what());
  } catch (...) {
    return Status::error("an exception");
  }
}

template <typename Work>
auto or_thrown(const Work& work) -> decltype(work()) {
  try {
    return work();
  } catch (...) {
    return thrown();
  }
}

// A want, or the first tokens of it, that takes part in a step.
struct Scheduler::Picked {
  Job* job;
  Want want;
  bool fed = false;
};

}  // namespace situ
