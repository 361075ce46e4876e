// Block-quantised weights times float activations: digits become floats in registers.
#pragma once

#include "kernels/nbits.h"

namespace situ {
namespace SITU_ISA {

// Rows of activations laid out as the weights' chunks are: x [chunk][digit][lane], and the sum of each
// lane's activations, which multiplies the zero point.
struct FloatRows {
  float* x;
  float* lane_sums;  // [chunk][lane]
  int64_t row_floats;

  static int64_t floats_per_row(const NBitsWeights& w) { return w.chunks * kLanes * (32 / w.bits + 1); }
  const float* row_x(int64_t r) const { return x + r * row_floats; }
  const float* row_sums(int64_t r) const { return lane_sums + r * row_floats; }
};

static inline void lay_out_row(const NBitsWeights& w, const std::byte* a, DType type, int64_t offset, int64_t step,
                               float* x, float* lane_sums) {
  const int per = 32 / w.bits;
  for (int64_t chunk = 0; chunk < w.chunks; ++chunk) {
    float* to = x + chunk * kLanes * per;
    const int64_t k0 = chunk * kLanes * per;
    float row[kLanes * 16];
    // The padding of the last block may fill whole chunks.
    const int64_t rest = w.k > k0 ? w.k - k0 : 0, count = rest < kLanes * per ? rest : kLanes * per;
    read_row(a, type, offset + k0 * step, step, count, row);
    for (int64_t i = count; i < kLanes * per; ++i) row[i] = 0;
    VecF sum{};
    for (int i = 0; i < per; ++i) {
      for (int lane = 0; lane < kLanes; ++lane) to[i * kLanes + lane] = row[lane * per + i];
      sum += load(to + i * kLanes);
    }
    store(lane_sums + chunk * kLanes, sum);
  }
}

// Digit `i` of every word as a float. AVX-512 looks digits of up to 4 bits up in a register (the index is the
// low 4 bits of each lane, so no mask) and gets the symmetric zero point for free; others convert.
#if defined(__AVX512F__)
template <int Bits>
constexpr bool kDigitTable = Bits <= 4;
#else
template <int Bits>
constexpr bool kDigitTable = false;
#endif

template <int Bits>
SITU_INLINE VecF digit_table(bool symmetric) {
  const int32_t mask = (1 << Bits) - 1, zero = symmetric ? 1 << (Bits - 1) : 0;
  return __builtin_convertvector((lane_index() & mask) - zero, VecF);
}

template <int Bits>
SITU_INLINE VecF digit(VecU words, int i, VecF table) {
  const VecU shifted = words >> (Bits * i);
#if defined(__AVX512F__)
  if constexpr (kDigitTable<Bits>) return (VecF)_mm512_maskz_permutexvar_ps(kAllLanes, (__m512i)shifted, (__m512)table);
#endif
  (void)table;
  return __builtin_convertvector((VecI)(shifted & ((1u << Bits) - 1)), VecF);
}

// One chunk of R rows and C columns: partial sums are scaled, so that a row has the same sums whoever is with it.
template <int Bits, int R, int C, bool Symmetric>
SITU_INLINE void float_chunk(const NBitsWeights& w, const FloatRows& rows, int64_t r0, const NBitsColumn* columns,
                             const NBitsChunk& chunk, VecF* total) {
  constexpr int kPer = 32 / Bits;
  constexpr bool kOffset = !(kDigitTable<Bits> && Symmetric);
  const VecF table = digit_table<Bits>(Symmetric);
  VecU words[C];
  VecF part[R][C] = {};
#pragma GCC unroll 4
  for (int c = 0; c < C; ++c) {
    words[c] = chunk_words(columns[c], chunk);
    if (R <= 2) __builtin_prefetch(columns[c].q + chunk.index * kVectorBytes + kPrefetchBytes);
  }
#pragma GCC unroll 16
  for (int i = 0; i < kPer; ++i) {
    VecF digits[C];
#pragma GCC unroll 4
    for (int c = 0; c < C; ++c) digits[c] = digit<Bits>(words[c], i, table);
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      const VecF a = load(rows.row_x(r0 + r) + (chunk.index * kPer + i) * kLanes);
#pragma GCC unroll 4
      for (int c = 0; c < C; ++c) part[r][c] += a * digits[c];
    }
  }
#pragma GCC unroll 4
  for (int c = 0; c < C; ++c) {
    const VecF scale = spread_blocks(w, columns[c].scales, chunk),
               zero = Symmetric ? splat(1 << (Bits - 1)) : spread_blocks(w, columns[c].zeros, chunk);
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      if (kOffset) part[r][c] -= zero * load(rows.row_sums(r0 + r) + chunk.index * kLanes);
      total[r * C + c] += part[r][c] * scale;
    }
  }
}

// sums[r * C + c] = a[row r] . columns[c].
template <int Bits, int R, int C, bool Symmetric>
static inline void float_dots(const NBitsWeights& w, const FloatRows& rows, int64_t r0, const NBitsColumn* columns,
                              float* sums) {
  VecF total[R * C] = {};
  const int64_t full = w.words / kLanes;
  for (int64_t i = 0; i < full; ++i) {
    float_chunk<Bits, R, C, Symmetric>(w, rows, r0, columns, full_chunk(w, i), total);
  }
  if (full < w.chunks) float_chunk<Bits, R, C, Symmetric>(w, rows, r0, columns, last_chunk(w, full), total);
  sum_all<R * C>(total, sums);
}

}  // namespace SITU_ISA
}  // namespace situ
