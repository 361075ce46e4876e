// Matrix products of the types that no fast path covers: double and the integers, which wrap.
#pragma once

#include "kernels/product.h"

namespace situ {
namespace SITU_ISA {

// The part of one batch in rows [m0, m1) and columns [n0, n1). T: the element type; U: the type that sums
// are kept in, the unsigned one for integers, where overflow wraps.
template <typename T, typename U>
static inline void product_exact(const Product& p, const BatchOffsets& at, int64_t m0, int64_t m1, int64_t n0,
                                 int64_t n1) {
  constexpr int64_t kBlock = 64;
  const T* a = p.a->as<const T>() + at.a;
  const T* b = p.b->as<const T>() + at.b;
  const T* c = p.c != nullptr ? p.c->as<const T>() + at.c : nullptr;
  T* y = p.y->as<T>() + at.y;
  const bool scaled = p.alpha != 1 || (c != nullptr && p.beta != 1);
  for (int64_t m = m0; m < m1; ++m) {
    for (int64_t n = n0; n < n1; n += kBlock) {
      const int64_t count = n1 - n < kBlock ? n1 - n : kBlock;
      U acc[kBlock] = {};
      for (int64_t k = 0; k < p.k; ++k) {
        const U x = static_cast<U>(a[m * p.a_m + k * p.a_k]);
        const T* row = b + k * p.b_k + n * p.b_n;
        for (int64_t j = 0; j < count; ++j) acc[j] += x * static_cast<U>(row[j * p.b_n]);
      }
      for (int64_t j = 0; j < count; ++j) {
        const T add = c != nullptr ? c[m * p.c_m + c_column(p, n + j)] : T{};
        const T sum = static_cast<T>(acc[j]);
        y[m * p.y_m + y_column(p, n + j)] =
            scaled ? static_cast<T>(p.alpha * static_cast<double>(sum) + p.beta * static_cast<double>(add))
                   : static_cast<T>(acc[j] + static_cast<U>(add));
      }
    }
  }
}

}  // namespace SITU_ISA
}  // namespace situ
