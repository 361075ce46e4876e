// Guesses how a text goes on by what followed its last words when they came before (A. Saxena, Prompt Lookup Decoding,
// 2023).
#pragma once

#include <cstdint>
#include <span>

namespace situ {

// At most `most` tokens of what followed the latest earlier occurrence of the last tokens of `text`: of three, else of
// two. Empty: they are new.
std::span<const int64_t> lookup_prompt(std::span<const int64_t> text, int64_t most);

}  // namespace situ
