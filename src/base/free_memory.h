// How much memory this process may still take.
#pragma once

#include <cstdint>

namespace situ {

// Bytes: what the machine has available (MemAvailable), and what the limits of the process's control groups leave
// (versions 1 and 2). Where nothing says so: INT64_MAX.
int64_t free_memory();

}  // namespace situ
