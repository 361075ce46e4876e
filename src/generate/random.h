// Random numbers of one sequence: those at a position depend on the seed and the position alone, so a sequence draws
// the same numbers whatever runs beside it and however its steps are grouped.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace situ {

// Philox4x32-10: four words of 32 bits out of a counter and a key, ten rounds. Source: Salmon, Moraes, Dror and Shaw,
// "Parallel Random Numbers: As Easy as 1, 2, 3" (2011); known answers in random_test.cc.
std::array<uint32_t, 4> philox(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key);

// Numbers in [0, 1), one for each token id, at one position of the sequence with this seed.
class TokenNumbers {
 public:
  TokenNumbers(uint64_t seed, uint64_t position) : seed_(seed), position_(position) {}
  // The number's first 32 binary digits: at most 2^-32 below it. Cheap when ids come in order.
  double floor(int64_t id);
  // All 53 digits.
  double exact(int64_t id);

 private:
  std::array<uint32_t, 4> words(uint32_t block, uint32_t purpose) const;

  uint64_t seed_, position_;
  int64_t block_ = -1;  // whose words these are, of four ids each
  std::array<uint32_t, 4> words_{};
};

}  // namespace situ
