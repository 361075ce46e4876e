// How rows of D numbers of keys or values are stored. Nodes say it (ops/state_encoding.h), and their type and length
// have been checked against what they say: kernels are told by these.
#pragma once

#include <cstdint>

#include "base/dtype.h"
#include "kernels/params.h"

namespace situ {

enum class RowEncoding : int32_t {
  kPlain,     // [D] of any float type
  kRowScale,  // [D + 4] int8: D integers from -127 to 127, then the float that one of them is worth (situ.EncodeRows)
  kBytes,     // [D] int8, from -128 to 127; what one is worth is known of all rows, of a channel or of the tensor
  kDigits,    // [(D + 1) / 2] uint8: the same of 4 bits, from -8 to 7: two in a byte, the first one low, each plus 8
};

constexpr RowEncoding row_encoding(DType type, int64_t stored, int64_t size) {
  if (type == DType::kU8) return RowEncoding::kDigits;
  if (type != DType::kI8) return RowEncoding::kPlain;
  return stored == size + kRowScaleBytes ? RowEncoding::kRowScale : RowEncoding::kBytes;
}

}  // namespace situ
