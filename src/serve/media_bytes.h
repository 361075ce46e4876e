// What the images and sounds of a body will take once they are decoded, by their headers.
#pragma once

#include "serve/json_body.h"
#include "serve/limits.h"
#include "serve/media_files.h"
#include "situ/tokenizer.h"

namespace situ::serve {

// An estimate, from above, without the files themselves. Of what cannot be read nothing is said: whoever decodes it
// does. Refusal: an image or a sound beyond its limit.
OrRefusal<int64_t> bytes_of_media(const Prompt& conversation, const Limits& limits);
// Reads the files that a chat body names. Refusal: a file beyond its limit, or no memory for it.
std::optional<Refusal> read_files(const Json& body, const Limits& limits, MediaFiles& files);

}  // namespace situ::serve
