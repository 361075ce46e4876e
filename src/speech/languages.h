// The names of languages that Whisper's vocabularies have tokens of.
#pragma once

#include <string>
#include <string_view>

namespace situ {

// The code that a language has in the vocabulary: of a name ("English", "castilian"), a token ("<|en|>") or a code, in
// any case. What is none of them is given back in small letters.
std::string language_code(std::string_view language);

}  // namespace situ
