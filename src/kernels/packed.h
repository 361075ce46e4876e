// Packed weights of situ.PackedMatMul: w [N, K] of 4 or 8 bits in blocks along K, laid out once at load so that a
// thread reads one stream front to back. One layout for all ISAs.
//
//   units of 32 columns (rows of w), the last one of 16 when N leaves 16 or fewer; a unit is a list of records,
//   one per block:
//     weights [panels of 16 columns][lines of 64 bytes]; a line is [16 columns][4 bytes]
//       4 bits: 8 consecutive k; byte i holds k + i in its low and k + 4 + i in its high half
//       8 bits: 4 consecutive k; byte i holds k + i
//     scales  [panels][16] half or float
//     zeros   [panels][16] bytes; none if all are 2^(bits - 1), or digits are looked up in a table; if they are no
//     integers, scale * zero point like the scales
//
// Columns beyond N have scale 0; k beyond K has digit 0 and meets activations that are 0.
#pragma once

#include "kernels/nbits_int8.h"
#include "kernels/packed_layout.h"

namespace situ {
namespace SITU_ISA {

// 32-bit words of 4 activation bytes, the same in every lane.
SITU_INLINE VecS splat_word(const int8_t* p) {
  typedef int32_t UnalignedWord __attribute__((aligned(1), may_alias));
  const int32_t word = *reinterpret_cast<const UnalignedWord*>(p);
#if defined(__AVX512F__)
  return (VecS)_mm512_set1_epi32(word);
#elif defined(__AVX2__)
  return (VecS)_mm256_set1_epi32(word);
#else
  return (VecS)splat_i(word);
#endif
}

// With VNNI the high digits are multiplied where they stand, 16 times too large, and divided once per block.
constexpr bool kDigitsInPlace = kVnni;

// sum += x at this place. Else GCC moves all additions of an unrolled loop behind its last product, and keeps the
// products in memory until then: a sixth more instructions for 128 rows times 4 or 8 bits with AVX2.
template <typename Vec>
SITU_INLINE void add_here(Vec& sum, Vec x) {
  sum += x;
#if defined(__AVX2__)
  asm("" : "+v"(sum));
#endif
}

// acc[lane] += the four products of unsigned bytes u and signed bytes s. The last lines hold for any u: they are what
// VNNI computes (SITU_EMULATE_VNNI: tests of its code on other CPUs).
SITU_INLINE void add_dots(VecI& acc, VecS u, VecS s) {
#if defined(__AVX512VNNI__)
  acc = (VecI)_mm512_dpbusd_epi32((__m512i)acc, (__m512i)u, (__m512i)s);
#elif defined(__AVXVNNI__)
  acc = (VecI)_mm256_dpbusd_avx_epi32((__m256i)acc, (__m256i)u, (__m256i)s);
#else
  const VecS even = (VecS)((VecU)u & 0x00ff00ffu), odd = (VecS)(((VecU)u >> 8) & 0x00ff00ffu);
  add_here(acc, word_products(even, (s << 8) >> 8) + word_products(odd, s >> 8));
#endif
}

// Without VNNI products of 4-bit digits are added up as 16 bits before they become 32, half the instructions and fewer:
// at most kMostWords products of 2 * 15 * 127 each, 30480 in all.
template <int Bits>
constexpr bool kWordSums = Bits == 4 && !kVnni;
constexpr int kMostWords = 8;

// Rows of activations for one call: either int8 per block, or floats; zero beyond K.
struct PackedRows {
  const int8_t* q = nullptr;  // [rows][depth]
  const float* x = nullptr;   // [rows][depth]
  // [blocks][count]: all rows of a block side by side.
  const float* scales = nullptr;  // int8 only
  // int8 with integer zeros: minus the block's sum of q, times 2^(bits - 1) where all zeros are that.
  const int32_t* negative_sums = nullptr;
  const float* sums = nullptr;  // else: the block's sum of x, rounded if int8
  int64_t depth = 0, count = 0;
  int planes = 1;  // so many of them, one behind the other, are a row of the call (kernels/packed_rows.h)
};

SITU_INLINE VecS packed_line(const uint8_t* p) { return *reinterpret_cast<const UnalignedS*>(p); }

// The scales (or zeros) of kLanes columns of a record.
SITU_INLINE VecF packed_floats(const PackedLayout& w, const uint8_t* p, int vector) {
  if (w.half_scales) return load(reinterpret_cast<const Half*>(p) + vector * kLanes);
  return load(reinterpret_cast<const float*>(p) + vector * kLanes);
}
SITU_INLINE VecF packed_scales(const PackedLayout& w, const uint8_t* record, int panels, int vector) {
  return packed_floats(w, record + w.weight_bytes(panels), vector);
}
// Scale times zero point, where zero points are floats.
SITU_INLINE VecF packed_offsets(const PackedLayout& w, const uint8_t* record, int panels, int vector) {
  return packed_floats(w, record + w.weight_bytes(panels) + w.scale_bytes(panels), vector);
}
SITU_INLINE VecI packed_zeros(const PackedLayout& w, const uint8_t* record, int panels, int vector) {
  return load_bytes(record + w.weight_bytes(panels) + w.scale_bytes(panels) + vector * kLanes);
}

constexpr int kPanelVectors = 16 / kLanes;  // vectors of columns in a panel

// Where a vector of columns has its lines within a record.
SITU_INLINE int64_t line_offset(const PackedLayout& w, int vector) {
  return (vector / kPanelVectors) * w.panel_bytes() + (vector % kPanelVectors) * kVectorBytes;
}

// acc[r][v] += R rows of bytes, `depth` apart, times `Lines` lines of the columns of vectors g .. g + G - 1, 4 bits.
template <int R, int V, int G, int Lines>
SITU_INLINE void add_word_sums(const uint8_t* lines, const int64_t* offset, int g, const int8_t* q, int64_t depth,
                               VecI (*acc)[V]) {
  static_assert(2 * Lines <= kMostWords);
  VecS words[R][G];
#pragma GCC unroll 4
  for (int l = 0; l < Lines; ++l) {
    VecS low[G], high[G];
#pragma GCC unroll 2
    for (int v = 0; v < G; ++v) {
      const uint8_t* p = lines + offset[g + v] + l * 64;
      if (R <= 2 && v % kPanelVectors == 0) __builtin_prefetch(p + kPrefetchBytes);
      low[v] = (VecS)((VecU)packed_line(p) & 0x0f0f0f0fu);
      high[v] = (VecS)(((VecU)packed_line(p) >> 4) & 0x0f0f0f0fu);
    }
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      const VecS first = splat_word(q + r * depth + l * 8), second = splat_word(q + r * depth + l * 8 + 4);
#pragma GCC unroll 2
      for (int v = 0; v < G; ++v) {
        if (l == 0)
          words[r][v] = byte_products(low[v], first);
        else
          add_here(words[r][v], byte_products(low[v], first));
        add_here(words[r][v], byte_products(high[v], second));
      }
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r)
#pragma GCC unroll 2
    for (int v = 0; v < G; ++v) add_here(acc[r][g + v], word_products(words[r][v], VecS{} + 1));
}

// sums[r][v] = rows r0 .. r0 + R - 1 times the columns of vectors v0 .. v0 + V - 1 of one unit.
template <int Bits, int R, int V, ZeroPoints Z>
SITU_INLINE void packed_int8(const PackedLayout& w, const PackedRows& rows, int64_t r0, const uint8_t* unit, int panels,
                             int v0, VecF (*total)[V]) {
  // Few chains are enough: the next block's do not depend on this one's. Two accumulators each must fit the registers.
  constexpr bool kSplit = Bits == 4 && kDigitsInPlace && R * V <= kVectorRegisters / 4;
  const int64_t record_bytes = w.record_bytes(panels), lines = w.lines();
  int64_t offset[V];
#pragma GCC unroll 8
  for (int v = 0; v < V; ++v) offset[v] = line_offset(w, v0 + v);
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 8
    for (int v = 0; v < V; ++v) total[r][v] = VecF{};
  }
  const int8_t* q = rows.q + r0 * rows.depth;
  for (int64_t b = 0; b < w.blocks; ++b) {
    const uint8_t* record = unit + b * record_bytes;
    VecI acc[R][V], high[R][V];
#pragma GCC unroll 8
    for (int v = 0; v < V; ++v) {
      VecI zeros{};
      if (Z == ZeroPoints::kIntegers) zeros = packed_zeros(w, record, panels, v0 + v);
#pragma GCC unroll 8
      for (int r = 0; r < R; ++r) {
        acc[r][v] = Z == ZeroPoints::kFloats ? VecI{} : splat_i(rows.negative_sums[b * rows.count + r0 + r]);
        if (Z == ZeroPoints::kIntegers) acc[r][v] *= zeros;
        high[r][v] = VecI{};
      }
    }
    if constexpr (kWordSums<Bits>) {
      constexpr int kGroup = V % 2 == 0 ? 2 : 1;  // vectors of columns, their digits in registers
#pragma GCC unroll 4
      for (int g = 0; g < V; g += kGroup) {
        if (lines % 4 == 0) {
          for (int64_t l = 0; l < lines; l += 4)
            add_word_sums<R, V, kGroup, 4>(record + l * 64, offset, g, q + l * 8, rows.depth, acc);
        } else {
          for (int64_t l = 0; l < lines; l += 2)
            add_word_sums<R, V, kGroup, 2>(record + l * 64, offset, g, q + l * 8, rows.depth, acc);
        }
      }
    } else {
      for (int64_t pair = 0; pair < lines; pair += 2) {
#pragma GCC unroll 2
        for (int64_t line = pair; line < pair + 2; ++line) {
          VecS digits[V];
#pragma GCC unroll 8
          for (int v = 0; v < V; ++v) digits[v] = packed_line(record + offset[v] + line * 64);
          if (R <= 3) {
#pragma GCC unroll 8
            for (int v = 0; v < V; ++v) __builtin_prefetch(record + offset[v] + line * 64 + 2 * kPrefetchBytes, 0, 2);
          }
#pragma GCC unroll 8
          for (int r = 0; r < R; ++r) {
            if constexpr (Bits == 4) {
              const int8_t* at = q + r * rows.depth + line * 8;
              const VecS first = splat_word(at), second = splat_word(at + 4);
#pragma GCC unroll 8
              for (int v = 0; v < V; ++v) {
                add_dots(acc[r][v], (VecS)((VecU)digits[v] & 0x0f0f0f0fu), first);
                if (kSplit)
                  add_dots(high[r][v], (VecS)((VecU)digits[v] & 0xf0f0f0f0u), second);
                else
                  add_dots(acc[r][v], (VecS)(((VecU)digits[v] >> 4) & 0x0f0f0f0fu), second);
              }
            } else {
              const VecS four = splat_word(q + r * rows.depth + line * 4);
#pragma GCC unroll 8
              for (int v = 0; v < V; ++v) add_dots(acc[r][v], digits[v], four);
            }
          }
        }
      }
    }
#pragma GCC unroll 8
    for (int v = 0; v < V; ++v) {
      const VecF scale = packed_scales(w, record, panels, v0 + v);
      VecF taken{};
      if (Z == ZeroPoints::kFloats) taken = packed_offsets(w, record, panels, v0 + v);
#pragma GCC unroll 8
      for (int r = 0; r < R; ++r) {
        const VecI dot = kSplit ? acc[r][v] + (high[r][v] >> 4) : acc[r][v];
        total[r][v] += __builtin_convertvector(dot, VecF) * (scale * rows.scales[b * rows.count + r0 + r]);
        if (Z == ZeroPoints::kFloats) total[r][v] -= taken * rows.sums[b * rows.count + r0 + r];
      }
    }
    q += w.block;
  }
}

// The vectors of columns of a whole unit.
constexpr int kUnitVectors = kUnitPanels * kPanelVectors;

// total = one row times all columns of a whole unit, 4 bits. The row's bytes of a group of lines stay in registers;
// without VNNI the products of a group are added up as 16 bits, at most 4 lines * 2 * 2 * 15 * 127 = 30480.
template <ZeroPoints Z, int Lines>
SITU_INLINE void packed_int8_unit(const PackedLayout& w, const PackedRows& rows, int64_t row, const uint8_t* unit,
                                  VecF* total) {
  const int64_t record_bytes = w.record_bytes(kUnitPanels), panel = w.panel_bytes(), groups = w.lines() / Lines;
  const int8_t* q = rows.q + row * rows.depth;
  VecF sums[kUnitVectors] = {};
  for (int64_t b = 0; b < w.blocks; ++b, unit += record_bytes) {
    VecI dots[kUnitVectors];
    const VecI minus = Z == ZeroPoints::kFloats ? VecI{} : splat_i(rows.negative_sums[b * rows.count + row]);
#pragma GCC unroll 8
    for (int v = 0; v < kUnitVectors; ++v)
      dots[v] = Z == ZeroPoints::kIntegers ? minus * packed_zeros(w, unit, kUnitPanels, v) : minus;
    for (int64_t g = 0; g < groups; ++g, q += Lines * 8) {
      VecS bytes[2 * Lines];  // of 4 k each
#pragma GCC unroll 8
      for (int i = 0; i < 2 * Lines; ++i) bytes[i] = splat_word(q + i * 4);
#pragma GCC unroll 8
      for (int v = 0; v < kUnitVectors; ++v) {
        const uint8_t* lines = unit + v / kPanelVectors * panel + g * Lines * 64 + v % kPanelVectors * kVectorBytes;
        VecS words{};
        VecI low = dots[v], high{};
#pragma GCC unroll 8
        for (int l = 0; l < Lines; ++l) {
          const VecU digits = (VecU)packed_line(lines + l * 64);
          if (v % kPanelVectors == 0) __builtin_prefetch(lines + l * 64 + kPrefetchBytes);
          if constexpr (kDigitsInPlace) {
            add_dots(low, (VecS)(digits & 0x0f0f0f0fu), bytes[2 * l]);
            add_dots(high, (VecS)(digits & 0xf0f0f0f0u), bytes[2 * l + 1]);
          } else {
            words += byte_products((VecS)(digits & 0x0f0f0f0fu), bytes[2 * l]);
            words += byte_products((VecS)((digits >> 4) & 0x0f0f0f0fu), bytes[2 * l + 1]);
          }
        }
        dots[v] = low + (kDigitsInPlace ? high >> 4 : word_products(words, VecS{} + 1));
      }
    }
    const VecF scale = splat(rows.scales[b * rows.count + row]);
#pragma GCC unroll 8
    for (int v = 0; v < kUnitVectors; ++v) {
      sums[v] += __builtin_convertvector(dots[v], VecF) * (packed_scales(w, unit, kUnitPanels, v) * scale);
      if (Z == ZeroPoints::kFloats)
        sums[v] -= packed_offsets(w, unit, kUnitPanels, v) * rows.sums[b * rows.count + row];
    }
  }
#pragma GCC unroll 8
  for (int v = 0; v < kUnitVectors; ++v) total[v] = sums[v];
}

// Symmetric 4-bit digits are looked up as signed numbers where the ISA can; all others come unsigned.
template <int Bits, ZeroPoints Z>
#if defined(__AVX512F__)
constexpr bool kSignedDigits = Bits == 4 && Z == ZeroPoints::kMiddle;
#else
constexpr bool kSignedDigits = false;
#endif

// Nothing is taken from the digits.
template <int Bits, ZeroPoints Z>
constexpr bool kWholeDigits = kSignedDigits<Bits, Z> || Z == ZeroPoints::kTable;

// The numbers that the low four bits of each lane stand for.
SITU_INLINE VecF look_up(VecU digits, const float* table) {
#if defined(__AVX512F__)
  return (VecF)_mm512_maskz_permutexvar_ps(kAllLanes, (__m512i)digits, _mm512_loadu_ps(table));
#elif defined(__AVX2__)
  const __m256 low = _mm256_permutevar8x32_ps(_mm256_loadu_ps(table), (__m256i)digits),
               high = _mm256_permutevar8x32_ps(_mm256_loadu_ps(table + 8), (__m256i)digits);
  return (VecF)_mm256_blendv_ps(low, high, (__m256)(digits << 28));
#else
  VecF numbers{};
  for (int lane = 0; lane < kLanes; ++lane) numbers[lane] = table[digits[lane] & 15];
  return numbers;
#endif
}

// Digit `i` of a line's words as floats, minus 8 if kSignedDigits: k + i of kLanes columns.
template <int Bits, ZeroPoints Z>
SITU_INLINE VecF packed_digit(VecU words, int i, [[maybe_unused]] const float* numbers) {
  const int shift = Bits == 8 ? 8 * i : 8 * (i % 4) + 4 * (i / 4);
  if constexpr (Z == ZeroPoints::kTable) return look_up(words >> shift, numbers);
#if defined(__AVX512F__)
  if constexpr (Bits == 4) {  // a table of 16 floats by the low four bits of each lane: no mask, no conversion
    const float z = Z == ZeroPoints::kMiddle ? 8.0f : 0.0f;
    const __m512 table = _mm512_setr_ps(0 - z, 1 - z, 2 - z, 3 - z, 4 - z, 5 - z, 6 - z, 7 - z, 8 - z, 9 - z, 10 - z,
                                        11 - z, 12 - z, 13 - z, 14 - z, 15 - z);
    return (VecF)_mm512_maskz_permutexvar_ps(kAllLanes, (__m512i)(words >> shift), table);
  }
#endif
  return __builtin_convertvector((VecI)((words >> shift) & ((1u << Bits) - 1)), VecF);
}

// What is taken from the digits of kLanes columns of a record, times their scale.
template <int Bits, ZeroPoints Z>
SITU_INLINE VecF offset_of(const PackedLayout& w, const uint8_t* record, int panels, int vector, VecF scale) {
  if constexpr (kWholeDigits<Bits, Z>)
    return VecF{};
  else if constexpr (Z == ZeroPoints::kFloats)
    return packed_offsets(w, record, panels, vector);
  else if constexpr (Z == ZeroPoints::kIntegers)
    return __builtin_convertvector(packed_zeros(w, record, panels, vector), VecF) * scale;
  else
    return scale * static_cast<float>(1 << (Bits - 1));
}

// The same as packed_int8 on float activations.
template <int Bits, int R, int V, ZeroPoints Z>
SITU_INLINE void packed_float(const PackedLayout& w, const PackedRows& rows, int64_t r0, const uint8_t* unit,
                              int panels, int v0, VecF (*total)[V]) {
  constexpr int kDigits = 32 / Bits;
  const int64_t record_bytes = w.record_bytes(panels), lines = w.lines();
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 8
    for (int v = 0; v < V; ++v) total[r][v] = VecF{};
  }
  const float* x = rows.x + r0 * rows.depth;
  for (int64_t b = 0; b < w.blocks; ++b) {
    const uint8_t* record = unit + b * record_bytes;
    VecF acc[R][V] = {};
    for (int64_t line = 0; line < lines; ++line) {
#pragma GCC unroll 8
      for (int v = 0; v < V; ++v) {
        const uint8_t* p = record + line_offset(w, v0 + v) + line * 64;
        const VecU words = (VecU)packed_line(p);
        // Into the second cache and farther than bytes are: these loops take as long as memory does, and a matrix of
        // an expert begins anywhere (4 of 48 layers of Qwen3-30B-A3B 6.2 to 5.7 ms a token).
        if (R <= 2) __builtin_prefetch(p + 2 * kPrefetchBytes, 0, 2);
#pragma GCC unroll 8
        for (int i = 0; i < kDigits; ++i) {
          const VecF digit = packed_digit<Bits, Z>(words, i, w.table);
#pragma GCC unroll 8
          for (int r = 0; r < R; ++r) acc[r][v] += digit * x[r * rows.depth + line * kDigits + i];
        }
      }
    }
#pragma GCC unroll 8
    for (int v = 0; v < V; ++v) {
      const VecF scale = packed_scales(w, record, panels, v0 + v);
      const VecF offset = offset_of<Bits, Z>(w, record, panels, v0 + v, scale);
#pragma GCC unroll 8
      for (int r = 0; r < R; ++r) {
        total[r][v] += acc[r][v] * scale;
        if (!kWholeDigits<Bits, Z>) total[r][v] -= offset * rows.sums[b * rows.count + r0 + r];
      }
    }
    x += w.block;
  }
}

// Weights of the blocks [b0, b1) of `vectors` vectors of columns from v0 on, as floats: panel[k][vectors * kLanes].
template <int Bits, ZeroPoints Z>
static inline void unpack_panel(const PackedLayout& w, const uint8_t* unit, int panels, int v0, int vectors, int64_t b0,
                                int64_t b1, float* panel) {
  constexpr int kDigits = 32 / Bits;
  const int64_t row = vectors * kLanes;
  for (int64_t b = b0; b < b1; ++b) {
    const uint8_t* record = unit + b * w.record_bytes(panels);
    for (int v = 0; v < vectors; ++v) {
      float* to = panel + (b - b0) * w.block * row + v * kLanes;
      if (v0 + v >= panels * kPanelVectors) {  // beyond the last unit's columns
        for (int64_t k = 0; k < w.block; ++k) store(to + k * row, VecF{});
        continue;
      }
      const VecF scale = packed_scales(w, record, panels, v0 + v);
      const VecF offset = offset_of<Bits, Z>(w, record, panels, v0 + v, scale);
      const uint8_t* p = record + line_offset(w, v0 + v);
      for (int64_t line = 0; line < w.lines(); ++line) {
        const VecU words = (VecU)packed_line(p + line * 64);
#pragma GCC unroll 8
        for (int i = 0; i < kDigits; ++i)
          store(to + (line * kDigits + i) * row, packed_digit<Bits, Z>(words, i, w.table) * scale - offset);
      }
    }
  }
}

}  // namespace SITU_ISA
}  // namespace situ
