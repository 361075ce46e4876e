// Random numbers of one sequence: the number at a position depends on the seed and the position alone, so a sequence
// draws the same numbers whatever runs beside it and however its steps are grouped.
#pragma once

#include <array>
#include <cstdint>

namespace situ {

// Philox4x32-10: four words of 32 bits out of a counter and a key, ten rounds. Source: Salmon, Moraes, Dror and Shaw,
// "Parallel Random Numbers: As Easy as 1, 2, 3" (2011); known answers in random_test.cc.
std::array<uint32_t, 4> philox(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key);

// A number in [0, 1), a multiple of 2^-53, for the token at `position` of the sequence with this seed.
double uniform(uint64_t seed, uint64_t position);

}  // namespace situ
