// What the images and sounds of a body will take once they are decoded, by their headers.
#pragma once

#include "serve/bodies.h"
#include "serve/limits.h"
#include "serve/media_files.h"

namespace situ::serve {

// An estimate, from above, without the bytes of `files`, which take their own. Of what cannot be read nothing is said:
// whoever decodes it does. Refusal: an image, its file or a sound beyond its limit, or no memory for a file.
OrRefusal<int64_t> bytes_of_media(const Json& body, const Limits& limits, MediaFiles& files);

}  // namespace situ::serve
