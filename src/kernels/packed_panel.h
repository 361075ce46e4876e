// Many rows times one unit of packed weights: the digits become bytes once, in a panel that all rows then read without
// masks and shifts (512 rows, K 576, N 1536, one AVX-512 VNNI core: 335 GFLOP/s without the panel).
#pragma once

#include "kernels/packed.h"

namespace situ {
namespace SITU_ISA {

constexpr int64_t kUnitColumns = kUnitPanels * kPanelColumns;
constexpr int64_t kPanelSlice = 1024;  // depth of a panel: 32 KiB of digits stay in the nearest cache
constexpr int64_t kSmallestBlock = 16;

// Blocks [first, last) of a unit's columns; columns that the unit lacks are not touched.
struct DigitPanel {
  uint8_t* digits;  // [k / 4][kUnitColumns][4]
  float* scales;    // [blocks][kUnitColumns]
  float* zeros;     // [blocks][kUnitColumns], if the weights have them: the bits of integers, or scale * zero point
  int64_t first, last;

  static constexpr int64_t kBytes = kPanelSlice * kUnitColumns + 2 * kPanelSlice / kSmallestBlock * kUnitColumns * 4;
};

static inline DigitPanel lay_out_panel(std::byte* memory) {
  DigitPanel p{};
  p.digits = reinterpret_cast<uint8_t*>(memory);
  p.scales = reinterpret_cast<float*>(p.digits + kPanelSlice * kUnitColumns);
  p.zeros = p.scales + kPanelSlice / kSmallestBlock * kUnitColumns;
  return p;
}

// `vectors` of the unit hold columns.
template <int Bits, ZeroPoints Z>
static inline void unpack_digits(const PackedLayout& w, const uint8_t* unit, int panels, int vectors, DigitPanel* p) {
  constexpr int64_t kRow = kUnitColumns * 4;  // bytes
  const int64_t lines = w.lines();
  for (int64_t b = p->first; b < p->last; ++b) {
    const uint8_t* record = unit + b * w.record_bytes(panels);
    uint8_t* block = p->digits + (b - p->first) * w.block / 4 * kRow;
    for (int v = 0; v < vectors; ++v) {
      const uint8_t* from = record + line_offset(w, v);
      uint8_t* to = block + v * kVectorBytes;
      for (int64_t line = 0; line < lines; ++line) {
        const VecS words = packed_line(from + line * 64);
        if constexpr (Bits == 4) {
          *reinterpret_cast<UnalignedS*>(to + 2 * line * kRow) = (VecS)((VecU)words & 0x0f0f0f0fu);
          *reinterpret_cast<UnalignedS*>(to + (2 * line + 1) * kRow) = (VecS)(((VecU)words >> 4) & 0x0f0f0f0fu);
        } else {
          *reinterpret_cast<UnalignedS*>(to + line * kRow) = words;
        }
      }
      const int64_t at = (b - p->first) * kUnitColumns + v * kLanes;
      store(p->scales + at, packed_scales(w, record, panels, v));
      if (Z == ZeroPoints::kIntegers) store(p->zeros + at, (VecF)packed_zeros(w, record, panels, v));
      if (Z == ZeroPoints::kFloats) store(p->zeros + at, packed_offsets(w, record, panels, v));
    }
  }
}

// acc[r][v] += 4 * Quads digits of columns times as many bytes of rows, `depth` apart.
template <int Bits, int R, int V, int Quads>
SITU_INLINE void panel_products(const uint8_t* digits, const int8_t* q, int64_t depth, VecI (*acc)[V]) {
  static_assert(Quads <= kMostWords);
  VecS words[R][V];
#pragma GCC unroll 8
  for (int s = 0; s < Quads; ++s) {
    VecS u[V];
#pragma GCC unroll 8
    for (int v = 0; v < V; ++v) u[v] = packed_line(digits + s * kUnitColumns * 4 + v * kVectorBytes);
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r) {
      const VecS four = splat_word(q + r * depth + 4 * s);
#pragma GCC unroll 8
      for (int v = 0; v < V; ++v) {
        if constexpr (!kWordSums<Bits>)
          add_dots(acc[r][v], u[v], four);
        else if (s == 0)
          words[r][v] = byte_products(u[v], four);
        else
          add_here(words[r][v], byte_products(u[v], four));
      }
    }
  }
  if constexpr (kWordSums<Bits>) {
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r)
#pragma GCC unroll 8
      for (int v = 0; v < V; ++v) add_here(acc[r][v], word_products(words[r][v], VecS{} + 1));
  }
}

// sums[r][column] = rows r0 .. r0 + R - 1 times the columns of vectors v0 .. v0 + V - 1 of the panel, and what was
// there unless it is the first one.
template <int Bits, int R, int V, ZeroPoints Z>
SITU_INLINE void panel_dots(const DigitPanel& p, const PackedRows& rows, int64_t block, int64_t r0, int v0,
                            float* __restrict sums) {
  constexpr int64_t kRow = kUnitColumns * 4;
  const int64_t depth = rows.depth, count = rows.count;
  const int8_t* q = rows.q + r0 * depth + p.first * block;
  const uint8_t* digits = p.digits + v0 * kVectorBytes;
  const float* scales = p.scales + v0 * kLanes;
  const float* zeros = p.zeros + v0 * kLanes;
  const float* row_scales = rows.scales + p.first * count + r0;
  const int32_t* negative_sums = rows.negative_sums + p.first * count + r0;
  const float* row_sums = rows.sums + p.first * count + r0;
  sums += v0 * kLanes;
  VecF total[R][V];
#pragma GCC unroll 16
  for (int r = 0; r < R; ++r)
#pragma GCC unroll 8
    for (int v = 0; v < V; ++v) total[r][v] = p.first > 0 ? load(sums + r * kUnitColumns + v * kLanes) : VecF{};
  for (int64_t b = p.first; b < p.last; ++b) {
    VecI acc[R][V];
#pragma GCC unroll 8
    for (int v = 0; v < V; ++v) {
#pragma GCC unroll 16
      for (int r = 0; r < R; ++r) {
        acc[r][v] = Z == ZeroPoints::kFloats ? VecI{} : splat_i(negative_sums[r]);
        if (Z == ZeroPoints::kIntegers) acc[r][v] *= (VecI)load(zeros + v * kLanes);
      }
    }
    if (block % 32 == 0) {
      for (int64_t k = 0; k < block; k += 32, digits += 8 * kRow, q += 32)
        panel_products<Bits, R, V, 8>(digits, q, depth, acc);
    } else {
      for (int64_t k = 0; k < block; k += 16, digits += 4 * kRow, q += 16)
        panel_products<Bits, R, V, 4>(digits, q, depth, acc);
    }
#pragma GCC unroll 8
    for (int v = 0; v < V; ++v) {
      const VecF scale = load(scales + v * kLanes);
#pragma GCC unroll 16
      for (int r = 0; r < R; ++r) {
        total[r][v] += __builtin_convertvector(acc[r][v], VecF) * (scale * row_scales[r]);
        if (Z == ZeroPoints::kFloats) total[r][v] -= load(zeros + v * kLanes) * row_sums[r];
      }
    }
    scales += kUnitColumns;
    zeros += kUnitColumns;
    row_scales += count;
    negative_sums += count;
    row_sums += count;
  }
#pragma GCC unroll 16
  for (int r = 0; r < R; ++r)
#pragma GCC unroll 8
    for (int v = 0; v < V; ++v) store(sums + r * kUnitColumns + v * kLanes, total[r][v]);
}

}  // namespace SITU_ISA
}  // namespace situ
