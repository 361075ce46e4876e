#include "base/utc_time.h"

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <ctime>

namespace situ {

std::string utc_time() {
  const auto now = std::chrono::system_clock::now();
  const std::time_t seconds = std::chrono::system_clock::to_time_t(now);
  const int64_t ms = std::chrono::duration_cast<std::chrono::milliseconds>(now.time_since_epoch()).count() % 1000;
  std::tm utc{};
  gmtime_r(&seconds, &utc);
  char time[40], tail[8];
  std::strftime(time, sizeof(time), "%Y-%m-%dT%H:%M:%S", &utc);
  std::snprintf(tail, sizeof(tail), ".%03dZ", static_cast<int>(ms));
  return std::string(time) + tail;
}

}  // namespace situ
