// Counts the allocations of a test program. Its definitions stand in a file of their own, so that the compiler does not
// see them together with calls that it takes for those of the standard library.
#pragma once

#include <cstdint>

namespace situ::testing {

// Calls of operator new so far.
int64_t allocations();

}  // namespace situ::testing
