#include "base/random_number.h"

#include <sys/random.h>

#include <cerrno>
#include <system_error>

namespace situ {

uint64_t random_number() {
  uint64_t number = 0;
  // So few bytes come whole, or not at all where a signal came while the generator was being seeded.
  while (getrandom(&number, sizeof(number), 0) != sizeof(number))
    if (errno != EINTR) throw std::system_error(errno, std::generic_category(), "getrandom");
  return number;
}

}  // namespace situ
