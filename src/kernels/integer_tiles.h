// Sums of products of bytes by AMX tiles, on the rows and units of kernels/integer_layout.h as they lie: lines of a
// unit are rows of a tile of weights. Sums live in tiles for all of K, so that nothing is scaled in between: tiles of
// 64 k run at their full depth. The same integers as the vectors of integer_matmul.cc.
#pragma once

#include "kernels/amx_tiles.h"
#include "kernels/integer_layout.h"

namespace situ {
namespace SITU_ISA {

constexpr int64_t kTileHeight = 16;

#if defined(SITU_TILES)

constexpr bool kIntegerTiles = true;

// Tiles 0 to 3: sums (2 * row tile + half of the unit); 4, 5: rows; 6, 7: weights.
static inline void begin_integer_tiles() {
  TileConfig config;
  for (int t = 0; t < 8; ++t) config.set(t, kTileHeight, 64);
  tile_configure(config);
}
static inline void end_integer_tiles() { tile_release(); }

// sums [16 * RowTiles][32] = rows, `stride` bytes apart, times a unit.
template <int RowTiles>
static inline void integer_tiles(const int8_t* rows, int64_t stride, const uint8_t* unit, int64_t depth,
                                 int32_t* sums) {
  constexpr int64_t kRow = kIntegerColumns * 4;
  tile_zero<0>();
  tile_zero<1>();
  if constexpr (RowTiles > 1) {
    tile_zero<2>();
    tile_zero<3>();
  }
  for (int64_t k = 0; k < depth; k += 64) {
    tile_load<6>(unit + k * kIntegerColumns, kIntegerLine);
    tile_load<7>(unit + k * kIntegerColumns + kIntegerLine / 2, kIntegerLine);
    tile_load<4>(rows + k, stride);
    tile_dots<0, 4, 6, false>();
    tile_dots<1, 4, 7, false>();
    if constexpr (RowTiles > 1) {
      tile_load<5>(rows + kTileHeight * stride + k, stride);
      tile_dots<2, 5, 6, false>();
      tile_dots<3, 5, 7, false>();
    }
  }
  tile_store<0>(sums, kRow);
  tile_store<1>(sums + kIntegerColumns / 2, kRow);
  if constexpr (RowTiles > 1) {
    tile_store<2>(sums + kTileHeight * kIntegerColumns, kRow);
    tile_store<3>(sums + kTileHeight * kIntegerColumns + kIntegerColumns / 2, kRow);
  }
}

#else

constexpr bool kIntegerTiles = false;
static inline void begin_integer_tiles() {}
static inline void end_integer_tiles() {}
template <int RowTiles>
static inline void integer_tiles(const int8_t*, int64_t, const uint8_t*, int64_t, int32_t*) {}

#endif

}  // namespace SITU_ISA
}  // namespace situ
