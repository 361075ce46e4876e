// Files that people write: keys, configurations.
#pragma once

#include <string>

#include "situ/status.h"

namespace situ::serve {

// The UTF-8 text of a file without its byte order mark. Error: names the file; it cannot be read, or its text is in
// another encoding, which is named where it can be told.
Result<std::string> text_of_file(const std::string& path);

}  // namespace situ::serve
