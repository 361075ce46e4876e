// Block-quantised weights times activations quantised to int8 per block (accuracy_level 4).
//
// scale_a[b] = amax(block b of a) / 127, qa = round(a / scale_a): the same rule as ONNX Runtime's, so that
// greedy tokens agree with it. Measured against ORT 1.31 at level 4, K 576: this mode differs by 2e-7 of the
// result's rms, exact floats by 5e-3 to 2e-2. It is also faster: SmolLM2-135M's matrices at M = 1 take 2.2 ms on two
// AVX-512 cores, 3.5 ms in floats. Digits are unsigned bytes, activations signed: a byte product sum (or, for 8-bit
// weights, a 16-bit one) gives the exact integer dot of each lane's weights.
#pragma once

#include "kernels/nbits.h"

namespace situ {
namespace SITU_ISA {

typedef int16_t VecS __attribute__((vector_size(kVectorBytes)));
typedef int16_t UnalignedS __attribute__((vector_size(kVectorBytes), aligned(1), may_alias));

// Whether products of bytes and of pairs of words are added up by one instruction (VNNI).
#if defined(__AVX512VNNI__) || defined(__AVXVNNI__) || defined(SITU_EMULATE_VNNI)
constexpr bool kVnni = true;
#else
constexpr bool kVnni = false;
#endif

// sum over byte pairs of unsigned x signed, saturating int16; over int16 pairs, int32; and the nearest integer,
// ties to even.
#if defined(__AVX512F__)
SITU_INLINE VecI nearest(VecF x) { return (VecI)_mm512_maskz_cvtps_epi32(kAllLanes, (__m512)x); }
SITU_INLINE VecS byte_products(VecS u, VecS s) { return (VecS)_mm512_maddubs_epi16((__m512i)u, (__m512i)s); }
SITU_INLINE VecI word_products(VecS a, VecS b) { return (VecI)_mm512_madd_epi16((__m512i)a, (__m512i)b); }
#elif defined(__AVX2__)
SITU_INLINE VecI nearest(VecF x) { return (VecI)_mm256_cvtps_epi32((__m256)x); }
SITU_INLINE VecS byte_products(VecS u, VecS s) { return (VecS)_mm256_maddubs_epi16((__m256i)u, (__m256i)s); }
SITU_INLINE VecI word_products(VecS a, VecS b) { return (VecI)_mm256_madd_epi16((__m256i)a, (__m256i)b); }
#else
SITU_INLINE VecI nearest(VecF x) {
  VecI v{};
  for (int i = 0; i < kLanes;
       ++i)  // what int32 does not hold, NaN too, is its least number, as x86's instruction has it
    v[i] = __builtin_fabsf(x[i]) < 0x1p31f ? static_cast<int32_t>(__builtin_nearbyintf(x[i])) : INT32_MIN;
  return v;
}
SITU_INLINE VecS byte_products(VecS u, VecS s) {  // what is multiplied here never overflows
  const VecS low = (s << 8) >> 8, high = s >> 8;
  return (u & 0xff) * low + ((u >> 8) & 0xff) * high;
}
SITU_INLINE VecI word_products(VecS a, VecS b) {
#if defined(__SSE2__)
  return (VecI)_mm_madd_epi16((__m128i)a, (__m128i)b);
#else
  const VecI x = (VecI)a, y = (VecI)b;
  return ((x << 16) >> 16) * ((y << 16) >> 16) + (x >> 16) * (y >> 16);
#endif
}
#endif

// The nearest integers from -127 to 127.
SITU_INLINE VecI nearest_bytes(VecF x) {
  VecI r = nearest(x);
  r = r > 127 ? splat_i(127) : r;
  return r < -127 ? splat_i(-127) : r;
}

// The larger magnitude, as bits: infinities and NaN are larger than all numbers, so that a scale made of them makes NaN
// of what it is a factor of. `largest`: a magnitude.
SITU_INLINE VecF larger_magnitude(VecF x, VecF largest) {
  const VecI a = (VecI)x & 0x7fffffff, b = (VecI)largest;
#if defined(__AVX512F__)
  return (VecF)_mm512_maskz_max_epi32(kAllLanes, (__m512i)a, (__m512i)b);
#elif defined(__AVX2__)
  return (VecF)_mm256_max_epi32((__m256i)a, (__m256i)b);
#else
  return (VecF)(a > b ? a : b);
#endif
}
// Across the lanes of a magnitude; lane i of the other: of v[i], i < kLanes, which it overwrites.
SITU_INLINE float largest_lane(VecF v) {
#pragma GCC unroll 4
  for (int step = kLanes / 2; step > 0; step /= 2) v = larger_magnitude(shuffle(v, lane_index() ^ step), v);
  return v[0];
}
SITU_INLINE VecF largest_of_each(VecF* v) {
  return join_each(v, [](VecF a, VecF b) __attribute__((always_inline)) { return larger_magnitude(a, b); });
}
SITU_INLINE VecF inverse_of(VecF scale) { return scale > 0.0f ? 1.0f / scale : VecF{}; }

// Planes of activations per chunk, a vector each: plane j matches digit j of every byte; 8-bit weights take
// two planes of int16, for the even and the odd bytes.
template <int Bits>
constexpr int kPlanes = Bits == 8 ? 2 : 8 / Bits;

// Level 4 allows it; there is no such kernel for other blocks of 2 bits.
SITU_INLINE bool rounds_activations(const NBitsWeights& w, int32_t accuracy_level) {
  return accuracy_level == 4 && (w.bits != 2 || (w.block >= 32 && w.block <= 128));
}

struct Int8Rows {
  int8_t* q;          // [chunk][plane][vector]
  float* lane_sums;   // [chunk][lane]: sum of the lane's quantised activations times their scale, times the
                      // zero point when that is the same for all weights
  float* scales;      // [chunk][lane]
  int64_t row_bytes;  // from one row's data to the next, for all three

  static int64_t bytes_per_row(const NBitsWeights& w) {
    const int64_t planes = w.bits == 8 ? 2 : 8 / w.bits;
    return w.chunks * kVectorBytes * (planes + 2);
  }
  const int8_t* row_q(int64_t r) const { return q + r * row_bytes; }
  const float* row_sums(int64_t r) const {
    return reinterpret_cast<const float*>(reinterpret_cast<const int8_t*>(lane_sums) + r * row_bytes);
  }
  const float* row_scales(int64_t r) const {
    return reinterpret_cast<const float*>(reinterpret_cast<const int8_t*>(scales) + r * row_bytes);
  }
};

// q[0 .. count) = round(x / scale) with scale = amax / 127, which is returned: NaN where a number is. Zero up to
// `block`.
SITU_INLINE float quantize_block(const float* x, int64_t count, int64_t block, int8_t* q) {
  VecF largest{};
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) largest = larger_magnitude(load(x + i), largest);
  if (i < count) largest = larger_magnitude(load_n(x + i, count - i), largest);
  const float scale = largest_lane(largest) / 127.0f, inverse = scale > 0 ? 1.0f / scale : 0.0f;
  for (i = 0; i < block; i += kLanes) {  // blocks are multiples of 16
    const int64_t rest = count - i;
    const VecF v = (rest >= kLanes ? load(x + i) : load_n(x + i, rest > 0 ? rest : 0)) * inverse;
    *reinterpret_cast<UnalignedB*>(q + i) = __builtin_convertvector(nearest_bytes(v), VecB);
  }
  return scale;
}

// x [k] quantised into one row of `rows`; bytes: room for a chunk's weights (kLanes * 16).
template <int Bits>
static inline void quantize_row(const NBitsWeights& w, const float* x, int8_t* q, float* lane_sums, float* scales,
                                int8_t* bytes) {
  constexpr int kPer = 32 / Bits;
  constexpr int64_t kWeights = kLanes * kPer;
  const VecS ones = VecS{} + 1;
  float scale = 0;
  for (int64_t chunk = 0; chunk < w.chunks; ++chunk) {
    const int64_t k0 = chunk * kWeights;
    float block_scales[kLanes] = {};
    int at = 0;
    if (w.block <= kWeights) {
      for (int64_t i = 0; i < kWeights; i += w.block) {
        const int64_t rest = w.k - (k0 + i);
        block_scales[at++] =
            quantize_block(x + k0 + i, rest < 0 ? 0 : (rest < w.block ? rest : w.block), w.block, bytes + i);
      }
    } else {
      if (k0 % w.block == 0) {  // the whole block at once: it spans several chunks
        const int64_t rest = w.k - k0;
        scale = quantize_block(x + k0, rest < w.block ? rest : w.block, w.block, bytes);
      }
      block_scales[0] = scale;
    }
    const int8_t* from = w.block <= kWeights ? bytes : bytes + k0 % w.block;
    int8_t* planes = q + chunk * kPlanes<Bits> * kVectorBytes;
    VecI sum{};
    if constexpr (Bits == 8) {
      int16_t* even = reinterpret_cast<int16_t*>(planes);
      int16_t* odd = reinterpret_cast<int16_t*>(planes + kVectorBytes);
      for (int i = 0; i < 2 * kLanes; ++i) {
        even[i] = from[2 * i];
        odd[i] = from[2 * i + 1];
      }
      sum = word_products(*reinterpret_cast<const UnalignedS*>(even), ones) +
            word_products(*reinterpret_cast<const UnalignedS*>(odd), ones);
    } else {
      for (int plane = 0; plane < kPlanes<Bits>; ++plane) {
        int8_t* to = planes + plane * kVectorBytes;
        for (int i = 0; i < kVectorBytes; ++i) to[i] = from[i * kPlanes<Bits> + plane];
        const VecS unsigned_ones = VecS{} + 0x0101;
        sum += word_products(byte_products(unsigned_ones, *reinterpret_cast<const UnalignedS*>(to)), ones);
      }
    }
    const VecF lane_scales =
        w.chunk_blocks == 1 ? splat(block_scales[0]) : shuffle(load(block_scales), w.block_of_lane);
    const float zero = w.symmetric() ? static_cast<float>(1 << (Bits - 1)) : 1.0f;
    store(lane_sums + chunk * kLanes, __builtin_convertvector(sum, VecF) * lane_scales * zero);
    store(scales + chunk * kLanes, lane_scales);
  }
}

template <int Bits>
SITU_INLINE VecS byte_digits(VecU words, int plane) {
  if constexpr (Bits == 8) return plane == 0 ? (VecS)(words & 0x00ff00ffu) : (VecS)((words >> 8) & 0x00ff00ffu);
  return (VecS)((words >> (Bits * plane)) & (Bits == 4 ? 0x0f0f0f0fu : 0x03030303u));
}

template <int Bits, int R, int C, bool Symmetric>
SITU_INLINE void int8_chunk(const NBitsWeights& w, const Int8Rows& rows, int64_t r0, const NBitsColumn* columns,
                            const NBitsChunk& chunk, VecF* total) {
  const VecS ones = VecS{} + 1;
  VecS digits[C][kPlanes<Bits>];
  VecF scale[C], zero[C];
#pragma GCC unroll 4
  for (int c = 0; c < C; ++c) {
    const VecU words = chunk_words(columns[c], chunk);
#pragma GCC unroll 4
    for (int j = 0; j < kPlanes<Bits>; ++j) digits[c][j] = byte_digits<Bits>(words, j);
    scale[c] = spread_blocks(w, columns[c].scales, chunk);
    if (!Symmetric) zero[c] = spread_blocks(w, columns[c].zeros, chunk);
    if (R <= 2) __builtin_prefetch(columns[c].q + chunk.index * kVectorBytes + kPrefetchBytes);
  }
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
    const int8_t* q = rows.row_q(r0 + r) + chunk.index * kPlanes<Bits> * kVectorBytes;
    VecS plane[kPlanes<Bits>];
#pragma GCC unroll 4
    for (int j = 0; j < kPlanes<Bits>; ++j) plane[j] = *reinterpret_cast<const UnalignedS*>(q + j * kVectorBytes);
    const VecF lane_sum = load(rows.row_sums(r0 + r) + chunk.index * kLanes);
    const VecF a_scale = load(rows.row_scales(r0 + r) + chunk.index * kLanes);
#pragma GCC unroll 4
    for (int c = 0; c < C; ++c) {
      VecI dot;
      if constexpr (Bits == 8) {
        dot = word_products(digits[c][0], plane[0]) + word_products(digits[c][1], plane[1]);
      } else {
        // At most 2 * 15 * 127 per plane and int16 lane: two planes of 4 bits, four of 2 bits fit.
        VecS pairs = byte_products(digits[c][0], plane[0]);
#pragma GCC unroll 4
        for (int j = 1; j < kPlanes<Bits>; ++j) pairs += byte_products(digits[c][j], plane[j]);
        dot = word_products(pairs, ones);
      }
      VecF part = __builtin_convertvector(dot, VecF) * a_scale;
      part -= Symmetric ? lane_sum : zero[c] * lane_sum;
      total[r * C + c] += part * scale[c];
    }
  }
}

// sums[r * C + c] = a[row r] . columns[c].
template <int Bits, int R, int C, bool Symmetric>
static inline void int8_dots(const NBitsWeights& w, const Int8Rows& rows, int64_t r0, const NBitsColumn* columns,
                             float* sums) {
  VecF total[R * C] = {};
  const int64_t full = w.words / kLanes;
  for (int64_t i = 0; i < full; ++i) {
    int8_chunk<Bits, R, C, Symmetric>(w, rows, r0, columns, full_chunk(w, i), total);
  }
  if (full < w.chunks) int8_chunk<Bits, R, C, Symmetric>(w, rows, r0, columns, last_chunk(w, full), total);
  sum_all<R * C>(total, sums);
}

}  // namespace SITU_ISA
}  // namespace situ
