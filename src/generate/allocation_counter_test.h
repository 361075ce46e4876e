// Counts the allocations of a test program, and makes some fail. Its definitions stand in a file of their own, so that
// the compiler does not see them together with calls that it takes for those of the standard library.
#pragma once

#include <cstddef>
#include <cstdint>

namespace situ::testing {

// Calls of operator new so far.
int64_t allocations();

// Of the calls of operator new from here on, number `first` and those behind it fail, `count` of them; the next call is
// number 0. Those of less than `least` bytes do not count, and do not fail. Returns how many have failed since the last
// call of this function.
int64_t fail_allocations(int64_t first, int64_t count, size_t least = 0);

}  // namespace situ::testing
