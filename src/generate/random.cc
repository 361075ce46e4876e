#include "generate/random.h"

#include "generate/call_kernel.h"

namespace situ {

std::array<uint32_t, 4> philox(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key) {
  constexpr uint64_t kMultipliers[2] = {0xD2511F53, 0xCD9E8D57};
  constexpr uint32_t kKeySteps[2] = {0x9E3779B9, 0xBB67AE85};  // golden ratio, sqrt(3) - 1
  for (int round = 0; round < 10; ++round) {
    const uint64_t first = kMultipliers[0] * counter[0], second = kMultipliers[1] * counter[2];
    counter = {static_cast<uint32_t>(second >> 32) ^ counter[1] ^ key[0], static_cast<uint32_t>(second),
               static_cast<uint32_t>(first >> 32) ^ counter[3] ^ key[1], static_cast<uint32_t>(first)};
    key[0] += kKeySteps[0];
    key[1] += kKeySteps[1];
  }
  return counter;
}

// By the kernel, which has many counters at once.
void TokenNumbers::first_digits(std::span<const uint32_t> ids, std::span<uint32_t> digits) const {
  const View x = row_view(ids.data(), DType::kU32, static_cast<int64_t>(ids.size())),
             y = row_view(digits.data(), DType::kU32, static_cast<int64_t>(ids.size()));
  const RandomWordsParams params{seed_, position_};
  call_kernel(kernels().random_words, x, {&y, 1}, &params);
}

double TokenNumbers::exact(uint32_t id, uint32_t digits) const {
  const auto low = [](uint64_t x) { return static_cast<uint32_t>(x); };
  const auto high = [](uint64_t x) { return static_cast<uint32_t>(x >> 32); };
  const uint32_t rest = philox({id, low(position_), high(position_), 1}, {low(seed_), high(seed_)})[0] >> 11;
  return floor(digits) + static_cast<double>(rest) * 0x1p-53;
}

}  // namespace situ
