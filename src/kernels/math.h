// Float functions that the compiler turns into vector code: no branches, no table, no library call.
// The bounds given were measured against double over the whole range (math_test.cc).
// Compile kernel files with -fno-math-errno -fno-trapping-math and never with -ffast-math.
#pragma once

#include <cstdint>

#include "kernels/isa.h"

namespace situ {
namespace SITU_ISA {

static inline uint32_t float_bits(float x) { return __builtin_bit_cast(uint32_t, x); }
static inline float bits_float(uint32_t x) { return __builtin_bit_cast(float, x); }

static inline float select(bool condition, float a, float b) { return condition ? a : b; }

// Half and bfloat16 as stored.
struct Half {
  uint16_t bits;
};
struct BFloat {
  uint16_t bits;
};

static inline float to_float(Half h) {
  const uint32_t magnitude = h.bits & 0x7fffu;
  const uint32_t special = magnitude >= 0x7c00u ? 112u << 23 : 0u;  // inf, NaN: exponent 31 -> 255
  const float normal = bits_float((magnitude << 13) + (112u << 23) + special);
  const float subnormal = static_cast<float>(static_cast<int32_t>(magnitude)) * 0x1p-24f;
  const uint32_t bits = float_bits(magnitude < 0x400u ? subnormal : normal);
  return bits_float(bits | (static_cast<uint32_t>(h.bits & 0x8000u) << 16));
}

static inline float to_float(BFloat b) { return bits_float(static_cast<uint32_t>(b.bits) << 16); }

// Round to nearest even; overflow to infinity; NaN stays NaN.
static inline Half to_half(float x) {
  const uint32_t w = float_bits(x);
  const uint32_t twice = w + w;
  const float magnitude = bits_float(w & 0x7fffffffu) * 0x1p112f * 0x1p-110f;  // overflow becomes inf
  uint32_t bias = twice & 0xff000000u;
  bias = bias < 0x71000000u ? 0x71000000u : bias;
  const uint32_t bits = float_bits(bits_float((bias >> 1) + 0x07800000u) + magnitude);
  const uint32_t number = ((bits >> 13) & 0x7c00u) + (bits & 0xfffu);
  const uint32_t sign = (w >> 16) & 0x8000u;
  return {static_cast<uint16_t>(sign | (twice > 0xff000000u ? 0x7e00u : number))};
}

static inline BFloat to_bfloat(float x) {
  const uint32_t w = float_bits(x);
  const uint32_t rounded = w + 0x7fffu + ((w >> 16) & 1u);
  const bool nan = (w & 0x7fffffffu) > 0x7f800000u;
  return {static_cast<uint16_t>((nan ? (w | 0x400000u) : rounded) >> 16)};
}

// 2^n for n in [-126, 127].
static inline float exp2_integer(int32_t n) { return bits_float(static_cast<uint32_t>(n + 127) << 23); }

// x = n * ln 2 + r with |r| <= ln 2 / 2, and p = e^r - 1.
struct ExpParts {
  int32_t n;
  float p;
};
static inline ExpParts exp_parts(float x) {
  constexpr float kRound = 12582912.0f;  // 1.5 * 2^23: adding it rounds to an integer
  const float shifted = x * 1.44269504088896341f + kRound;
  const float n = shifted - kRound;
  const float r = (x - n * 0.693359375f) + n * 2.12194440e-4f;
  float p = 1.9875691500e-4f;
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  return {static_cast<int32_t>(float_bits(shifted) - float_bits(kRound)), p * r * r + r};
}

// e^x, 2 ulp; subnormal results, 0 below -104, inf above 88.73, NaN stays.
static inline float fast_exp(float x) {
  x = x < -105.0f ? -105.0f : x;
  x = x > 89.0f ? 89.0f : x;
  const ExpParts e = exp_parts(x);
  const int32_t half = x != x ? 0 : e.n >> 1;  // two factors: 2^n itself may be out of range
  const int32_t rest = x != x ? 0 : e.n - (e.n >> 1);
  return (1.0f + e.p) * exp2_integer(half) * exp2_integer(rest);
}

// e^x - 1, 3 ulp also near 0.
static inline float fast_expm1(float x) {
  x = x < -30.0f ? -30.0f : x;
  x = x > 89.0f ? 89.0f : x;
  const ExpParts e = exp_parts(x);
  const int32_t n = x != x ? 0 : e.n;
  const float half = exp2_integer(n - 1);  // n is at most 128
  return ((e.p * half) + (half - 0.5f)) * 2.0f;
}

// ln x, 2 ulp; -inf at 0, NaN below.
static inline float fast_log(float x) {
  const bool tiny = x < 0x1p-126f;
  const uint32_t w = float_bits(tiny ? x * 0x1p23f : x);
  int32_t exponent = static_cast<int32_t>(w >> 23) - 126 - (tiny ? 23 : 0);
  float m = bits_float((w & 0x007fffffu) | 0x3f000000u);  // [0.5, 1)
  const bool low = m < 0.707106781186547524f;
  exponent -= low ? 1 : 0;
  m = (low ? m + m : m) - 1.0f;
  const float z = m * m;
  float p = 7.0376836292e-2f;
  p = p * m - 1.1514610310e-1f;
  p = p * m + 1.1676998740e-1f;
  p = p * m - 1.2420140846e-1f;
  p = p * m + 1.4249322787e-1f;
  p = p * m - 1.6668057665e-1f;
  p = p * m + 2.0000714765e-1f;
  p = p * m - 2.4999993993e-1f;
  p = p * m + 3.3333331174e-1f;
  const float e = static_cast<float>(exponent);
  float y = m * z * p - 2.12194440e-4f * e - 0.5f * z;
  y = (m + y) + 0.693359375f * e;
  y = x < bits_float(0x7f800000u) ? y : x;         // inf and NaN stay
  y = x < 0.0f ? bits_float(0x7fc00000u) : y;      // NaN
  return x == 0.0f ? bits_float(0xff800000u) : y;  // -inf
}

static inline float copy_sign(float magnitude, float sign) {
  return bits_float((float_bits(magnitude) & 0x7fffffffu) | (float_bits(sign) & 0x80000000u));
}
static inline float absolute(float x) { return bits_float(float_bits(x) & 0x7fffffffu); }

// 3 ulp.
static inline float fast_tanh(float x) {
  float t = absolute(x);
  t = t > 10.0f ? 10.0f : t;
  const float e = fast_expm1(t + t);
  return copy_sign(e / (e + 2.0f), x);
}

// 1 / (1 + e^-x), 3 ulp for x > -87; 0 below -89.
static inline float fast_sigmoid(float x) { return 1.0f / (1.0f + fast_exp(-x)); }

// 2 ulp. Two minimax polynomials that meet at 475/512 (N. Juffa).
static inline float fast_erf(float x) {
  float t = absolute(x);
  const float s_small = x * x;
  t = t > 4.0f ? 4.0f : t;  // erf(4) rounds to 1
  const float s = t * t;
  float r = -1.72853470e-5f * t + 3.83197126e-4f;
  r = r * s + (-3.88396438e-3f * t + 2.42546219e-2f);
  r = r * t - 1.06777877e-1f;
  r = r * t - 6.34846687e-1f;
  r = r * t - 1.28717512e-1f;
  r = r * t - t;
  const float large = copy_sign(1.0f - fast_exp(r), x);
  float q = -5.96761703e-4f;
  q = q * s_small + 4.99119423e-3f;
  q = q * s_small - 2.67681349e-2f;
  q = q * s_small + 1.12819925e-1f;
  q = q * s_small - 3.76125336e-1f;
  q = q * s_small + 1.28379166e-1f;
  const float small = q * x + x;
  return t > 0.927734375f ? large : small;
}

// ln(1 + e^x) without overflow.
static inline float fast_softplus(float x) {
  const float positive = x > 0.0f ? x : 0.0f;
  const float e = fast_exp(-absolute(x));
  const float u = 1.0f + e;  // log1p(e) = log(u) * e / (u - 1), exact where u rounds
  const float log1p = u == 1.0f ? e : fast_log(u) * (e / (u - 1.0f));
  return x != x ? x : positive + log1p;
}

// Sine of x + quarter * pi / 2. |x| <= 1e8, 2 ulp: the range is reduced in double because a rotary
// angle of 1e5 radians leaves no bits for it in float.
static inline float fast_sin_quarter(float x, uint32_t quarter) {
  constexpr double kRound = 6755399441055744.0;  // 1.5 * 2^52
  const double d = static_cast<double>(x);
  const double shifted = d * 0.63661977236758134308 + kRound;
  const double n = shifted - kRound;
  const float r = static_cast<float>((d - n * 1.57079632673412561417) - n * 6.07710050650619224932e-11);
  const uint32_t q = static_cast<uint32_t>(__builtin_bit_cast(uint64_t, shifted)) + quarter;
  const float z = r * r;
  const float sine = ((-1.9515295891e-4f * z + 8.3321608736e-3f) * z - 1.6666654611e-1f) * z * r + r;
  const float cosine =
      ((2.443315711809948e-5f * z - 1.388731625493765e-3f) * z + 4.166664568298827e-2f) * z * z - 0.5f * z + 1.0f;
  const float y = (q & 1u) != 0 ? cosine : sine;
  return bits_float(float_bits(y) ^ ((q & 2u) << 30));
}
static inline float fast_sin(float x) { return fast_sin_quarter(x, 0); }
static inline float fast_cos(float x) { return fast_sin_quarter(x, 1); }
constexpr float kMaxFastAngle = 1e8f;

}  // namespace SITU_ISA
}  // namespace situ
