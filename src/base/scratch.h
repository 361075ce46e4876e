// Memory that the threads of a pool work in.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

namespace situ {

// A part of `bytes` for each thread, 64-byte aligned. Not zeroed: pages that no thread touches take no memory.
class Scratch {
 public:
  Scratch(int64_t bytes, int threads)
      : stride_((bytes + 63) / 64 * 64),
        memory_(std::make_unique_for_overwrite<std::byte[]>(
            static_cast<size_t>(stride_) * static_cast<size_t>(threads) + 64)),
        begin_(memory_.get() + (64 - reinterpret_cast<uintptr_t>(memory_.get()) % 64) % 64) {}

  std::byte* of(int thread) { return begin_ + thread * stride_; }

 private:
  int64_t stride_;
  std::unique_ptr<std::byte[]> memory_;
  std::byte* begin_;
};

}  // namespace situ
