// Integers that the host writes into a step's inputs: token ids, positions, what it computes of lengths.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/dtype.h"

namespace situ {

constexpr bool host_writes(DType type) { return type == DType::kI64 || type == DType::kI32 || type == DType::kBool; }

// Element i of what begins at `at`, of a type that the host writes.
inline void write_integer(std::byte* at, DType type, int64_t i, int64_t x) {
  if (type == DType::kI32)
    reinterpret_cast<int32_t*>(at)[i] = static_cast<int32_t>(x);
  else if (type == DType::kBool)
    reinterpret_cast<uint8_t*>(at)[i] = x != 0;
  else
    reinterpret_cast<int64_t*>(at)[i] = x;
}

}  // namespace situ
