// How the byte-level alphabet of GPT-2 writes a byte.
#pragma once

#include <string>

namespace situ {

// Printable Latin-1 as itself, the others from U+0100 on, in their order.
inline std::string byte_symbol(int byte) {
  int code = 256, symbol = byte;
  for (int b = 0; b < 256; ++b) {
    const bool printable = (b >= '!' && b <= '~') || (b >= 0xA1 && b <= 0xAC) || b >= 0xAE;
    if (!printable && b == byte) symbol = code;
    code += printable ? 0 : 1;
  }
  if (symbol < 0x80) return std::string(1, static_cast<char>(symbol));
  return {static_cast<char>(0xC0 | symbol >> 6), static_cast<char>(0x80 | (symbol & 0x3F))};
}

}  // namespace situ
