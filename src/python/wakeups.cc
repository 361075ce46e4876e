#include "python/wakeups.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>
#include <utility>

namespace situ::python {

Wakeups::Wakeups() : event_(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {
  if (event_ < 0) throw std::system_error(errno, std::generic_category(), "eventfd");
}

Wakeups::~Wakeups() { close(event_); }

void Wakeups::add(uint64_t number) {
  const std::lock_guard held(mutex_);
  numbers_.push_back(number);
  const uint64_t one = 1;
  if (numbers_.size() == 1) static_cast<void>(!write(event_, &one, sizeof(one)));
}

std::vector<uint64_t> Wakeups::take() {
  const std::lock_guard held(mutex_);
  uint64_t count = 0;
  static_cast<void>(!read(event_, &count, sizeof(count)));
  return std::exchange(numbers_, {});
}

}  // namespace situ::python
