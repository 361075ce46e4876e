// One vector type per ISA, over GCC's vector extensions: loads and stores of float, half and bfloat16
// with partial counts, sums across lanes, exp and tanh. Everything has internal linkage.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/isa.h"
#include "kernels/math.h"

#if defined(__SSE2__)
#include <immintrin.h>  // only always-inline wrappers of instructions
#endif

#define SITU_INLINE static inline __attribute__((always_inline))

namespace situ {
namespace SITU_ISA {

#if defined(__AVX512F__)
constexpr int kLanes = 16;
constexpr int kVectorRegisters = 32;
// The zero-masked forms of intrinsics are used because GCC 12 warns about the undefined vector inside the plain ones.
constexpr __mmask16 kAllLanes = 0xffff;
#elif defined(__AVX2__)
constexpr int kLanes = 8;
constexpr int kVectorRegisters = 16;
#else
constexpr int kLanes = 4;
constexpr int kVectorRegisters = 16;
#endif
constexpr int kVectorBytes = kLanes * 4;

typedef float VecF __attribute__((vector_size(kVectorBytes)));
typedef int32_t VecI __attribute__((vector_size(kVectorBytes)));
typedef uint32_t VecU __attribute__((vector_size(kVectorBytes)));
typedef uint16_t VecH __attribute__((vector_size(kVectorBytes / 2)));
typedef float UnalignedF __attribute__((vector_size(kVectorBytes), aligned(4), may_alias));
typedef uint32_t UnalignedU __attribute__((vector_size(kVectorBytes), aligned(1), may_alias));
typedef uint16_t UnalignedH __attribute__((vector_size(kVectorBytes / 2), aligned(2), may_alias));
typedef float FloatAnywhere __attribute__((aligned(1), may_alias));
typedef int8_t VecB __attribute__((vector_size(kLanes)));
typedef int8_t UnalignedB __attribute__((vector_size(kLanes), aligned(1), may_alias));
typedef uint8_t VecU8 __attribute__((vector_size(kLanes)));
typedef uint8_t UnalignedU8 __attribute__((vector_size(kLanes), aligned(1), may_alias));

// Of vector registers: code without AVX that runs while they are in use waits for them at every instruction.
SITU_INLINE void empty_upper_halves() {
#if defined(__AVX__)
  _mm256_zeroupper();
#endif
}

SITU_INLINE VecF splat(float x) {
#if defined(__AVX512F__)
  return (VecF)_mm512_set1_ps(x);
#elif defined(__AVX2__)
  return (VecF)_mm256_set1_ps(x);
#else
  return VecF{x, x, x, x};
#endif
}
SITU_INLINE VecI splat_i(int32_t x) { return VecI{} + x; }
SITU_INLINE VecI lane_index() {
  VecI v{};
  for (int i = 0; i < kLanes; ++i) v[i] = i;
  return v;
}
// Lane i is lane index[i] of v, or of a and b one behind the other. With GCC one instruction.
template <typename V>
SITU_INLINE V shuffle(V v, VecI index) {
#if defined(__clang__)
  V r{};
  for (int i = 0; i < kLanes; ++i) r[i] = v[index[i] & (kLanes - 1)];
  return r;
#else
  return __builtin_shuffle(v, index);
#endif
}
SITU_INLINE VecF shuffle(VecF a, VecF b, VecI index) {
#if defined(__clang__)
  VecF r{};
  for (int i = 0; i < kLanes; ++i)
    r[i] = (index[i] & kLanes) != 0 ? b[index[i] & (kLanes - 1)] : a[index[i] & (kLanes - 1)];
  return r;
#else
  return __builtin_shuffle(a, b, index);
#endif
}
// a > b ? a : b, also where one is NaN. GCC 12 makes a comparison and a blend of that when one of them is a constant.
SITU_INLINE VecF vmax(VecF a, VecF b) {
#if defined(__AVX512F__)
  return (VecF)_mm512_maskz_max_ps(kAllLanes, (__m512)a, (__m512)b);
#elif defined(__AVX2__)
  return (VecF)_mm256_max_ps((__m256)a, (__m256)b);
#else
  return a > b ? a : b;
#endif
}

// -- single elements
SITU_INLINE float to_float(float x) { return x; }
SITU_INLINE float to_float(int8_t x) { return x; }
SITU_INLINE void from_float(float* p, float x) { *p = x; }
SITU_INLINE void from_float(Half* p, float x) { *p = to_half(x); }
SITU_INLINE void from_float(BFloat* p, float x) { *p = to_bfloat(x); }

// -- whole vectors
SITU_INLINE VecF load(const float* p) { return *reinterpret_cast<const UnalignedF*>(p); }
// GCC 12 converts integers of 8 bits to 32 one by one, unless it is told the instruction.
SITU_INLINE VecI load_bytes(const uint8_t* p) {
#if defined(__AVX512F__)
  return (VecI)_mm512_maskz_cvtepu8_epi32(kAllLanes, _mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
#elif defined(__AVX2__)
  return (VecI)_mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)));
#else
  return __builtin_convertvector(VecU8(*reinterpret_cast<const UnalignedU8*>(p)), VecI);
#endif
}
SITU_INLINE VecI load_bytes(const int8_t* p) {
#if defined(__AVX512F__)
  return (VecI)_mm512_maskz_cvtepi8_epi32(kAllLanes, _mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
#elif defined(__AVX2__)
  return (VecI)_mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)));
#else
  return __builtin_convertvector(VecB(*reinterpret_cast<const UnalignedB*>(p)), VecI);
#endif
}
SITU_INLINE VecF load(const int8_t* p) { return __builtin_convertvector(load_bytes(p), VecF); }
SITU_INLINE VecF load(const BFloat* p) {
  const VecH h = *reinterpret_cast<const UnalignedH*>(p);
  return (VecF)(__builtin_convertvector(h, VecU) << 16);
}
SITU_INLINE VecF load(const Half* p) {
#if defined(__AVX512F__)
  return (VecF)_mm512_maskz_cvtph_ps(kAllLanes, _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
#elif defined(__F16C__)
  return (VecF)_mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
#else
  const VecU h = __builtin_convertvector(VecH(*reinterpret_cast<const UnalignedH*>(p)), VecU);
  const VecU magnitude = h & 0x7fffu;
  VecU u = (VecU)((VecF)(magnitude << 13) * bits_float(0x77800000u));
  u |= magnitude >= 0x7c00u ? VecU{} + 0x7f800000u : VecU{};
  return (VecF)(u | ((h & 0x8000u) << 16));
#endif
}
SITU_INLINE void store(float* p, VecF v) { *reinterpret_cast<UnalignedF*>(p) = v; }
SITU_INLINE void store(BFloat* p, VecF v) {
  const VecU u = (VecU)v;
  const VecU rounded = (u + 0x7fffu + ((u >> 16) & 1u)) >> 16;
  const VecU out = (u & 0x7fffffffu) > 0x7f800000u ? (u >> 16) | 0x40u : rounded;
  *reinterpret_cast<UnalignedH*>(p) = __builtin_convertvector(out, VecH);
}
SITU_INLINE void store(Half* p, VecF v) {
#if defined(__AVX512F__)
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm512_maskz_cvtps_ph(kAllLanes, (__m512)v, 0));
#elif defined(__F16C__)
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm256_cvtps_ph((__m256)v, 0));
#else
  for (int i = 0; i < kLanes; ++i) p[i] = to_half(v[i]);
#endif
}

// The first n <= kLanes elements; the other lanes are 0. Reads and writes nothing beyond them.
SITU_INLINE VecF load_n(const float* p, int64_t n) {
#if defined(__AVX512F__)
  return (VecF)_mm512_maskz_loadu_ps(static_cast<__mmask16>((1u << n) - 1), p);
#elif defined(__AVX2__)
  return (VecF)_mm256_maskload_ps(p, (__m256i)(lane_index() < static_cast<int32_t>(n)));
#else
  VecF v{};
  for (int64_t i = 0; i < n; ++i) v[i] = p[i];
  return v;
#endif
}
template <typename T>
SITU_INLINE VecF load_n(const T* p, int64_t n) {
  if (n == kLanes) return load(p);
  T padded[kLanes] = {};
  for (int64_t i = 0; i < n; ++i) padded[i] = p[i];
  return load(padded);
}
// The first n <= kLanes 32-bit words at any address.
SITU_INLINE VecU load_words(const uint8_t* p, int64_t n) {
#if defined(__AVX2__)
  return (VecU)load_n(reinterpret_cast<const float*>(p), n);
#else
  typedef uint32_t UnalignedWord __attribute__((aligned(1), may_alias));
  VecU v{};
  for (int64_t i = 0; i < n; ++i) v[i] = reinterpret_cast<const UnalignedWord*>(p)[i];
  return v;
#endif
}
SITU_INLINE void store_n(float* p, VecF v, int64_t n) {
#if defined(__AVX512F__)
  _mm512_mask_storeu_ps(p, static_cast<__mmask16>((1u << n) - 1), (__m512)v);
#elif defined(__AVX2__)
  _mm256_maskstore_ps(p, (__m256i)(lane_index() < static_cast<int32_t>(n)), (__m256)v);
#else
  for (int64_t i = 0; i < n; ++i) p[i] = v[i];
#endif
}
template <typename T>
SITU_INLINE void store_n(T* p, VecF v, int64_t n) {
  T padded[kLanes];
  store(padded, v);
  for (int64_t i = 0; i < n; ++i) p[i] = padded[i];
}

// -- across lanes
// In the order of sum_each, so that a sum is the same number alone and beside others.
SITU_INLINE float sum_lanes(VecF v) {
#pragma GCC unroll 4
  for (int bit = 1; bit < kLanes; bit *= 2) v += shuffle(v, lane_index() ^ bit);
  return v[0];
}
SITU_INLINE float max_lanes(VecF v) {
#pragma GCC unroll 4
  for (int step = kLanes / 2; step > 0; step /= 2) v = vmax(v, shuffle(v, lane_index() ^ step));
  return v[0];
}
// Lane i of the result is the lanes of v[i], i < kLanes, joined by `join`. Overwrites v.
template <typename Join>
SITU_INLINE VecF join_each(VecF* v, Join join) {
#pragma GCC unroll 4
  for (int bit = 1; bit < kLanes; bit *= 2) {
    const VecI odd = (lane_index() & bit) != 0;
    const VecI straight = lane_index() + (odd & kLanes), swapped = (lane_index() ^ bit) + (odd & kLanes);
#pragma GCC unroll 16
    for (int i = 0; i < kLanes; i += 2 * bit) {
      v[i] = join(shuffle(v[i], v[i + bit], straight), shuffle(v[i], v[i + bit], swapped));
    }
  }
  return v[0];
}
SITU_INLINE VecF sum_each(VecF* v) {
  return join_each(v, [](VecF a, VecF b) __attribute__((always_inline)) { return a + b; });
}
SITU_INLINE VecF max_each(VecF* v) {
  return join_each(v, [](VecF a, VecF b) __attribute__((always_inline)) { return vmax(a, b); });
}

// out[i] = sum of the lanes of v[i], i < N. Overwrites v.
template <int N>
SITU_INLINE void sum_all(VecF* v, float* out) {
  if constexpr (N % kLanes == 0) {
#pragma GCC unroll 8
    for (int i = 0; i < N; i += kLanes) store(out + i, sum_each(v + i));
  } else {
#pragma GCC unroll 16
    for (int i = 0; i < N; ++i) out[i] = sum_lanes(v[i]);
  }
}

// Lane j of v[i] becomes lane i of v[j].
SITU_INLINE void transpose_lanes(VecF* v) {
#pragma GCC unroll 4
  for (int bit = 1; bit < kLanes; bit *= 2) {
    const VecI odd = (lane_index() & bit) != 0;
    const VecI low = (lane_index() ^ (odd & bit)) + (odd & kLanes);
    const VecI high = low + bit;
#pragma GCC unroll 16
    for (int i = 0; i < kLanes; ++i) {
      if ((i & bit) != 0) continue;
      const VecF a = v[i], b = v[i + bit];
      v[i] = shuffle(a, b, low);
      v[i + bit] = shuffle(a, b, high);
    }
  }
}

// -- functions. exp: within 2 ulp; exp(-inf) = 0, exp(inf) = inf, NaN stays NaN.
SITU_INLINE VecF exp(VecF x) {
  x = x > 89.0f ? splat(89.0f) : x;
  x = x < -104.0f ? splat(-104.0f) : x;
  const VecF magic = splat(12582912.0f);  // 1.5 * 2^23: adding it rounds to an integer
  const VecF shifted = x * 1.44269504088896341f + magic;
  const VecF n = shifted - magic;
  const VecF r = (x - n * 0.693359375f) - n * -2.12194440e-4f;
  VecF p = r * 1.9875691500e-4f + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * (r * r) + r + 1.0f;
  // 2^n in two factors: n reaches from -150 to 128.
  const VecI whole = (VecI)shifted - splat_i(0x4b400000);
  const VecI half = whole >> 1;
  return p * (VecF)((half + 127) << 23) * (VecF)((whole - half + 127) << 23);
}

// exp for x <= 0, in half the instructions: within 4 ulp down to -87, 0 below; exp(-inf) = 0, NaN stays NaN.
SITU_INLINE VecF exp_of_negative(VecF x) {
  const VecF low = splat(-88.029693603515625f);  // -127 ln 2: 2^-127 comes out as 0
  x = vmax(low, x);
  const VecF magic = splat(12583039.0f);  // 1.5 * 2^23 + 127: adding it rounds to an integer and biases the exponent
  const VecF shifted = x * 1.44269504088896341f + magic;
  const VecF n = shifted - magic;
  const VecF r = x - n * 0.693147180559945286f;
  // Minimax of degree 5 on [-ln 2 / 2, ln 2 / 2]: relative error 7.5e-8.
  VecF p = r * 0.00829765519827142f + 0.041915381977922724f;
  p = p * r + 0.16667574726749987f;
  p = p * r + 0.4999889485147244f;
  p = p * r + 0.9999996919922833f;
  p = p * r + 1.0000000716546416f;
  return p * (VecF)((VecI)shifted << 23);
}

// Within 4 ulp: a rational approximation on [-9, 9] (Eigen's), +-1 outside; NaN stays NaN.
SITU_INLINE VecF tanh(VecF x) {
  const VecF tiny = x;
  x = x > 7.90531110763549805f ? splat(7.90531110763549805f) : x;
  x = x < -7.90531110763549805f ? splat(-7.90531110763549805f) : x;
  const VecF x2 = x * x;
  VecF p = x2 * -2.76076847742355e-16f + 2.00018790482477e-13f;
  p = p * x2 - 8.60467152213735e-11f;
  p = p * x2 + 5.12229709037114e-08f;
  p = p * x2 + 1.48572235717979e-05f;
  p = p * x2 + 6.37261928875436e-04f;
  p = p * x2 + 4.89352455891786e-03f;
  VecF q = x2 * 1.19825839466702e-06f + 1.18534705686654e-04f;
  q = q * x2 + 2.26843463243900e-03f;
  q = q * x2 + 4.89352518554385e-03f;
  const VecF y = x * p / q;
  return ((tiny < 0.0004f) & (tiny > -0.0004f)) ? tiny : y;
}

}  // namespace SITU_ISA
}  // namespace situ
