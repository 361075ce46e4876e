// What one output position of a convolution sees of its operand x [N, G C, D..], gathered: [C, K..].
#pragma once

#include "kernels/params.h"
#include "kernels/simd.h"

namespace situ {
namespace SITU_ISA {

constexpr int kMostAxes = 3;

struct Position {
  int64_t batch, group, at[kMostAxes];
};

SITU_INLINE Position position_of(const View& y, int axes, int64_t groups, int64_t unit) {
  Position p{0, 0, {0, 0, 0}};
  for (int a = axes; a-- > 0;) {
    p.at[a] = unit % y.dims[2 + a];
    unit /= y.dims[2 + a];
  }
  p.group = unit % groups;
  p.batch = unit / groups;
  return p;
}

// patch [C, K..], the innermost axis last: numbers of x minus `zero`, and 0 in the padding.
template <typename T, typename Out>
SITU_INLINE void gather_patch(const ConvParams& c, const View& x, const View& w, const Position& p, Out zero,
                              Out* patch) {
  const int axes = c.axes;
  const int64_t channels = w.dims[1];
  int64_t taps = 1;
  for (int a = 0; a < axes; ++a) taps *= w.dims[2 + a];
  const T* data = x.as<const T>() + p.batch * x.strides[0] + p.group * channels * x.strides[1];
  for (int64_t t = 0; t < taps; ++t) {
    int64_t rest = t, offset = 0;
    bool inside = true;
    for (int a = axes; a-- > 0;) {
      const int64_t k = rest % w.dims[2 + a];
      rest /= w.dims[2 + a];
      const int64_t i = p.at[a] * c.strides[a] + k * c.dilations[a] - c.pads[a];
      inside = inside && i >= 0 && i < x.dims[2 + a];
      offset += i * x.strides[2 + a];
    }
    for (int64_t ch = 0; ch < channels; ++ch) {
      patch[ch * taps + t] = inside ? static_cast<Out>(data[offset + ch * x.strides[1]]) - zero : Out{};
    }
  }
}

}  // namespace SITU_ISA
}  // namespace situ
