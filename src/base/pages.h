// Memory by the page: what the runtime asks the operating system for and gives back.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

namespace situ {

// Gives the whole pages inside [data, data + bytes) of a read-only file map back; the next read loads them again. For
// bytes that have been laid out elsewhere, so that they are not resident twice. Anonymous memory would become zeros.
void release_file_pages(const std::byte* data, int64_t bytes);

// Zeroed memory for weights, in huge pages where the system offers them (fewer TLB misses: each step reads all of
// it). Null: there is no such address space. Pages are touched when they are written.
std::shared_ptr<std::byte> map_weights(int64_t bytes);

}  // namespace situ
