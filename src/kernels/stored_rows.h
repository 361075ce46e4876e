// Rows of keys and values as they are stored (kernels/row_encoding.h), read as floats where they lie. A row moves and
// loads as a pointer to its numbers does:
//
//   row + n              n numbers on
//   load(row)            kLanes numbers; load_n(row, n): n of them, and zeros
//   number_at(row, i)
#pragma once

#include "base/view.h"
#include "kernels/row_encoding.h"
#include "kernels/tile.h"

namespace situ {
namespace SITU_ISA {

// Bytes, with what one of them is worth behind those of the row: the numbers are the bytes alone.
struct ScaledRow {
  const int8_t* bytes;
  __attribute__((always_inline)) ScaledRow operator+(int64_t n) const { return {bytes + n}; }
};
SITU_INLINE VecF load(ScaledRow row) { return load(row.bytes); }
SITU_INLINE VecF load_n(ScaledRow row, int64_t n) { return load_n(row.bytes, n); }
SITU_INLINE float number_at(ScaledRow row, int64_t i) { return to_float(row.bytes[i]); }

// Digits of 4 bits. Vectors begin at even numbers.
struct DigitRow {
  const uint8_t* bytes;
  int64_t first;
  __attribute__((always_inline)) DigitRow operator+(int64_t n) const { return {bytes, first + n}; }
};
SITU_INLINE float number_at(DigitRow row, int64_t i) {
  const int64_t at = row.first + i;
  return static_cast<float>((row.bytes[at >> 1] >> ((at & 1) * 4) & 15) - 8);
}
SITU_INLINE VecF load(DigitRow row) {
  typedef uint32_t Word __attribute__((aligned(1), may_alias));
  typedef uint16_t HalfWord __attribute__((aligned(1), may_alias));
  const uint8_t* p = row.bytes + (row.first >> 1);
  VecU digits{};
  if constexpr (kLanes == 4) {
    digits += static_cast<uint32_t>(*reinterpret_cast<const HalfWord*>(p));
  } else if constexpr (kLanes == 8) {
    digits += *reinterpret_cast<const Word*>(p);
  } else {
    const VecU low = VecU{} + reinterpret_cast<const Word*>(p)[0], high = VecU{} + reinterpret_cast<const Word*>(p)[1];
    digits = lane_index() < 8 ? low : high;
  }
  const VecU place = (VecU)(lane_index() & 7) * 4u;
  return __builtin_convertvector((VecI)((digits >> place) & 15u) - 8, VecF);
}
SITU_INLINE VecF load_n(DigitRow row, int64_t n) {
  if (n == kLanes) return load(row);
  VecF v{};
  for (int64_t i = 0; i < n; ++i) v[i] = number_at(row, i);
  return v;
}

// Numbers that an element of a view of such rows holds, along all of its axes but the last.
template <typename Row>
constexpr int64_t kNumbers = 1;
template <>
constexpr int64_t kNumbers<DigitRow> = 2;

// Rows that lie `step` numbers apart, and rows that lie anywhere, for dots().
template <typename Row>
struct EvenStoredRows {
  Row first;
  int64_t step;
  __attribute__((always_inline)) Row operator()(int c) const { return first + c * step; }
};
template <typename Row>
struct AnyStoredRows {
  const Row* rows;
  __attribute__((always_inline)) Row operator()(int c) const { return rows[c]; }
};

// What the integers of a row are worth, where it says so itself.
template <typename Row>
constexpr bool kScaledRows = false;
template <>
constexpr bool kScaledRows<ScaledRow> = true;
SITU_INLINE float row_scale(ScaledRow row, int64_t step, int64_t size) {
  if (step == 1) return *reinterpret_cast<const FloatAnywhere*>(row.bytes + size);
  int8_t bytes[kRowScaleBytes];
  for (int64_t i = 0; i < kRowScaleBytes; ++i) bytes[i] = row.bytes[(size + i) * step];
  return *reinterpret_cast<const FloatAnywhere*>(bytes);
}

// As those of pointers in kernels/tile.h.
template <typename Row>
static inline void pack_rows(const Row* columns, int64_t step, int64_t depth, int64_t count, float* panel) {
  const int64_t k0 = step == 1 ? transpose_columns(depth, count, panel,
                                                   [&](int64_t j) __attribute__((always_inline)) { return columns[j]; })
                               : 0;
  for (int64_t k = k0; k < depth; ++k) {
    float* to = panel + k * kTileColumns;
    for (int64_t j = 0; j < kTileColumns; ++j) to[j] = j < count ? number_at(columns[j], k * step) : 0.0f;
  }
}
template <typename Row>
static inline void pack_panel(Row b, int64_t b_k, int64_t b_n, int64_t depth, int64_t columns, float* panel) {
  const bool contiguous = b_k == 1 && b_n != 1;  // along k
  const int64_t k0 = contiguous
                         ? transpose_columns(depth, columns, panel,
                                             [&](int64_t j) __attribute__((always_inline)) { return b + j * b_n; })
                         : 0;
  for (int64_t k = k0; k < depth; ++k) {
    float* to = panel + k * kTileColumns;
    int64_t j = 0;
    if (b_n == 1)
      for (; j + kLanes <= columns; j += kLanes) store(to + j, load(b + (k * b_k + j)));
    for (; j < kTileColumns; ++j) to[j] = j < columns ? number_at(b, k * b_k + j * b_n) : 0.0f;
  }
}

// Calls body(row) with the first row of a view of rows that are stored so.
template <typename Body>
SITU_INLINE void with_rows(const View& v, RowEncoding encoding, Body body) {
  switch (encoding) {
    case RowEncoding::kRowScale:
      return body(ScaledRow{v.as<const int8_t>()});
    case RowEncoding::kBytes:
      return body(v.as<const int8_t>());
    case RowEncoding::kDigits:
      return body(DigitRow{v.as<const uint8_t>(), 0});
    case RowEncoding::kPlain:
      if (v.type == DType::kF16) return body(v.as<const Half>());
      if (v.type == DType::kBF16) return body(v.as<const BFloat>());
      return body(v.as<const float>());
  }
}

}  // namespace SITU_ISA
}  // namespace situ
