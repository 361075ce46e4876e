#include "generate/allocation_counter_test.h"

#include <atomic>
#include <cstdlib>
#include <new>

namespace {

std::atomic<int64_t> count = 0, counted = 0, first_to_fail = 0, end_of_failing = 0, failed = 0;
std::atomic<size_t> least_bytes = 0;

}  // namespace

// The one that std::stable_sort takes its buffer with, and gives back by the plain delete.
void* operator new(size_t size, const std::nothrow_t&) noexcept {
  ++count;
  if (size >= least_bytes)
    if (const int64_t number = counted++; number >= first_to_fail && number < end_of_failing) {
      ++failed;
      return nullptr;
    }
  return std::malloc(size > 0 ? size : 1);
}
void* operator new(size_t size) {
  if (void* p = operator new(size, std::nothrow)) return p;
  throw std::bad_alloc();
}
void operator delete(void* p) noexcept { std::free(p); }
void operator delete(void* p, size_t) noexcept { std::free(p); }

namespace situ::testing {

int64_t allocations() { return count; }

int64_t fail_allocations(int64_t first, int64_t how_many, size_t least) {
  end_of_failing = 0;
  least_bytes = least;
  first_to_fail = counted + first;
  end_of_failing = counted + first + how_many;
  return failed.exchange(0);
}

}  // namespace situ::testing
