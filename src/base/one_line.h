// Error messages that quote a file or a text.
#pragma once

#include <string>

#include "base/status.h"

namespace situ {

// A message is one line, whatever a file says: control characters become '?', and of more than 2,000 bytes the middle
// is left out.
inline std::string one_line(std::string text) {
  constexpr size_t kLongest = 2000;
  for (char& c : text)
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = '?';
  if (text.size() > kLongest) text = text.substr(0, kLongest / 2) + " ... " + text.substr(text.size() - kLongest / 2);
  return text;
}

inline Status one_line(const Status& status) {
  return status.is_ok() ? status : Status::error(status.code(), one_line(status.message()));
}

}  // namespace situ
