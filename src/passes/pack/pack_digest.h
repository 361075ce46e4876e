// Digests of long byte ranges, to tell whether weights are the ones that were packed: XXH3 of 128 bits
// (https://github.com/Cyan4973/xxHash), keyed. It is no signature: the secret keeps the maker of a model file, who does
// not know it, from preparing weights whose digest is that of another model's.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "base/thread_pool.h"

namespace situ {

struct Digest {
  uint64_t low = 0, high = 0;
  friend bool operator==(const Digest&, const Digest&) = default;
};

using DigestSecret = std::array<std::byte, 192>;
// From the system's random numbers; false: there are none.
bool fill_random(DigestSecret& secret);

// Digest of the digests of blocks of 1 MiB, which the threads of `pool` share; null: the caller alone, same result.
// `file_pages`: the bytes lie in a read-only file map, whose pages are given back on the way.
Digest digest(ThreadPool* pool, const DigestSecret& secret, const std::byte* data, int64_t bytes,
              bool file_pages = false);

// Unkeyed, against accidents: `seed` chains the checksums of several ranges.
uint64_t checksum(const void* data, size_t bytes, uint64_t seed = 0);

}  // namespace situ
