#include "passes/pack/pack_digest.h"

#define XXH_INLINE_ALL
#include <sys/random.h>
#include <xxhash.h>

#include <algorithm>
#include <vector>

#include "base/pages.h"

namespace situ {
namespace {

constexpr int64_t kBlock = int64_t{1} << 20;
constexpr int64_t kGroup = 32;  // blocks between two returns of pages: what is resident at a time

static_assert(std::tuple_size_v<DigestSecret> >= XXH3_SECRET_SIZE_MIN);

Digest keyed(const DigestSecret& secret, const void* data, size_t bytes) {
  const XXH128_hash_t h = XXH3_128bits_withSecret(data, bytes, secret.data(), secret.size());
  return {h.low64, h.high64};
}

}  // namespace

bool fill_random(DigestSecret& secret) {
  return getrandom(secret.data(), secret.size(), 0) == static_cast<ssize_t>(secret.size());
}

Digest digest(ThreadPool* pool, const DigestSecret& secret, const std::byte* data, int64_t bytes, bool file_pages) {
  const int64_t count = (bytes + kBlock - 1) / kBlock;
  std::vector<Digest> blocks(static_cast<size_t>(count));
  auto share = [&](int64_t first, int64_t last, int t, int n) {
    for (int64_t b = first + t; b < last; b += n)
      blocks[static_cast<size_t>(b)] =
          keyed(secret, data + b * kBlock, static_cast<size_t>(std::min(kBlock, bytes - b * kBlock)));
  };
  for (int64_t first = 0; first < count; first += kGroup) {
    const int64_t last = std::min(first + kGroup, count), end = std::min(last * kBlock, bytes);
    if (pool && last - first > 1)
      pool->run([&](int t, int n) { share(first, last, t, n); });
    else
      share(first, last, 0, 1);
    if (file_pages) release_file_pages(data + first * kBlock, end - first * kBlock);
  }
  return keyed(secret, blocks.data(), blocks.size() * sizeof(Digest));
}

uint64_t checksum(const void* data, size_t bytes, uint64_t seed) { return XXH3_64bits_withSeed(data, bytes, seed); }

}  // namespace situ
