// Memory by the page: what the runtime asks the operating system for and gives back.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "base/status.h"

namespace situ {

// Gives the whole pages inside [data, data + bytes) of a read-only file map back; the next read loads them again. For
// bytes that have been laid out elsewhere, so that they are not resident twice. Anonymous memory would become zeros.
void release_file_pages(const std::byte* data, int64_t bytes);

// Zeroed memory for weights, in huge pages where the system offers them (fewer TLB misses: each step reads all of
// it). Null: there is no such address space. Pages are touched when they are written.
std::shared_ptr<std::byte> map_weights(int64_t bytes);

// What ends a ReservedMemory.
struct UnmapBytes {
  int64_t bytes = 0;
  void operator()(std::byte* data) const;
};

// Address space, zeros at first, whose pages cost nothing until they are written.
class ReservedMemory {
 public:
  // Error: there is no such address space: "cannot reserve 64 bytes for activations", where these words are `what_for`.
  static Result<ReservedMemory> of(int64_t bytes, const std::string& what_for);
  std::byte* data() const { return data_.get(); }  // null: nothing is reserved
  int64_t bytes() const { return data_.get_deleter().bytes; }

 private:
  std::unique_ptr<std::byte, UnmapBytes> data_;
};

}  // namespace situ
