// Products of bytes with bytes: the rows that DynamicQuantizeLinear rounds, and the weights that meet them. No standard
// library: kernels include it.
//
// A row [K] of activations q of uint8 is kept as q - 128, signed, zero up to depth(), and behind it what belongs to all
// of it: its scale, its zero point - 128, and the sum of its bytes. A row takes an odd number of cache lines: rows that
// a tile reads side by side lie in different sets of the cache, whatever K is.
//
// Weights w [K, N] of int8 or uint8 are kept unsigned (int8: w + 128) in units of 32 columns, each of
//   bytes [depth / 4][32 columns][4 consecutive k], 0 beyond K and N
//   sums  [32 columns] int32: of the unsigned bytes of a column
// A unit is read front to back by one row, and is a panel for many rows: nothing is unpacked.
#pragma once

#include <cstdint>

#include "kernels/params.h"

namespace situ {

constexpr int64_t kIntegerColumns = 32;
constexpr int64_t kIntegerLine = kIntegerColumns * 4;  // bytes: 4 k of a unit

struct IntegerLayout {
  int64_t k = 0, n = 0;

  constexpr int64_t depth() const { return (k + 63) / 64 * 64; }
  // -- rows
  constexpr int64_t row_bytes() const { return (depth() / 64 + 1 + depth() / 64 % 2) * 64; }
  // -- weights
  constexpr int64_t units() const { return (n + kIntegerColumns - 1) / kIntegerColumns; }
  constexpr int64_t unit_bytes() const { return depth() * kIntegerColumns + kIntegerLine; }
  constexpr int64_t bytes() const { return units() * unit_bytes(); }
};

// What stands behind the bytes of a row.
struct IntegerRowEnd {
  float scale;
  int32_t zero;  // the zero point - 128
  int32_t sum;   // of the bytes
};

// situ.IntegerMatMul, operands rows, packed w, w scales [N] or one, residual? like y, w zero points? [N] or one
// (absent: 0), bias? [N].
//   y[r, n] = f(scale[r] * w_scale[n] * sum over k of (q[r, k] - zero[r]) * (w[k, n] - w_zero[n]) + bias[n]) + residual
// The sum is exact: int32 over all of K, which wraps as MatMulInteger's does.
struct IntegerMatMulParams {
  IntegerLayout layout;
  bool signed_weights;  // int8
  bool gelu;            // f: x * (1 + erf(x / sqrt(2))) / 2, else the identity
};
struct PackIntegerParams {
  IntegerLayout layout;
  int64_t first_unit, last_unit;  // units [first, last) are packed
};

}  // namespace situ
