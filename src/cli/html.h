// Pieces of pages in HTML.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace situ::cli {

// Text as HTML has it between tags and in attributes in double quotes: no character of it is markup. Control characters
// and what is not UTF-8 are spelled out (one_line); of more than 400 bytes the middle is left out.
std::string escaped(std::string_view text);
// <code>, with a direction of its own: a name may have characters that turn the line around.
std::string code(std::string_view text);

// "8,192"
std::string grouped(int64_t number);
// A number of at most 4 decimals, for positions in pictures: "12.5".
std::string decimal(double number);
// 100 * part / whole, or 0.
double percent(double part, double whole);

}  // namespace situ::cli
