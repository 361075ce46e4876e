#include "base/dtype.h"

namespace situ {

const char* dtype_name(DType t) {
  switch (t) {
    case DType::kNone:
      return "none";
    case DType::kF32:
      return "float32";
    case DType::kU8:
      return "uint8";
    case DType::kI8:
      return "int8";
    case DType::kU16:
      return "uint16";
    case DType::kI16:
      return "int16";
    case DType::kI32:
      return "int32";
    case DType::kI64:
      return "int64";
    case DType::kString:
      return "string";
    case DType::kBool:
      return "bool";
    case DType::kF16:
      return "float16";
    case DType::kF64:
      return "float64";
    case DType::kU32:
      return "uint32";
    case DType::kU64:
      return "uint64";
    case DType::kC64:
      return "complex64";
    case DType::kC128:
      return "complex128";
    case DType::kBF16:
      return "bfloat16";
    case DType::kF8E4M3FN:
      return "float8e4m3fn";
    case DType::kF8E4M3FNUZ:
      return "float8e4m3fnuz";
    case DType::kF8E5M2:
      return "float8e5m2";
    case DType::kF8E5M2FNUZ:
      return "float8e5m2fnuz";
    case DType::kU4:
      return "uint4";
    case DType::kI4:
      return "int4";
    case DType::kF4E2M1:
      return "float4e2m1";
    case DType::kF8E8M0:
      return "float8e8m0";
    case DType::kU2:
      return "uint2";
    case DType::kI2:
      return "int2";
  }
  return "unknown";
}

}  // namespace situ
