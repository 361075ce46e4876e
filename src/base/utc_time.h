// The time of day as logs have it.
#pragma once

#include <string>

namespace situ {

// Now: 2026-01-31T12:00:00.000Z
std::string utc_time();

}  // namespace situ
