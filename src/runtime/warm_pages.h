// What the first step would wait for, brought into memory while nobody computes.
#pragma once

#include <atomic>
#include <cstddef>
#include <span>
#include <vector>

#include "base/process_thread.h"

namespace situ {

// A thread that runs where nobody else wants the processor maps the pages of weights. The first request of a server
// that reads a saved pack waited for 1,100 faults, a quarter of its time to the first token (SmolLM2-135M).
class WarmPages {
 public:
  WarmPages() = default;
  ~WarmPages() { stop(); }
  WarmPages(const WarmPages&) = delete;
  WarmPages& operator=(const WarmPages&) = delete;

  // Once. The bytes must live until stop().
  void begin(std::vector<std::span<const std::byte>> bytes);
  void stop();

 private:
  std::atomic<bool> stops_{false};
  ProcessThread thread_;
};

}  // namespace situ
