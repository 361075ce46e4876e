// What requests have of a model's state, as it was between two steps: for whoever looks on.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "situ/generation.h"

namespace situ {

struct Picture {
  struct Part {
    int64_t first_slot = 0, length = 0;
    bool shared = false;  // another sequence, or a kept prefix, has these slots too
  };
  struct Holder {
    uint64_t request = 0;     // its number; choices and beams of a request have the same
    const char* state = "";   // "waiting", "preempted", "prompt", "answer"
    int64_t tokens = 0;       // that have slots
    std::vector<Part> parts;  // in the order of the tokens
  };
  Stats stats;
  int64_t bytes_written = 0;
  std::vector<Holder> holders;
};

// Where the scheduler's thread leaves a picture, and others find it. Neither waits for the other.
class PictureFrame {
 public:
  void put(const Stats& stats) {
    const std::lock_guard held(mutex_);
    stats_ = stats;
  }
  // Of the end of the last step.
  Stats stats() const {
    const std::lock_guard held(mutex_);
    return stats_;
  }
  void ask() { wanted_ = true; }
  bool wanted() { return wanted_.exchange(false); }
  void put(std::shared_ptr<const Picture> picture) {
    const std::lock_guard held(mutex_);
    picture_ = std::move(picture);
  }
  // Null: none has been made.
  std::shared_ptr<const Picture> picture() const {
    const std::lock_guard held(mutex_);
    return picture_;
  }

 private:
  std::atomic<bool> wanted_{false};
  mutable std::mutex mutex_;
  std::shared_ptr<const Picture> picture_;
  Stats stats_;
};

}  // namespace situ
