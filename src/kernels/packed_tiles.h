// int8 products of many rows by AMX tiles, on the same packed weights and rounded rows as packed_int8 and with the same
// results to the bit: integers are exact, and the sum over blocks has the same order.
//
// A tile of products is 16 rows by 16 columns. Weights have a scale per block of k and column, so a tile holds one
// block's products only; it is stored and then converted, scaled and added to float sums by vectors. Up to 32 rows and
// 32 columns are in flight, four tiles from two of rows and two of weights: all eight registers. Blocks below 64 use as
// many bytes of a row of activations as they have (block 32: half of a tile).
//
// Digits of 4 bits are unpacked into a panel that all rows of a slice of k share, less their zero points if these are
// integers: signed bytes. Packed lines of 8 bits are rows of a tile of weights as they are; zero points come in by
// negative_sums.
//
// The products of some blocks are made before those in front of them are added, which keeps 8 rows of sums in
// registers. While a slice of k is multiplied, the weights of the next one are asked for: with few rows the time to
// fetch them is what counts (unpacking took 17% of a prompt of 40 rows, 6% since then).
//
// Of 32 rows, 32 columns and a block of 32 (4 bits, K 576 to 2,048): 82 to 92 ns; 107 to 116 where sums were
// read and written for each block. 4 blocks at a time take as long or longer, slices of 256 5% longer. Half is tiles
// and half is additions, and they hardly overlap: beside tiles one port does all products and conversions of vectors,
// and tiles of random bytes take 1.6 times as long as of zeros. Without success therefore: stores behind the next
// tiles, and tiles that begin at 1.5 * 2^23, so that they hold floats.
#pragma once

#include "kernels/amx_tiles.h"
#include "kernels/packed_panel.h"

namespace situ {
namespace SITU_ISA {

constexpr int64_t kAmxRows = 16, kAmxGroupRows = 32, kAmxMinRows = 4;
// Of k per panel, or a block: weights, rows, products and sums stay in the first-level cache. No block is longer.
constexpr int64_t kAmxSliceDepth = 128, kAmxLongestBlock = kLongestBlock;
constexpr int64_t kAmxBlocks = 2;  // whose products are made and added together

struct AmxScratch {
  alignas(64) uint8_t panel[kAmxLongestBlock * kUnitColumns];
  // Of the blocks of a slice [block][columns]: as in DigitPanel.
  alignas(64) float scales[kAmxSliceDepth / kSmallestBlock * kUnitColumns];
  alignas(64) float zeros[kAmxSliceDepth / kSmallestBlock * kUnitColumns];
  // [block][rows][columns], twice: the next blocks' are computed while some are added.
  alignas(64) int32_t products[2][kAmxBlocks][kAmxGroupRows * kUnitColumns];
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

// sums [R][columns] (+)= products [blocks][R rows][columns] of the slice's blocks [at, at + blocks), scaled. `row`: of
// the buffer; `b`: the number of the first block.
template <int Bits, int Panels, ZeroPoints Z, int R>
SITU_INLINE void amx_add(const PackedRows& rows, int64_t row, int64_t b, int64_t at, int64_t blocks,
                         const AmxScratch& scratch, const int32_t* products, float* sums) {
  constexpr int V = Panels * kPanelVectors;
  VecF total[R][V];
#pragma GCC unroll 16
  for (int r = 0; r < R; ++r)
#pragma GCC unroll 8
    for (int v = 0; v < V; ++v) total[r][v] = b > 0 ? load(sums + r * kUnitColumns + v * kLanes) : VecF{};
  for (int64_t i = 0; i < blocks; ++i, products += kAmxGroupRows * kUnitColumns) {
    const float* scales = scratch.scales + (at + i) * kUnitColumns;
    const float* zeros = scratch.zeros + (at + i) * kUnitColumns;
    const int64_t of_row = (b + i) * rows.count + row;
    VecF scale[V];
#pragma GCC unroll 8
    for (int v = 0; v < V; ++v) scale[v] = load(scales + v * kLanes);
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r) {
      const float row_scale = rows.scales[of_row + r];
#pragma GCC unroll 8
      for (int v = 0; v < V; ++v) {
        VecI dot = (VecI)load(reinterpret_cast<const float*>(products + r * kUnitColumns + v * kLanes));
        if (Bits == 8 && Z == ZeroPoints::kIntegers)
          dot += (VecI)load(zeros + v * kLanes) * rows.negative_sums[of_row + r];
        else if (Bits == 8 && Z == ZeroPoints::kMiddle)
          dot += rows.negative_sums[of_row + r];
        total[r][v] += __builtin_convertvector(dot, VecF) * (scale[v] * row_scale);
        if (Z == ZeroPoints::kFloats) total[r][v] -= load(zeros + v * kLanes) * rows.sums[of_row + r];
      }
    }
  }
#pragma GCC unroll 16
  for (int r = 0; r < R; ++r)
#pragma GCC unroll 8
    for (int v = 0; v < V; ++v) store(sums + r * kUnitColumns + v * kLanes, total[r][v]);
}

// The scales and zero points of blocks [b0, b1), and panel [blocks][panels][block / 4][16 columns][4] = their digits of
// 4 bits less zero points that are integers.
template <int Bits, int Panels, ZeroPoints Z>
static inline void amx_unpack(const PackedLayout& w, const uint8_t* unit, int64_t b0, int64_t b1, AmxScratch* scratch) {
  typedef int8_t Bytes __attribute__((vector_size(kVectorBytes)));
  typedef int8_t UnalignedBytes __attribute__((vector_size(kVectorBytes), aligned(1), may_alias));
  for (int64_t b = b0; b < b1; ++b) {
    const uint8_t* record = unit + b * w.record_bytes(Panels);
    for (int v = 0; v < Panels * kPanelVectors; ++v) {
      const int64_t at = (b - b0) * kUnitColumns + v * kLanes;
      store(scratch->scales + at, packed_scales(w, record, Panels, v));
      if (Z == ZeroPoints::kFloats) store(scratch->zeros + at, packed_offsets(w, record, Panels, v));
      VecI zero = splat_i(Z == ZeroPoints::kFloats ? 0 : 8);
      if (Z == ZeroPoints::kIntegers) zero = packed_zeros(w, record, Panels, v);
      if constexpr (Bits == 8) {
        if (Z == ZeroPoints::kIntegers) store(scratch->zeros + at, (VecF)zero);
        continue;
      }
      const Bytes zeros = (Bytes)(zero * 0x01010101);
      const uint8_t* from = record + line_offset(w, v);
      uint8_t* to = scratch->panel + ((b - b0) * Panels + v / kPanelVectors) * w.block * kPanelColumns +
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
// With `ahead`, the records that follow theirs are asked for.
template <int Bits, int RowTiles, int Panels, ZeroPoints Z>
static inline void amx_group(const PackedLayout& w, const PackedRows& rows, int64_t slot, int64_t count,
                             const uint8_t* unit, int64_t b0, int64_t b1, bool ahead, AmxScratch* scratch,
                             float* sums) {
  constexpr int kRowsAdded = 8;
  const int64_t record_bytes = w.record_bytes(Panels);
  auto multiply = [&](int64_t first, int64_t last) __attribute__((always_inline)) {
    for (int64_t b = first; b < last; ++b) {
      const uint8_t* record = unit + b * record_bytes;
      amx_block<Bits, RowTiles, Panels>(
          w.block, rows.q + slot * rows.depth + b * w.block, rows.depth,
          Bits == 4 ? scratch->panel + (b - b0) * Panels * w.block * kPanelColumns : record,
          scratch->products[(first - b0) / kAmxBlocks % 2][b - first]);
      if (ahead) {
        const uint8_t* next = record + (b1 - b0) * record_bytes;
        for (int64_t i = 0; i < record_bytes; i += 64) __builtin_prefetch(next + i);
      }
    }
  };
  auto end = [&](int64_t b) { return b + kAmxBlocks < b1 ? b + kAmxBlocks : b1; };
  multiply(b0, end(b0));
  for (int64_t b = b0; b < b1; b += kAmxBlocks) {
    const int64_t next = end(b);
    if (next < b1) multiply(next, end(next));
    const int32_t* products = scratch->products[(b - b0) / kAmxBlocks % 2][0];
    auto add = [&]<int R>(int64_t r) __attribute__((always_inline)) {
      amx_add<Bits, Panels, Z, R>(rows, slot + r, b, b - b0, next - b, *scratch, products + r * kUnitColumns,
                                  sums + r * kUnitColumns);
    };
    int64_t r = 0;
    for (; r + kRowsAdded <= count; r += kRowsAdded) add.template operator()<kRowsAdded>(r);
    for (; r < count; ++r) add.template operator()<1>(r);
  }
}

template <int Bits, int Panels, ZeroPoints Z>
static inline void amx_panels(const PackedLayout& w, const PackedRows& rows, int64_t slot, int64_t count,
                              const uint8_t* unit, AmxScratch* scratch, float* sums) {
  const int64_t step = w.block < kAmxSliceDepth ? kAmxSliceDepth / w.block : 1;
  for (int64_t b0 = 0; b0 < w.blocks; b0 += step) {
    const int64_t b1 = b0 + step < w.blocks ? b0 + step : w.blocks;
    amx_unpack<Bits, Panels, Z>(w, unit, b0, b1, scratch);
    for (int64_t r = 0; r < count; r += kAmxGroupRows) {
      const int64_t tall = count - r < kAmxGroupRows ? count - r : kAmxGroupRows;
      float* to = sums + r * kUnitColumns;
      if (tall > kAmxRows)
        amx_group<Bits, 2, Panels, Z>(w, rows, slot + r, tall, unit, b0, b1, r == 0, scratch, to);
      else
        amx_group<Bits, 1, Panels, Z>(w, rows, slot + r, tall, unit, b0, b1, r == 0, scratch, to);
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
