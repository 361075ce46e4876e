// A View names elements that live in memory owned by somebody else. It is what every kernel reads
// and writes. Trivially copyable, plain C data (kernel files include it and no standard library).
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/dtype.h"

namespace situ {

constexpr int kMaxRank = 8;

// Element (i0, .., ir-1) is at data + (i0*strides[0] + ..) elements. Strides count elements, may be 0
// (Expand) or negative (Slice with a negative step). Rank 0 is a scalar. Types below one byte (uint4
// ...) are only ever contiguous: `data` then holds the flat tensor, low bits first.
// An absent optional operand has data == nullptr and type kNone.
struct View {
  std::byte* data = nullptr;
  DType type = DType::kNone;
  int32_t rank = 0;
  int64_t dims[kMaxRank] = {};
  int64_t strides[kMaxRank] = {};

  bool present() const { return type != DType::kNone; }
  int64_t count() const {
    int64_t n = 1;
    for (int i = 0; i < rank; ++i) n *= dims[i];
    return n;
  }
  bool contiguous() const {
    int64_t expected = 1;
    for (int i = rank - 1; i >= 0; --i) {
      if (dims[i] != 1 && strides[i] != expected) return false;
      expected *= dims[i];
    }
    return true;
  }
  void set_contiguous_strides() {
    int64_t s = 1;
    for (int i = rank - 1; i >= 0; --i) {
      strides[i] = s;
      s *= dims[i];
    }
  }
  template <typename T>
  T* as() const {
    return reinterpret_cast<T*>(data);
  }
};

// A row of `count` elements, to be read or, where they may be written, written.
inline View row_view(const void* data, DType type, int64_t count) {
  View v;
  v.data = static_cast<std::byte*>(const_cast<void*>(data));
  v.type = type;
  v.rank = 1;
  v.dims[0] = count;
  v.strides[0] = 1;
  return v;
}
inline View row_view(const float* data, int64_t count) { return row_view(data, DType::kF32, count); }

}  // namespace situ
