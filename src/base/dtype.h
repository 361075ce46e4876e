// Element types, numbered as in onnx.proto TensorProto.DataType so that files need no translation.
#pragma once

#include <cstdint>

namespace situ {

enum class DType : uint8_t {
  kNone = 0,
  kF32 = 1,
  kU8 = 2,
  kI8 = 3,
  kU16 = 4,
  kI16 = 5,
  kI32 = 6,
  kI64 = 7,
  kString = 8,
  kBool = 9,
  kF16 = 10,
  kF64 = 11,
  kU32 = 12,
  kU64 = 13,
  kC64 = 14,
  kC128 = 15,
  kBF16 = 16,
  kF8E4M3FN = 17,
  kF8E4M3FNUZ = 18,
  kF8E5M2 = 19,
  kF8E5M2FNUZ = 20,
  kU4 = 21,
  kI4 = 22,
  kF4E2M1 = 23,
  kF8E8M0 = 24,
  kU2 = 25,
  kI2 = 26,
};

// Bits of one element; 0 for none and string (no fixed size).
constexpr int dtype_bits(DType t) {
  switch (t) {
    case DType::kU2:
    case DType::kI2:
      return 2;
    case DType::kU4:
    case DType::kI4:
    case DType::kF4E2M1:
      return 4;
    case DType::kU8:
    case DType::kI8:
    case DType::kBool:
    case DType::kF8E4M3FN:
    case DType::kF8E4M3FNUZ:
    case DType::kF8E5M2:
    case DType::kF8E5M2FNUZ:
    case DType::kF8E8M0:
      return 8;
    case DType::kU16:
    case DType::kI16:
    case DType::kF16:
    case DType::kBF16:
      return 16;
    case DType::kF32:
    case DType::kI32:
    case DType::kU32:
      return 32;
    case DType::kF64:
    case DType::kI64:
    case DType::kU64:
    case DType::kC64:
      return 64;
    case DType::kC128:
      return 128;
    case DType::kNone:
    case DType::kString:
      return 0;
  }
  return 0;
}

// Bytes of one element; 0 for types that are packed below a byte or have no fixed size.
constexpr int64_t dtype_bytes(DType t) { return dtype_bits(t) / 8; }

constexpr bool dtype_is_float(DType t) {
  return t == DType::kF32 || t == DType::kF16 || t == DType::kBF16 || t == DType::kF64;
}

// "float32", "int64", ...; the spelling used in messages and in `situ inspect`.
const char* dtype_name(DType t);

}  // namespace situ
