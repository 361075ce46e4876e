// Numbers that nobody can foretell: seeds, names of requests.
#pragma once

#include <cstdint>

namespace situ {

// 64 bits of the system's generator, by getrandom(2). Not std::random_device: GCC 12's calls arc4random, for which a
// program that carries libstdc++ would want glibc 2.36. Throws std::system_error where the system has no generator.
uint64_t random_number();

}  // namespace situ
