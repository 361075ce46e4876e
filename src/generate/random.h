// Random numbers of one sequence: those at a position depend on the seed and the position alone, so a sequence draws
// the same numbers whatever runs beside it and however its steps are grouped.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace situ {

// Philox4x32-10: four words of 32 bits out of a counter and a key, ten rounds. Source: Salmon, Moraes, Dror and Shaw,
// "Parallel Random Numbers: As Easy as 1, 2, 3" (2011); known answers in random_test.cc.
std::array<uint32_t, 4> philox(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key);

// Numbers in [0, 1), one for each token id, at one position of the sequence with this seed.
class TokenNumbers {
 public:
  TokenNumbers(uint64_t seed, uint64_t position) : seed_(seed), position_(position) {}
  // The numbers' first 32 binary digits, of ids in rising order: [ids.size()].
  void first_digits(std::span<const uint32_t> ids, std::span<uint32_t> digits) const;
  // A number out of these, at most 2^-32 below it, and all 53 digits of it.
  static double floor(uint32_t digits) { return static_cast<double>(digits) * 0x1p-32; }
  double exact(uint32_t id, uint32_t digits) const;

 private:
  uint64_t seed_, position_;
};

}  // namespace situ
