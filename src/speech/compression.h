// How much a text repeats itself.
#pragma once

#include <string_view>

namespace situ {

// Bytes of the text / bytes of it compressed by zlib at its default level; 0 for no text. Source: openai/whisper,
// utils.py.
double compression_ratio(std::string_view text);

}  // namespace situ
