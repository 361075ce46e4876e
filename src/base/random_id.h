// Names that nobody has given yet.
#pragma once

#include <string>

namespace situ {

// `prefix` and 32 hexadecimal digits of random_number().
std::string random_id(std::string prefix);

}  // namespace situ
