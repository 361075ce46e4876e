#include "base/random_id.h"

#include "base/random_number.h"

namespace situ {

std::string random_id(std::string prefix) {
  constexpr char kDigits[] = "0123456789abcdef";
  for (int i = 0; i < 2; ++i)
    for (uint64_t bits = random_number(), k = 0; k < 16; ++k, bits >>= 4) prefix += kDigits[bits & 15];
  return prefix;
}

}  // namespace situ
