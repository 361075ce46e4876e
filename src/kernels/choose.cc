// What the choice of a token does with all scores, or with many: sums, lists, random numbers.
#include "kernels/params.h"
#include "kernels/simd.h"

namespace situ {
namespace SITU_ISA {
namespace {

constexpr int64_t kVectors = 64;  // whose sum is added up in float

SITU_INLINE bool any(VecI mask) {
#if defined(__AVX512F__)
  return _mm512_test_epi32_mask((__m512i)mask, (__m512i)mask) != 0;
#elif defined(__AVX2__)
  return _mm256_testz_si256((__m256i)mask, (__m256i)mask) == 0;
#elif defined(__SSE2__)
  return _mm_movemask_epi8((__m128i)mask) != 0;
#else
  int32_t some = 0;
  for (int l = 0; l < kLanes; ++l) some |= mask[l];
  return some != 0;
#endif
}

// Appends the numbers of the lanes of x that are above; room for all lanes. Returns how many are.
SITU_INLINE int64_t append_above(const float* x, VecF least, uint32_t first, uint32_t* to) {
#if defined(__AVX512F__)
  const __mmask16 above = _mm512_cmp_ps_mask((__m512)load(x), (__m512)least, _CMP_GT_OQ);
  const __m512i all = (__m512i)(lane_index() + splat_i(static_cast<int32_t>(first)));
  _mm512_storeu_si512(to, _mm512_maskz_compress_epi32(above, all));
  return __builtin_popcount(above);
#else
  int64_t count = 0;
  for (int l = 0; l < kLanes; ++l) {
    to[count] = first + static_cast<uint32_t>(l);
    count += x[l] > least[0];
  }
  return count;
#endif
}

typedef uint64_t Wide __attribute__((vector_size(kVectorBytes)));

// The products of the lower halves.
SITU_INLINE Wide multiply_low(Wide a, Wide b) {
#if defined(__AVX512F__)
  return (Wide)_mm512_maskz_mul_epu32(0xff, (__m512i)a, (__m512i)b);
#elif defined(__AVX2__)
  return (Wide)_mm256_mul_epu32((__m256i)a, (__m256i)b);
#elif defined(__SSE2__)
  return (Wide)_mm_mul_epu32((__m128i)a, (__m128i)b);
#else
  return (a & 0xffffffff) * (b & 0xffffffff);
#endif
}

// a * b: the upper and the lower half of each product.
SITU_INLINE void multiply(VecU a, uint32_t b, VecU* high, VecU* low) {
  const Wide factor = (Wide)(VecU{} + b), even = multiply_low((Wide)a, factor),
             odd = multiply_low((Wide)a >> 32, factor);
  *high = (VecU)((even >> 32) | (odd & ~uint64_t{0xffffffff}));
  *low = (VecU)((even & 0xffffffff) | (odd << 32));
}

}  // namespace

// y [n] f32 = e^(x / temperature - largest / temperature), y2 [1] f32 = their sum, of x [n] f32: what the kernels
// binary and softmax make of it, to the bit, but for the division by the sum, and in one pass for four.
void exp_terms(const KernelCall& call, int thread, int) {
  if (thread != 0) return;
  const auto& p = *static_cast<const ExpTermsParams*>(call.params);
  const float* x = call.in[0].as<const float>();
  float* y = call.out[0].as<float>();
  const int64_t n = call.in[0].count();
  constexpr int64_t kSums = 16, kPart = 256;
  const float temperature = p.temperature, largest = p.largest / temperature;
  float sums[kSums] = {};
  for (int64_t begin = 0; begin < n; begin += kPart) {
    const int64_t count = n - begin < kPart ? n - begin : kPart;
    const float* from = x + begin;
    float* to = y + begin;
#pragma GCC ivdep
    for (int64_t i = 0; i < count; ++i) to[i] = fast_exp(from[i] / temperature - largest);
    int64_t i = 0;
    for (; i + kSums <= count; i += kSums)
      for (int64_t k = 0; k < kSums; ++k) sums[k] += to[i + k];
    for (; i < count; ++i) sums[0] += to[i];
  }
  for (int64_t width = kSums / 2; width > 0; width /= 2)
    for (int64_t k = 0; k < width; ++k) sums[k] += sums[k + width];
  call.out[1].as<float>()[0] = sums[0];
}

// y [1] f64 = the sum of the x [n] f32 that are above a least one.
void sum_above(const KernelCall& call, int thread, int) {
  if (thread != 0) return;
  const float* x = call.in[0].as<const float>();
  const int64_t n = call.in[0].count();
  const VecF least = splat(static_cast<const AboveParams*>(call.params)->least);
  double sum = 0;
  int64_t i = 0;
  while (i + kLanes <= n) {
    const int64_t vectors = (n - i) / kLanes, end = i + (vectors < kVectors ? vectors : kVectors) * kLanes;
    VecF lanes = {};
    for (; i < end; i += kLanes) {
      const VecF v = load(x + i);
      lanes += (VecF)((VecI)v & (VecI)(v > least));
    }
    for (int l = 0; l < kLanes; ++l) sum += static_cast<double>(lanes[l]);
  }
  for (; i < n; ++i) sum += x[i] > least[0] ? static_cast<double>(x[i]) : 0.0;
  call.out[0].as<double>()[0] = sum;
}

// y u32 = the numbers, in order, of the x [n] f32 that are above a least one; y2 [1] i64: how many. y has room for n
// and kAboveSlack more.
void list_above(const KernelCall& call, int thread, int) {
  if (thread != 0) return;
  const float* x = call.in[0].as<const float>();
  const int64_t n = call.in[0].count();
  const VecF least = splat(static_cast<const AboveParams*>(call.params)->least);
  uint32_t* y = call.out[0].as<uint32_t>();
  int64_t count = 0, i = 0;
  constexpr int kBlock = 4;  // vectors; those that have none are left at once
  for (; i + kBlock * kLanes <= n; i += kBlock * kLanes) {
    VecI above = {};
#pragma GCC unroll 4
    for (int v = 0; v < kBlock; ++v) above |= (VecI)(load(x + i + v * kLanes) > least);
    if (!any(above)) continue;
    for (int v = 0; v < kBlock; ++v)
      count += append_above(x + i + v * kLanes, least, static_cast<uint32_t>(i + v * kLanes), y + count);
  }
  for (; i < n; ++i) {
    y[count] = static_cast<uint32_t>(i);
    count += x[i] > least[0];
  }
  call.out[1].as<int64_t>()[0] = count;
}

// y [n] u32 = word x % 4 of Philox4x32-10 of the counter (x / 4, position, 0) and the key seed, for ids x [n] u32 in
// rising order. Four ids share a counter: a vector of counters gives up to four vectors of words.
void random_words(const KernelCall& call, int thread, int) {
  if (thread != 0) return;
  const auto& p = *static_cast<const RandomWordsParams*>(call.params);
  const uint32_t* x = call.in[0].as<const uint32_t>();
  uint32_t* y = call.out[0].as<uint32_t>();
  const int64_t n = call.in[0].count();
  constexpr uint32_t kKeySteps[2] = {0x9E3779B9, 0xBB67AE85};
  for (int64_t i = 0, end = 0; i < n; i = end) {
    // Without a branch for each id, which would be guessed wrong.
    uint32_t blocks[kLanes + 1] = {}, last = ~uint32_t{0};
    uint8_t lanes[4 * kLanes];
    int count = 0;
    for (; end < n; ++end) {
      const uint32_t block = x[end] / 4, fresh = block != last;
      if (count == kLanes && fresh) break;
      blocks[count] = last = block;
      count += static_cast<int>(fresh);
      lanes[end - i] = static_cast<uint8_t>(count - 1);
    }
    VecU counter[4] = {*reinterpret_cast<const UnalignedU*>(blocks), VecU{} + static_cast<uint32_t>(p.position),
                       VecU{} + static_cast<uint32_t>(p.position >> 32), VecU{}};
    uint32_t key[2] = {static_cast<uint32_t>(p.seed), static_cast<uint32_t>(p.seed >> 32)};
    for (int round = 0; round < 10; ++round) {
      VecU high[2], low[2];
      multiply(counter[0], 0xD2511F53, &high[0], &low[0]);
      multiply(counter[2], 0xCD9E8D57, &high[1], &low[1]);
      counter[0] = high[1] ^ counter[1] ^ key[0];
      counter[1] = low[1];
      counter[2] = high[0] ^ counter[3] ^ key[1];
      counter[3] = low[0];
      key[0] += kKeySteps[0];
      key[1] += kKeySteps[1];
    }
    const auto* words = reinterpret_cast<const uint32_t*>(counter);  // [4][kLanes]
    for (int64_t j = i; j < end; ++j) y[j] = words[x[j] % 4 * kLanes + lanes[j - i]];
  }
}

}  // namespace SITU_ISA
}  // namespace situ
