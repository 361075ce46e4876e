// int8 products of many rows by AMX tiles, on the same packed weights and rounded rows as packed_int8 and with the same
// results to the bit: integers are exact, and the sum over blocks has the same order.
//
// A tile of products is 16 rows by 16 columns. Weights have a scale per block of k and column, so a tile holds one
// block's products only; it is stored and then converted, scaled and added to float sums by vectors. Up to 32 rows and
// 32 columns are in flight, four tiles from two of rows and two of weights: all eight registers. Blocks below 64 use as
// many bytes of a row of activations as they have (block 32: half of a tile).
//
//   4 bits  digits are unpacked into a panel that all rows of a slice of k share, less their zero points if these are
//   integers: signed bytes 8 bits  packed lines are rows of a tile of weights as they are; zero points come in by
//   negative_sums
//
// Estimated for Sapphire Rapids, block 32, never measured: 130 to 250 multiply-adds a cycle, by how much of the tiles'
// work and the vectors' overlaps; packed_int8 was measured at 55 (VNNI, 330 GFLOP/s a thread at about 3 GHz). A tile of
// fewer rows costs nearly as much as a full one: below 8 it should not gain.
#pragma once

#include "kernels/amx_tiles.h"
#include "kernels/packed_panel.h"

namespace situ {
namespace SITU_ISA {

constexpr int64_t kAmxRows = 16, kAmxGroupRows = 32, kAmxMinRows = 8;
// Of k per panel: 8 KiB of weights and as much of rows stay in the first-level cache. No block is longer.
constexpr int64_t kAmxSliceDepth = 256;

struct AmxScratch {
  alignas(64) uint8_t panel[kAmxSliceDepth * kUnitColumns];
  // Of one block [rows][columns], twice: the next block's are computed while one's are added.
  alignas(64) int32_t products[2][kAmxGroupRows * kUnitColumns];
};

#if defined(SITU_TILES)

constexpr bool kTiles = true;

// In front of packed_tiles, once per call of a kernel. Tiles 0 to 3: products (2 * row tile + panel); 4, 5: rows; 6, 7:
// weights.
static inline void amx_begin(const PackedLayout& w) {
  const int64_t depth = w.block < 64 ? w.block : 64;
  TileConfig config;
  for (int t = 0; t < 4; ++t) config.set(t, kAmxRows, 4 * kPanelColumns);
  for (int t = 4; t < 6; ++t) config.set(t, kAmxRows, depth);
  for (int t = 6; t < 8; ++t) config.set(t, depth / 4, 4 * kPanelColumns);
  tile_configure(config);
}
static inline void amx_end() { tile_release(); }

// products [16 * RowTiles][columns] = rows of one block, `a_row` bytes apart, times `Panels` panels of its digits.
template <int Bits, int RowTiles, int Panels>
SITU_INLINE void amx_block(int64_t block, const int8_t* a, int64_t a_row, const uint8_t* digits, int32_t* products) {
  constexpr bool kSigned = Bits == 4;
  constexpr int64_t kRowBytes = kUnitColumns * 4;
  const int64_t step = block < 64 ? block : 64;
  tile_zero<0>();
  if constexpr (Panels > 1) tile_zero<1>();
  if constexpr (RowTiles > 1) tile_zero<2>();
  if constexpr (RowTiles > 1 && Panels > 1) tile_zero<3>();
  for (int64_t k = 0; k < block; k += step) {
    tile_load<6>(digits + k * kPanelColumns, 64);
    tile_load<4>(a + k, a_row);
    tile_dots<0, 4, 6, kSigned>();
    if constexpr (Panels > 1) {
      tile_load<7>(digits + (block + k) * kPanelColumns, 64);
      tile_dots<1, 4, 7, kSigned>();
    }
    if constexpr (RowTiles > 1) {
      tile_load<5>(a + kAmxRows * a_row + k, a_row);
      tile_dots<2, 5, 6, kSigned>();
      if constexpr (Panels > 1) tile_dots<3, 5, 7, kSigned>();
    }
  }
  tile_store<0>(products, kRowBytes);
  if constexpr (Panels > 1) tile_store<1>(products + kPanelColumns, kRowBytes);
  if constexpr (RowTiles > 1) tile_store<2>(products + kAmxRows * kUnitColumns, kRowBytes);
  if constexpr (RowTiles > 1 && Panels > 1)
    tile_store<3>(products + kAmxRows * kUnitColumns + kPanelColumns, kRowBytes);
}

// sums [rows][columns] += products of block b, scaled.
template <int Bits, int Panels, ZeroPoints Z>
SITU_INLINE void amx_add(const PackedLayout& w, const PackedRows& rows, int64_t slot, int64_t count,
                         const uint8_t* record, int64_t b, const int32_t* products, float* sums) {
  constexpr int V = Panels * kPanelVectors;
  VecF scale[V], offset[V];
  VecI zeros[V];
#pragma GCC unroll 8
  for (int v = 0; v < V; ++v) {
    scale[v] = packed_scales(w, record, Panels, v);
    if (Bits == 8 && Z == ZeroPoints::kIntegers) zeros[v] = packed_zeros(w, record, Panels, v);
    if (Z == ZeroPoints::kFloats) offset[v] = packed_offsets(w, record, Panels, v);
  }
  for (int64_t r = 0; r < count; ++r) {
    const int64_t at = b * rows.count + slot + r;
    const float a_scale = rows.scales[at];
    const VecI start = Z == ZeroPoints::kFloats ? VecI{} : splat_i(rows.negative_sums[at]);
#pragma GCC unroll 8
    for (int v = 0; v < V; ++v) {
      const int64_t i = r * kUnitColumns + v * kLanes;
      VecI dot = (VecI)load(reinterpret_cast<const float*>(products + i));
      if (Bits == 8 && Z != ZeroPoints::kFloats) dot += Z == ZeroPoints::kIntegers ? zeros[v] * start : start;
      VecF sum = load(sums + i) + __builtin_convertvector(dot, VecF) * (scale[v] * a_scale);
      if (Z == ZeroPoints::kFloats) sum -= offset[v] * rows.sums[at];
      store(sums + i, sum);
    }
  }
}

// panel [blocks b0 .. b1)[panels][block / 4][16 columns][4] = digits of 4 bits less their zero points.
template <int Panels, ZeroPoints Z>
static inline void amx_unpack(const PackedLayout& w, const uint8_t* unit, int64_t b0, int64_t b1, uint8_t* panel) {
  typedef int8_t Bytes __attribute__((vector_size(kVectorBytes)));
  typedef int8_t UnalignedBytes __attribute__((vector_size(kVectorBytes), aligned(1), may_alias));
  for (int64_t b = b0; b < b1; ++b) {
    const uint8_t* record = unit + b * w.record_bytes(Panels);
    for (int v = 0; v < Panels * kPanelVectors; ++v) {
      VecI zero = splat_i(Z == ZeroPoints::kFloats ? 0 : 8);
      if (Z == ZeroPoints::kIntegers) zero = packed_zeros(w, record, Panels, v);
      const Bytes zeros = (Bytes)(zero * 0x01010101);
      const uint8_t* from = record + line_offset(w, v);
      uint8_t* to = panel + ((b - b0) * Panels + v / kPanelVectors) * w.block * kPanelColumns +
                    (v % kPanelVectors) * kVectorBytes;
      for (int64_t line = 0; line < w.lines(); ++line) {
        const VecU words = (VecU)packed_line(from + line * 64);
        *reinterpret_cast<UnalignedBytes*>(to + line * 128) = (Bytes)(words & 0x0f0f0f0fu) - zeros;
        *reinterpret_cast<UnalignedBytes*>(to + line * 128 + 64) = (Bytes)((words >> 4) & 0x0f0f0f0fu) - zeros;
      }
    }
  }
}

// The blocks [b0, b1) of up to 32 rows. Rows up to the next multiple of 16 are read, whatever is there, and not added.
template <int Bits, int RowTiles, int Panels, ZeroPoints Z>
static inline void amx_group(const PackedLayout& w, const PackedRows& rows, int64_t slot, int64_t count,
                             const uint8_t* unit, int64_t b0, int64_t b1, AmxScratch* scratch, float* sums) {
  const int64_t record_bytes = w.record_bytes(Panels);
  for (int64_t b = b0; b < b1; ++b) {
    const uint8_t* digits =
        Bits == 4 ? scratch->panel + (b - b0) * Panels * w.block * kPanelColumns : unit + b * record_bytes;
    amx_block<Bits, RowTiles, Panels>(w.block, rows.q + slot * rows.depth + b * w.block, rows.depth, digits,
                                      scratch->products[b & 1]);
    if (b > b0)
      amx_add<Bits, Panels, Z>(w, rows, slot, count, unit + (b - 1) * record_bytes, b - 1,
                               scratch->products[(b - 1) & 1], sums);
  }
  amx_add<Bits, Panels, Z>(w, rows, slot, count, unit + (b1 - 1) * record_bytes, b1 - 1,
                           scratch->products[(b1 - 1) & 1], sums);
}

template <int Bits, int Panels, ZeroPoints Z>
static inline void amx_panels(const PackedLayout& w, const PackedRows& rows, int64_t slot, int64_t count,
                              const uint8_t* unit, AmxScratch* scratch, float* sums) {
  for (int64_t i = 0; i < count * kUnitColumns; i += kLanes) store(sums + i, VecF{});
  const int64_t step = kAmxSliceDepth / w.block;
  for (int64_t b0 = 0; b0 < w.blocks; b0 += step) {
    const int64_t b1 = b0 + step < w.blocks ? b0 + step : w.blocks;
    if constexpr (Bits == 4) amx_unpack<Panels, Z>(w, unit, b0, b1, scratch->panel);
    for (int64_t r = 0; r < count; r += kAmxGroupRows) {
      const int64_t tall = count - r < kAmxGroupRows ? count - r : kAmxGroupRows;
      float* to = sums + r * kUnitColumns;
      if (tall > kAmxRows)
        amx_group<Bits, 2, Panels, Z>(w, rows, slot + r, tall, unit, b0, b1, scratch, to);
      else
        amx_group<Bits, 1, Panels, Z>(w, rows, slot + r, tall, unit, b0, b1, scratch, to);
    }
  }
}

// sums [count][32] = rows [slot, slot + count) times the columns of one unit.
template <int Bits, ZeroPoints Z>
static inline void packed_tiles(const PackedLayout& w, const PackedRows& rows, int64_t slot, int64_t count,
                                const uint8_t* unit, int panels, AmxScratch* scratch, float* sums) {
  if (panels == 2)
    amx_panels<Bits, 2, Z>(w, rows, slot, count, unit, scratch, sums);
  else
    amx_panels<Bits, 1, Z>(w, rows, slot, count, unit, scratch, sums);
}

#else

constexpr bool kTiles = false;
static inline void amx_begin(const PackedLayout&) {}
static inline void amx_end() {}
template <int Bits, ZeroPoints Z>
static inline void packed_tiles(const PackedLayout&, const PackedRows&, int64_t, int64_t, const uint8_t*, int,
                                AmxScratch*, float*) {}

#endif

}  // namespace SITU_ISA
}  // namespace situ
