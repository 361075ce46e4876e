// How rows of D numbers of keys or values are stored: what the compiler (ops/state_encoding.h) tells kernels. A row of
// bytes does not say itself what it is.
#pragma once

#include <cstdint>

namespace situ {

enum class RowEncoding : int32_t {
  kPlain,     // [D] of any float type
  kRowScale,  // [D + 4] int8: D integers from -127 to 127, then the float that one of them is worth: the row's largest
              // magnitude / 127
  kBytes,     // [D] int8, from -128 to 127; what one is worth is known of all rows, of a channel or of the tensor
  kDigits,    // [(D + 1) / 2] uint8: the same of 4 bits, from -8 to 7: two in a byte, the first one low, each plus 8
};

constexpr int64_t kRowScaleBytes = 4;

}  // namespace situ
