// Attention of many rows in 16-bit integers, where the CPU multiplies pairs of them (VNNI): twice the rate of floats.
// For keys and values that are stored in half precision or in bytes, as large as sums of products stay within 32 bits:
//   scores   queries and keys with one scale a row: 12.5 bits and a sign for heads of 64 numbers
//   values   12 bits and a sign with one scale for each key's, of which its weight becomes a factor; these products
//   have 12 bits of
//            the row's largest in a block of keys
// So that what a query sums depends on the keys that it sees and on nothing else, not on those after it either: a
// prompt has the same numbers however it is cut into steps.
#pragma once

#include "kernels/math.h"
#include "kernels/nbits_int8.h"
#include "kernels/tile.h"

namespace situ {
namespace SITU_ISA {

constexpr int64_t kMostPairDepth = 256;  // rows of more are rounded to fewer bits than a half has

typedef int16_t VecShorts __attribute__((vector_size(kVectorBytes / 2)));
typedef int16_t UnalignedShorts __attribute__((vector_size(kVectorBytes / 2), aligned(2), may_alias));

// GCC 12 would narrow them one by one. What does not fit 16 bits is cut off.
SITU_INLINE VecShorts to_shorts(VecI x) {
#if defined(__AVX512F__)
  return (VecShorts)_mm512_maskz_cvtepi32_epi16(kAllLanes, (__m512i)x);
#elif defined(__AVX2__)
  constexpr int64_t kLowHalves = 0x0d0c090805040100;
  const __m256i even = _mm256_shuffle_epi8((__m256i)x, _mm256_setr_epi64x(kLowHalves, -1, kLowHalves, -1));
  return (VecShorts)_mm256_castsi256_si128(_mm256_permute4x64_epi64(even, 0x08));
#else
  return __builtin_convertvector(x, VecShorts);
#endif
}

// acc[lane] += the two products of 16-bit numbers.
SITU_INLINE VecI dot2(VecI acc, VecS a, VecS b) {
#if defined(__AVX512VNNI__)
  return (VecI)_mm512_dpwssd_epi32((__m512i)acc, (__m512i)a, (__m512i)b);
#elif defined(__AVXVNNI__)
  return (VecI)_mm256_dpwssd_avx_epi32((__m256i)acc, (__m256i)a, (__m256i)b);
#else
  return acc + word_products(a, b);
#endif
}

// The largest magnitude that rows of `depth` numbers are rounded to.
SITU_INLINE float largest_of_pairs(int64_t depth) {
  const float most = __builtin_floorf(__builtin_sqrtf(2147483000.0f / static_cast<float>(depth)));
  return most < 32767.0f ? most : 32767.0f;
}

// to[r][i] = round(x[r][i] / scales[r]) for `rows` <= kLanes rows of `size` numbers, zero up to a whole pair; the
// largest of a row becomes `most`. Scales [kLanes] of the rows that lack are 0. load_row(r, i, n): n numbers of row r
// from i on; `to` may be where they are.
template <typename LoadRow>
SITU_INLINE void round_rows(int64_t rows, int64_t size, float most, int16_t* to, int64_t to_row, float* scales,
                            LoadRow load_row) {
  VecF v[kLanes] = {};
  for (int64_t r = 0; r < rows; ++r) {
    int64_t i = 0;
    for (; i + kLanes <= size; i += kLanes) v[r] = larger_magnitude(load_row(r, i, kLanes), v[r]);
    if (i < size) v[r] = larger_magnitude(load_row(r, i, size - i), v[r]);
  }
  const VecF scale = largest_of_each(v) / most;
  float inverse[kLanes];
  store(inverse, inverse_of(scale));
  store(scales, scale);
  for (int64_t r = 0; r < rows; ++r) {
    int16_t* row = to + r * to_row;
    int64_t i = 0;
    for (; i + kLanes <= size; i += kLanes)
      *reinterpret_cast<UnalignedShorts*>(row + i) = to_shorts(nearest(load_row(r, i, kLanes) * inverse[r]));
    if (i >= size) continue;
    const VecShorts last = to_shorts(nearest(load_row(r, i, size - i) * inverse[r]));
    for (int64_t j = i; j < size + size % 2; ++j) row[j] = j < size ? last[j - i] : 0;
  }
}

constexpr float kMostWeight = 4095;  // of weights and of values: 4095 * 4095 * 128 keys < 2^31

// Keys of a block are multiplied two at a time: of kTileColumns of them, each of the first half with its like in the
// second, so that two vectors of weights become one of pairs without a shuffle.
constexpr int64_t kPairDistance = kTileColumns / 2;
static_assert(kPairDistance == kLanes);
SITU_INLINE int64_t count_pairs(int64_t keys) { return (keys + kTileColumns - 1) / kTileColumns * kPairDistance; }
SITU_INLINE VecU join_words(VecI low, VecI high) {
#if defined(__AVX512BW__)
  return (VecU)_mm512_mask_blend_epi16(0xaaaaaaaa, (__m512i)low, (__m512i)(high << 16));
#else
  return ((VecU)low & 0xffffu) | ((VecU)high << 16);
#endif
}

// What the integers of values are worth: inverses[j] of them are 1, and logs[j] is what a score gains for its weight to
// take that in; of whole tiles of keys. Rows of `size` numbers that are worth value_of(j) each.
//
// Weights are made from scores with logs, and their sum from weights times inverses: where a key's values lie far below
// another's its weight is as far below, but is not lost, since scales end at these bounds, e^78 apart. What is larger,
// infinities and NaN among it, has a weight of NaN for who sees it, and none for who does not.
constexpr float kLeastScale = 0x1p-48f, kMostScale = 0x1p64f;
template <typename Row, typename ValueOf>
static inline void scale_pair_values(const Row* rows, int64_t count, int64_t size, float* inverses, float* logs,
                                     ValueOf value_of) {
  for (int64_t first = 0; first < count; first += kTileColumns) {
    for (int64_t j = first; j < first + kTileColumns; j += kLanes) {
      VecF v[kLanes] = {};
      for (int64_t i = 0; i < kLanes && j + i < count; ++i) {
        const Row row = rows[j + i];
        int64_t d = 0;
        for (; d + kLanes <= size; d += kLanes) v[i] = larger_magnitude(load(row + d), v[i]);
        if (d < size) v[i] = larger_magnitude(load_n(row + d, size - d), v[i]);
        v[i] *= value_of(j + i);
      }
      const VecF least = splat(kLeastScale), scale = vmax(least, largest_of_each(v) / kMostWeight);
      store(inverses + j, scale <= kMostScale ? 1.0f / scale : VecF{});
      store(logs + j, scale);
    }
    for (int64_t j = first; j < first + kTileColumns; ++j)
      logs[j] = logs[j] <= kMostScale ? fast_log(logs[j]) : __builtin_nanf("");
  }
}

// words [count_pairs(count)][kTileColumns]: values of a column and of two keys side by side. Row j has its `size` <=
// kTileColumns numbers at rows[j] + column, and factor_of(j) times them are the integers.
template <typename Row, typename FactorOf>
static inline void pack_pair_values(const Row* rows, int64_t column, int64_t count, int64_t size, int32_t* words,
                                    FactorOf factor_of) {
  for (int64_t d = 0; d < kTileColumns; d += kLanes) {
    const int64_t n = size - d < kLanes ? size - d : kLanes;
    auto row = [&](int64_t j) __attribute__((always_inline)) {
      return nearest((n == kLanes ? load(rows[j] + column + d) : load_n(rows[j] + column + d, n)) * factor_of(j));
    };
    for (int64_t pair = 0; pair < count_pairs(count); ++pair) {
      const int64_t j = pair + pair / kPairDistance * kPairDistance;
      const VecI first = n > 0 && j < count ? row(j) : VecI{},
                 second = n > 0 && j + kPairDistance < count ? row(j + kPairDistance) : VecI{};
      *reinterpret_cast<UnalignedU*>(words + pair * kTileColumns + d) = join_words(first, second);
    }
  }
}

// exp(x) for x <= 0 as a weight, kMostWeight for 0: within 3e-6 of itself, where rounding takes 1e-4 of the largest; 0
// below -88. The weight is `part` times `power`: a product that becomes part of two sums. (vreduceps and vscalefps, an
// instruction each for what takes five here, are slower on Zen 5.)
struct Weight {
  VecF part, power;
};
SITU_INLINE Weight weight_of_negative(VecF x) {
  const VecF low = splat(-88.029693603515625f);  // as in exp_of_negative, where the steps are explained
  x = vmax(low, x);
  const VecF magic = splat(12583039.0f);
  const VecF shifted = x * 1.44269504088896341f + magic;
  const VecF f = x * 1.44269504088896341f - (shifted - magic);
  // kMostWeight 2^f: minimax of degree 4 on [-1/2, 1/2].
  VecF p = f * (kMostWeight * 0.009570101911165462f) + kMostWeight * 0.05591786031938822f;
  p = p * f + kMostWeight * 0.2402474482786378f;
  p = p * f + kMostWeight * 0.6931218147366892f;
  p = p * f + kMostWeight * 0.9999992614457122f;
  return {p, (VecF)((VecI)shifted << 23)};
}

// Scores s [count] become weights of 12 bits, two a word, where they stand, zero up to whole tiles; `origin` is the
// largest. Returns the sums of the weights times `inverses`: of the unrounded ones, since where one is far above the
// others (which is where rounding counts) the sum of the others' errors would be one more.
SITU_INLINE VecF round_weights(float* s, int64_t count, float origin, const float* inverses) {
  const VecF magic = splat(12582912.0f);  // 1.5 * 2^23: adding it leaves the nearest integer in the low bits
  VecF sum{};
  for (int64_t j = 0; j < count; j += kTileColumns) {
    const Weight a = weight_of_negative(load(s + j) - origin),
                 b = weight_of_negative(load(s + j + kPairDistance) - origin);
    sum += a.part * a.power * load(inverses + j);
    sum += b.part * b.power * load(inverses + j + kPairDistance);
    store(s + j / 2, (VecF)join_words((VecI)(a.part * a.power + magic), (VecI)(b.part * b.power + magic)));
  }
  return sum;
}

// words [pairs][kTileColumns] = kLanes rows of pairs, `row` pairs apart, as columns of one vector.
SITU_INLINE void transpose_pairs(const int32_t* rows, int64_t row, int64_t pairs, int32_t* words) {
  int64_t k = 0;
  for (; k + kLanes <= pairs; k += kLanes) {
    VecF block[kLanes];
#pragma GCC unroll 16
    for (int i = 0; i < kLanes; ++i) block[i] = load(reinterpret_cast<const float*>(rows + i * row + k));
    transpose_lanes(block);
#pragma GCC unroll 16
    for (int i = 0; i < kLanes; ++i) store(reinterpret_cast<float*>(words + (k + i) * kTileColumns), block[i]);
  }
  for (; k < pairs; ++k)
    for (int i = 0; i < kLanes; ++i) words[k * kTileColumns + i] = rows[i * row + k];
}

// c[r][column] = (sum of the products of row r's pairs with the column's) * a_scales[r] * scales[column] +
// addends[column]. The loops over sums are unrolled: as an array they would be cleared, written out and read again in
// memory (`rep stos`), a quarter of the time of 32 pairs.
struct PairScores {
  const float *scales, *addends;
};
// Or: the sum * a_scales[r] + what c was * shrink[r].
struct PairValues {
  const float* shrink;
};
template <int R, typename Rest>
static inline void pair_tile(int64_t pairs, const int32_t* a, int64_t a_row, const float* a_scales, const int32_t* b,
                             float* c, int64_t c_row, int64_t first, Rest rest) {
  VecI acc[R][kTileVectors];
#pragma GCC unroll 12
  for (int r = 0; r < R; ++r) acc[r][0] = acc[r][1] = VecI{};
  for (int64_t k = 0; k < pairs; ++k, b += kTileColumns) {
    const VecS b0 = *reinterpret_cast<const UnalignedS*>(b), b1 = *reinterpret_cast<const UnalignedS*>(b + kLanes);
#pragma GCC unroll 12
    for (int r = 0; r < R; ++r) {
      const VecS x = (VecS)splat_i(a[r * a_row + k]);
      acc[r][0] = dot2(acc[r][0], x, b0);
      acc[r][1] = dot2(acc[r][1], x, b1);
    }
  }
  auto finish = [&](VecI sum, int64_t r, float* to, int64_t lane) __attribute__((always_inline)) {
    const VecF x = __builtin_convertvector(sum, VecF);
    if constexpr (requires { rest.addends; })
      store(to, x * (load(rest.scales + lane) * a_scales[r]) + load(rest.addends + lane));
    else
      store(to, x * a_scales[r] + load(to) * rest.shrink[first + r]);
  };
#pragma GCC unroll 12
  for (int r = 0; r < R; ++r, c += c_row) {
    finish(acc[r][0], r, c, 0);
    finish(acc[r][1], r, c + kLanes, kLanes);
  }
}

template <int R>
struct IntConstant {
  static constexpr int value = R;
};
template <typename Rest>
static inline void pair_rows(int64_t rows, int64_t pairs, const int32_t* a, int64_t a_row, const float* a_scales,
                             const int32_t* b, float* c, int64_t c_row, Rest rest) {
  int64_t r = 0;
  auto run = [&](auto count) __attribute__((always_inline)) {
    constexpr int R = decltype(count)::value;
    pair_tile<R>(pairs, a + r * a_row, a_row, a_scales + r, b, c + r * c_row, c_row, r, rest);
    r += R;
  };
  while (r + kTileRows <= rows) run(IntConstant<kTileRows>{});
  while (r + 4 <= rows) run(IntConstant<4>{});
  if (r + 2 <= rows) run(IntConstant<2>{});
  if (r < rows) run(IntConstant<1>{});
}

}  // namespace SITU_ISA
}  // namespace situ
