// Where the blocks of a step's activations lie.
#pragma once

#include <cstdint>
#include <vector>

#include "place/plan.h"

namespace situ {

// Gives every block that lives an offset, and returns the bytes of all together: greedily by size, each at the lowest offset that
// is free during its life.
int64_t pack_arena(std::vector<Root>& roots);

}  // namespace situ
