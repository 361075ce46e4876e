// What the images and sounds of a body will take once they are decoded, by their headers.
#pragma once

#include "serve/bodies.h"
#include "serve/limits.h"

namespace situ::serve {

// An estimate, from above, with the bytes of files below `media_path`. Of what cannot be read nothing is said: whoever
// decodes it does. Fault: an image or a sound beyond its limit.
OrFault<int64_t> bytes_of_media(const Json& body, const Limits& limits, const std::string& media_path);

}  // namespace situ::serve
