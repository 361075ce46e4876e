// The range of numbers and their rounding to bytes, as ONNX DynamicQuantizeLinear has them:
//   scale = (max(x, 0) - min(x, 0)) / 255, or 1 where all are 0; zero = nearest(-min / scale), within 0 .. 255;
//   q = nearest(x / scale) + zero, within 0 .. 255; nearest: ties to even.
// Numbers are divided by the scale, not multiplied with its inverse: a tie would round to the other side.
#pragma once

#include "kernels/nbits_int8.h"
#include "kernels/rows.h"

namespace situ {
namespace SITU_ISA {

struct ByteRange {
  float scale = 1;  // NaN where a number is not finite: so are all results then
  int32_t zero = 0;
};

// The smallest and the largest number seen, 0 included.
struct Extremes {
  VecF low{}, high{}, unknown{};

  __attribute__((always_inline)) void look_at(VecF v) {
    const VecF negative = VecF{} - v;
    low = vmax(negative, low);  // of -x
    high = vmax(v, high);
    unknown += v * 0.0f;  // NaN where v is not finite
  }
  __attribute__((always_inline)) void look_at(const float* x, int64_t count) {
    int64_t i = 0;
    for (; i + kLanes <= count; i += kLanes) look_at(load(x + i));
    if (i < count) look_at(load_n(x + i, count - i));
  }
  __attribute__((always_inline)) void look_at(const Extremes& other) {
    low = vmax(other.low, low);
    high = vmax(other.high, high);
    unknown += other.unknown;
  }

  ByteRange range() const {
    const float least = -max_lanes(low), most = max_lanes(high);
    ByteRange r;
    if (!(sum_lanes(unknown) == 0.0f)) {
      r.scale = __builtin_nanf("");
      return r;
    }
    const float span = most - least;
    if (span > 0.0f) r.scale = span / 255.0f;
    const float zero = -least / r.scale;
    r.zero = static_cast<int32_t>(__builtin_nearbyintf(zero < 255.0f ? zero : 255.0f));
    return r;
  }
};

SITU_INLINE VecI rounded(VecF x, const ByteRange& r) {
  // Clamped before the conversion, so that numbers beyond int32 saturate too.
  const VecF low = splat(static_cast<float>(-r.zero)), high = splat(static_cast<float>(255 - r.zero));
  VecF v = x / splat(r.scale);
  v = v < high ? v : high;
  v = v > low ? v : low;
  return nearest(v) + r.zero;
}
SITU_INLINE void round_bytes(const float* x, int64_t count, const ByteRange& r, uint8_t* q) {
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes)
    *reinterpret_cast<UnalignedB*>(q + i) = __builtin_convertvector(rounded(load(x + i), r), VecB);
  if (i < count) {
    const VecI last = rounded(load_n(x + i, count - i), r);
    for (int64_t j = i; j < count; ++j) q[j] = static_cast<uint8_t>(last[j - i]);
  }
}

}  // namespace SITU_ISA
}  // namespace situ
