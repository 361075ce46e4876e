// Rows times a panel of float weights by AMX, whose tiles multiply 16-bit floats (bfloat16: 8 bits of a float's
// 24).
//
// A float is the sum of three such numbers, exactly: its first 8 bits, the next 8 and the last 8, each cut off. Of the
// nine products of two floats' parts six are made, the largest; the other three are below 2^-21 of the product, about
// what a float's sums lose. Weights of half precision have two parts (five products), bfloat16 weights one (three). A
// tile makes 16 products of vectors in the time of one, so six of them are 2.7 times as fast.
//
// A slice of the panel is split once for all rows; rows are split once for all panels. Sums stay in tiles through a
// slice. What is infinite becomes no number: its parts are infinite and none.
#pragma once

#include "kernels/amx_tiles.h"
#include "kernels/params.h"
#include "kernels/rows.h"

namespace situ {
namespace SITU_ISA {

#if defined(SITU_TILES)

constexpr int kFloatParts = 3;
template <typename T>
constexpr int kWeightParts = kFloatParts;
template <>
constexpr int kWeightParts<Half> = 2;
template <>
constexpr int kWeightParts<BFloat> = 1;

constexpr int64_t kTileHeight = 16, kTileGroup = 2 * kTileHeight, kTilePairs = 16, kTileDepth = 2 * kTilePairs;
// Of k at a time: three parts of a panel (24 KiB) and the rows that meet them stay in the first-level cache.
constexpr int64_t kPartsDepth = 128;

// Rows of floats in parts: [part][row][depth], zero beyond K. Rows up to a multiple of 16 are read, whatever is there.
struct RowParts {
  uint16_t* parts;
  int64_t depth;  // an odd number of cache lines: the rows of a tile lie in different sets of the cache
  int64_t rows;

  static int64_t depth_of(int64_t k) { return ((k + kTileDepth - 1) / kTileDepth | 1) * kTileDepth; }
  static int64_t bytes_per_row(int64_t k) { return 2 * kFloatParts * depth_of(k); }
  const uint16_t* at(int part, int64_t row, int64_t k) const { return parts + (part * rows + row) * depth + k; }
};

// The first 8 bits of a number, and what is left of it.
SITU_INLINE VecU take_part(VecF* x) {
  const VecU part = (VecU)*x & 0xffff0000u;
  *x -= (VecF)part;
  return part;
}

static inline void split_row(const float* x, int64_t k, int64_t row, RowParts* to) {
  typedef uint16_t Words __attribute__((vector_size(2 * kLanes), aligned(1), may_alias));
  for (int64_t i = 0; i < to->depth; i += kLanes) {
    VecF v = i + kLanes <= k ? load(x + i) : load_n(x + i, k > i ? k - i : 0);
    for (int p = 0; p < kFloatParts; ++p)
      *reinterpret_cast<Words*>(to->parts + (p * to->rows + row) * to->depth + i) =
          __builtin_convertvector(take_part(&v) >> 16, Words);
  }
}

// A slice of a panel in parts: [part][16 columns][pairs of k][column][2].
struct PanelParts {
  alignas(64) uint32_t parts[kFloatParts][2][kPartsDepth / 2][kTileHeight];
};

// w [depth][32]; up to `padded`, zeros.
template <typename T>
static inline void split_panel(const T* w, int64_t depth, int64_t padded, PanelParts* to) {
  for (int64_t k = 0; k < padded; k += 2) {
    for (int64_t n = 0; n < kDensePanelColumns; n += kLanes) {
      VecF first = k < depth ? load(w + k * kDensePanelColumns + n) : VecF{},
           second = k + 1 < depth ? load(w + (k + 1) * kDensePanelColumns + n) : VecF{};
      for (int p = 0; p < kWeightParts<T>; ++p) {
        const VecU low = take_part(&first) >> 16, high = take_part(&second);
        store(reinterpret_cast<float*>(&to->parts[p][n / kTileHeight][k / 2][n % kTileHeight]), (VecF)(low | high));
      }
    }
  }
}

static inline void float_tiles_begin() {
  TileConfig config;
  for (int t = 0; t < 8; ++t) config.set(t, kTileHeight, 64);
  tile_configure(config);
}
static inline void float_tiles_end() { tile_release(); }

// The products of parts that are made, in an order in which nearly each has a part of the one before.
struct PartPair {
  int row, weight;
};
constexpr PartPair kPartPairs[] = {{0, 2}, {0, 1}, {1, 1}, {1, 0}, {2, 0}, {0, 0}};
constexpr int64_t pairs_of(int weight_parts) {
  int64_t count = 0;
  for (const PartPair& pair : kPartPairs) count += pair.weight < weight_parts;
  return count;
}

// What is asked for while tiles are multiplied: so many lines with each product.
struct LinesAhead {
  const char* at;
  int64_t lines;
};

// sums [16 * Tiles][32] (+)= rows from `row` on, k from `k0` on, times a slice of a panel. Tiles 0 to 3: sums (2 * tile
// of rows + 16 columns); 4, 5: rows; 6, 7: weights.
template <int Tiles, int Parts>
static inline void multiply_parts(const RowParts& x, int64_t row, int64_t k0, int64_t padded, const PanelParts& w,
                                  float* sums, LinesAhead* ahead) {
  constexpr int64_t kRowBytes = kDensePanelColumns * 4;
  float* lower = sums + kTileHeight * kDensePanelColumns;
  if (k0 == 0) {
    tile_zero<0>();
    tile_zero<1>();
    if constexpr (Tiles > 1) tile_zero<2>();
    if constexpr (Tiles > 1) tile_zero<3>();
  } else {
    tile_load<0>(sums, kRowBytes);
    tile_load<1>(sums + kTileHeight, kRowBytes);
    if constexpr (Tiles > 1) tile_load<2>(lower, kRowBytes);
    if constexpr (Tiles > 1) tile_load<3>(lower + kTileHeight, kRowBytes);
  }
  for (int64_t k = 0; k < padded; k += kTileDepth) {
    int in_rows = -1, in_weights = -1;
#pragma GCC unroll 6
    for (const PartPair& pair : kPartPairs) {
      if (pair.weight >= Parts) continue;
      if (pair.row != in_rows) {
        tile_load<4>(x.at(pair.row, row, k0 + k), 2 * x.depth);
        if constexpr (Tiles > 1) tile_load<5>(x.at(pair.row, row + kTileHeight, k0 + k), 2 * x.depth);
      }
      if (pair.weight != in_weights) {
        tile_load<6>(w.parts[pair.weight][0][k / 2], 64);
        tile_load<7>(w.parts[pair.weight][1][k / 2], 64);
      }
      in_rows = pair.row;
      in_weights = pair.weight;
      for (int64_t i = 0; i < ahead->lines; ++i, ahead->at += 64) __builtin_prefetch(ahead->at);
      tile_products<0, 4, 6>();
      tile_products<1, 4, 7>();
      if constexpr (Tiles > 1) tile_products<2, 5, 6>();
      if constexpr (Tiles > 1) tile_products<3, 5, 7>();
    }
  }
  tile_store<0>(sums, kRowBytes);
  tile_store<1>(sums + kTileHeight, kRowBytes);
  if constexpr (Tiles > 1) tile_store<2>(lower, kRowBytes);
  if constexpr (Tiles > 1) tile_store<3>(lower + kTileHeight, kRowBytes);
}

// sums [rows of x, a multiple of 16][32] = the first `height` of them times a panel [k][32].
template <typename T>
static inline void float_tiles(const RowParts& x, int64_t height, int64_t k, const T* panel, PanelParts* parts,
                               float* sums) {
  for (int64_t k0 = 0; k0 < k; k0 += kPartsDepth) {
    const int64_t depth = k - k0 < kPartsDepth ? k - k0 : kPartsDepth;
    const int64_t padded = (depth + kTileDepth - 1) / kTileDepth * kTileDepth;
    const T* slice = panel + k0 * kDensePanelColumns;
    split_panel(slice, depth, padded, parts);
    // The next slice, or the next panel's first one, is asked for while this one is multiplied.
    const int64_t products = (height + kTileGroup - 1) / kTileGroup * (padded / kTileDepth) * pairs_of(kWeightParts<T>);
    const int64_t lines = kPartsDepth * kDensePanelColumns * static_cast<int64_t>(sizeof(T)) / 64;
    LinesAhead ahead{reinterpret_cast<const char*>(slice + depth * kDensePanelColumns),
                     (lines + products - 1) / products};
    for (int64_t r = 0; r < height; r += kTileGroup) {
      if (height - r > kTileHeight)
        multiply_parts<2, kWeightParts<T>>(x, r, k0, padded, *parts, sums + r * kDensePanelColumns, &ahead);
      else
        multiply_parts<1, kWeightParts<T>>(x, r, k0, padded, *parts, sums + r * kDensePanelColumns, &ahead);
    }
  }
}

#endif

}  // namespace SITU_ISA
}  // namespace situ
