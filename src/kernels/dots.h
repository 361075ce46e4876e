// Dot products of R float rows with C rows of any float type.
#pragma once

#include "kernels/simd.h"

namespace situ {
namespace SITU_ISA {

// Rows that lie `step` elements apart, and rows that lie anywhere.
template <typename T>
struct EvenRows {
  const T* first;
  int64_t step;
  __attribute__((always_inline)) const T* operator()(int c) const { return first + c * step; }
};
template <typename T>
struct AnyRows {
  const T* const* rows;
  __attribute__((always_inline)) const T* operator()(int c) const { return rows[c]; }
};

// sums[r * stride + c] += a[r] . b(c) over `depth` elements, or = where kAdd is false; b(c) is the address of row c.
template <int R, int C, bool kAdd = true, typename B>
SITU_INLINE void dots(const float* const* a, B b, int64_t depth, float* sums, int64_t stride) {
  // A nearly full set of sums is added up as a full one: all lanes at once.
  constexpr int kSums = R * C > kLanes / 2 ? (R * C + kLanes - 1) / kLanes * kLanes : R * C;
  VecF acc[kSums];  // cleared one by one: GCC 12 clears an array with rep stos and then keeps it in memory
#pragma GCC unroll 16
  for (int i = 0; i < kSums; ++i) acc[i] = VecF{};
  int64_t k = 0;
  for (; k + kLanes <= depth; k += kLanes) {
    VecF column[C];
#pragma GCC unroll 16
    for (int c = 0; c < C; ++c) column[c] = load(b(c) + k);
#pragma GCC unroll 4
    for (int r = 0; r < R; ++r) {
      const VecF x = load(a[r] + k);
#pragma GCC unroll 16
      for (int c = 0; c < C; ++c) acc[r * C + c] += x * column[c];
    }
  }
  if (k < depth) {
#pragma GCC unroll 4
    for (int r = 0; r < R; ++r) {
      const VecF x = load_n(a[r] + k, depth - k);
#pragma GCC unroll 16
      for (int c = 0; c < C; ++c) acc[r * C + c] += x * load_n(b(c) + k, depth - k);
    }
  }
  float total[kSums];
  sum_all<kSums>(acc, total);
#pragma GCC unroll 16
  for (int i = 0; i < R * C; ++i) {
    float& sum = sums[(i / C) * stride + i % C];
    sum = kAdd ? sum + total[i] : total[i];
  }
}

}  // namespace SITU_ISA
}  // namespace situ
