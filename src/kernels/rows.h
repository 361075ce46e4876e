// Walking tensors row by row, and rows of any float type as float.
#pragma once

#include "kernels/kernel.h"
#include "kernels/simd.h"

namespace situ {
namespace SITU_ISA {

// Element offset of row `row`, counted over the first `rank` dims of `v`.
SITU_INLINE int64_t row_offset(const View& v, int rank, int64_t row) {
  int64_t offset = 0;
  for (int i = rank - 1; i >= 0; --i) {
    const int64_t rest = row / v.dims[i];
    offset += (row - rest * v.dims[i]) * v.strides[i];
    row = rest;
  }
  return offset;
}

// Offsets of rows over the first `rank` dims of a view; by one product instead of divisions where rows are evenly
// spaced.
struct RowOffsets {
  const View* view = nullptr;
  int rank = 0;
  int64_t step = 0;  // elements from one row to the next
  bool even = true;
  const int64_t* slots = nullptr;  // row r is slots[r] steps from the first

  RowOffsets() = default;
  RowOffsets(const View& v, int rows_rank) : view(&v), rank(rows_rank) {
    int64_t count = 1;
    for (int i = rank - 1; i >= 0; --i) {
      if (v.dims[i] == 1) continue;
      if (count == 1)
        step = v.strides[i];
      else
        even = even && v.strides[i] == step * count;
      count *= v.dims[i];
    }
  }
  int64_t operator[](int64_t row) const {
    if (slots != nullptr) return slots[row] * step;
    return even ? row * step : row_offset(*view, rank, row);
  }
};

// Of output i, whose rows may be tokens in slots that the call lists.
SITU_INLINE RowOffsets out_rows(const KernelCall& call, int i, int rank) {
  RowOffsets rows(call.out[i], rank);
  if ((call.out_by_slot >> i & 1) != 0) {
    rows.slots = call.slots;
    rows.step = call.out[i].strides[rank - 1];
  }
  return rows;
}

// True when dims [first, rank) are contiguous, so that they can be walked as one.
SITU_INLINE bool inner_contiguous(const View& v, int first) {
  int64_t expected = 1;
  for (int i = v.rank - 1; i >= first; --i) {
    if (v.dims[i] != 1 && v.strides[i] != expected) return false;
    expected *= v.dims[i];
  }
  return true;
}

// out[i] = p[i * step]
template <typename T>
SITU_INLINE void read_row(const T* p, int64_t step, int64_t n, float* out) {
  int64_t i = 0;
  if (step == 1) {
    for (; i + kLanes <= n; i += kLanes) store(out + i, load(p + i));
  }
  for (; i < n; ++i) out[i] = to_float(p[i * step]);
}
// p[i * step] = x[i]
template <typename T>
SITU_INLINE void write_row(T* p, int64_t step, int64_t n, const float* x) {
  int64_t i = 0;
  if (step == 1) {
    for (; i + kLanes <= n; i += kLanes) store(p + i, load(x + i));
  }
  for (; i < n; ++i) from_float(p + i * step, x[i]);
}

// The same with the element type known at run time: float, half or bfloat16. `offset` in elements.
static inline void read_row(const std::byte* data, DType type, int64_t offset, int64_t step, int64_t n, float* out) {
  if (type == DType::kF32) return read_row(reinterpret_cast<const float*>(data) + offset, step, n, out);
  if (type == DType::kF16) return read_row(reinterpret_cast<const Half*>(data) + offset, step, n, out);
  read_row(reinterpret_cast<const BFloat*>(data) + offset, step, n, out);
}
static inline void write_row(std::byte* data, DType type, int64_t offset, int64_t step, int64_t n, const float* x) {
  if (type == DType::kF32) return write_row(reinterpret_cast<float*>(data) + offset, step, n, x);
  if (type == DType::kF16) return write_row(reinterpret_cast<Half*>(data) + offset, step, n, x);
  write_row(reinterpret_cast<BFloat*>(data) + offset, step, n, x);
}
static inline float read_float(const std::byte* data, DType type, int64_t index) {
  if (type == DType::kF32) return reinterpret_cast<const float*>(data)[index];
  if (type == DType::kF16) return to_float(reinterpret_cast<const Half*>(data)[index]);
  return to_float(reinterpret_cast<const BFloat*>(data)[index]);
}
static inline void write_float(std::byte* data, DType type, int64_t index, float x) {
  if (type == DType::kF32) return from_float(reinterpret_cast<float*>(data) + index, x);
  if (type == DType::kF16) return from_float(reinterpret_cast<Half*>(data) + index, x);
  from_float(reinterpret_cast<BFloat*>(data) + index, x);
}

}  // namespace SITU_ISA
}  // namespace situ
