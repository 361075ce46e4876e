#include "generate/random.h"

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

std::array<uint32_t, 4> TokenNumbers::words(uint32_t block, uint32_t purpose) const {
  const auto low = [](uint64_t x) { return static_cast<uint32_t>(x); };
  const auto high = [](uint64_t x) { return static_cast<uint32_t>(x >> 32); };
  return philox({block, low(position_), high(position_), purpose}, {low(seed_), high(seed_)});
}

double TokenNumbers::floor(int64_t id) {
  if (id / 4 != block_) {
    block_ = id / 4;
    words_ = words(static_cast<uint32_t>(block_), 0);
  }
  return static_cast<double>(words_[static_cast<size_t>(id % 4)]) * 0x1p-32;
}

double TokenNumbers::exact(int64_t id) {
  const uint32_t rest = words(static_cast<uint32_t>(id), 1)[0] >> 11;
  return floor(id) + static_cast<double>(rest) * 0x1p-53;
}

}  // namespace situ
