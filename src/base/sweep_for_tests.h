#pragma once
// SITU_SWEEP=1, which `make test-all` sets: tests take all of what `make test` takes a part of. tests/sweep.py is the
// same for Python.
#include <cstdint>
#include <cstdlib>

namespace situ {

inline bool sweeping() { return std::getenv("SITU_SWEEP") != nullptr; }

// How far it is from one case to the next, where one in `part` is enough for every change.
inline int64_t sweep_stride(int64_t part) { return sweeping() ? 1 : part; }

}  // namespace situ
