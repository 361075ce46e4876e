// Error messages that quote a file.
#pragma once

#include <string>

#include "base/status.h"

namespace situ {

// A message is one line, whatever a file says: control characters become '?', and of more than 2,000 bytes the middle
// is left out.
std::string one_line(std::string text);
Status one_line(const Status& status);

}  // namespace situ
