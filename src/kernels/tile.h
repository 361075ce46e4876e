// Register tiles of a float matrix product: c[r, j] = sum_k a[r, k] * b[k, j] (+ c[r, j], times shrink[r] if given).
#pragma once

#include "kernels/rows.h"

namespace situ {
namespace SITU_ISA {

// Columns of a tile: two vectors. Rows: as many accumulators as leave registers for two vectors of b and
// one broadcast of a (12 x 2 of 32 registers, 6 x 2 of 16).
constexpr int kTileVectors = 2;
constexpr int64_t kTileColumns = kTileVectors * kLanes;
constexpr int kTileRows = kVectorRegisters == 32 ? 12 : 6;

template <int R>
static inline void tile(int64_t depth, const float* a, int64_t a_row, const float* b, int64_t b_row, float* c,
                        int64_t c_row, bool accumulate, const float* shrink) {
  VecF acc[R][kTileVectors];
  for (int r = 0; r < R; ++r) {
    const VecF factor = splat(shrink != nullptr ? shrink[r] : 1.0f);
    for (int v = 0; v < kTileVectors; ++v) acc[r][v] = accumulate ? load(c + r * c_row + v * kLanes) * factor : VecF{};
  }
  for (int64_t k = 0; k < depth; ++k, b += b_row) {
    const VecF b0 = load(b), b1 = load(b + kLanes);
#pragma GCC unroll 12
    for (int r = 0; r < R; ++r) {
      const VecF x = splat(a[r * a_row + k]);
      acc[r][0] += x * b0;
      acc[r][1] += x * b1;
    }
  }
  for (int r = 0; r < R; ++r) {
    for (int v = 0; v < kTileVectors; ++v) store(c + r * c_row + v * kLanes, acc[r][v]);
  }
}

// a [rows, depth] with unit stride along k, b [depth, kTileColumns], c [rows, kTileColumns].
static inline void tile_rows(int64_t rows, int64_t depth, const float* a, int64_t a_row, const float* b, int64_t b_row,
                             float* c, int64_t c_row, bool accumulate, const float* shrink = nullptr) {
  int64_t r = 0;
  auto factors = [&] { return shrink != nullptr ? shrink + r : nullptr; };
  for (; r + kTileRows <= rows; r += kTileRows) {
    tile<kTileRows>(depth, a + r * a_row, a_row, b, b_row, c + r * c_row, c_row, accumulate, factors());
  }
  for (; r + 4 <= rows; r += 4)
    tile<4>(depth, a + r * a_row, a_row, b, b_row, c + r * c_row, c_row, accumulate, factors());
  if (r + 2 <= rows) {
    tile<2>(depth, a + r * a_row, a_row, b, b_row, c + r * c_row, c_row, accumulate, factors());
    r += 2;
  }
  if (r < rows) tile<1>(depth, a + r * a_row, a_row, b, b_row, c + r * c_row, c_row, accumulate, factors());
}

// panel[k * kTileColumns + j] = column(j)[k] for j < columns, zero beyond; returns how many k that is done for, in
// whole vectors.
template <typename Column>
SITU_INLINE int64_t transpose_columns(int64_t depth, int64_t columns, float* panel, Column column) {
  int64_t k = 0;
  for (; k + kLanes <= depth; k += kLanes) {
    for (int v = 0; v < kTileVectors; ++v) {
      VecF block[kLanes];
#pragma GCC unroll 16
      for (int i = 0; i < kLanes; ++i) block[i] = v * kLanes + i < columns ? load(column(v * kLanes + i) + k) : VecF{};
      transpose_lanes(block);
#pragma GCC unroll 16
      for (int i = 0; i < kLanes; ++i) store(panel + (k + i) * kTileColumns + v * kLanes, block[i]);
    }
  }
  return k;
}

// panel[k * kTileColumns + j] = columns[j][k * step] for j < count, zero beyond.
template <typename T>
static inline void pack_rows(const T* const* columns, int64_t step, int64_t depth, int64_t count, float* panel) {
  const int64_t k0 = step == 1 ? transpose_columns(depth, count, panel,
                                                   [&](int64_t j) __attribute__((always_inline)) { return columns[j]; })
                               : 0;
  for (int64_t k = k0; k < depth; ++k) {
    float* to = panel + k * kTileColumns;
    for (int64_t j = 0; j < kTileColumns; ++j) to[j] = j < count ? to_float(columns[j][k * step]) : 0.0f;
  }
}

// panel[k * kTileColumns + j] = b[k, j] for j < columns, zero beyond.
template <typename T>
static inline void pack_panel(const T* b, int64_t b_k, int64_t b_n, int64_t depth, int64_t columns, float* panel) {
  const bool contiguous = b_k == 1 && b_n != 1;  // along k
  const int64_t k0 = contiguous
                         ? transpose_columns(depth, columns, panel,
                                             [&](int64_t j) __attribute__((always_inline)) { return b + j * b_n; })
                         : 0;
  for (int64_t k = k0; k < depth; ++k) {
    float* to = panel + k * kTileColumns;
    read_row(b + k * b_k, b_n, columns, to);
    for (int64_t j = columns; j < kTileColumns; ++j) to[j] = 0;
  }
}

}  // namespace SITU_ISA
}  // namespace situ
