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
static inline void tile_rows(int64_t rows, int64_t depth, const float* a, int64_t a_row, const float* b,
                             int64_t b_row, float* c, int64_t c_row, bool accumulate, const float* shrink = nullptr) {
  int64_t r = 0;
  auto factors = [&] { return shrink != nullptr ? shrink + r : nullptr; };
  for (; r + kTileRows <= rows; r += kTileRows) {
    tile<kTileRows>(depth, a + r * a_row, a_row, b, b_row, c + r * c_row, c_row, accumulate, factors());
  }
  for (; r + 4 <= rows; r += 4) tile<4>(depth, a + r * a_row, a_row, b, b_row, c + r * c_row, c_row, accumulate, factors());
  if (r + 2 <= rows) {
    tile<2>(depth, a + r * a_row, a_row, b, b_row, c + r * c_row, c_row, accumulate, factors());
    r += 2;
  }
  if (r < rows) tile<1>(depth, a + r * a_row, a_row, b, b_row, c + r * c_row, c_row, accumulate, factors());
}

// panel[k * kTileColumns + j] = b[k, j] for j < columns, zero beyond.
template <typename T>
static inline void pack_panel(const T* b, int64_t b_k, int64_t b_n, int64_t depth, int64_t columns, float* panel) {
  int64_t k0 = 0;
  if (b_k == 1 && b_n != 1) {  // unit stride along k: transpose square blocks
    for (; k0 + kLanes <= depth; k0 += kLanes) {
      for (int v = 0; v < kTileVectors; ++v) {
        VecF block[kLanes];
#pragma GCC unroll 16
        for (int i = 0; i < kLanes; ++i) {
          block[i] = v * kLanes + i < columns ? load(b + (v * kLanes + i) * b_n + k0) : VecF{};
        }
        transpose_lanes(block);
#pragma GCC unroll 16
        for (int i = 0; i < kLanes; ++i) store(panel + (k0 + i) * kTileColumns + v * kLanes, block[i]);
      }
    }
  }
  for (int64_t k = k0; k < depth; ++k) {
    float* to = panel + k * kTileColumns;
    read_row(b + k * b_k, b_n, columns, to);
    for (int64_t j = columns; j < kTileColumns; ++j) to[j] = 0;
  }
}

}  // namespace SITU_ISA
}  // namespace situ
