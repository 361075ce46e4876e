// pool: y[n, c, o] = the largest, or the mean, of x[n, c, o * stride + k * dilation - pad] over all k that lie within
// x, along one to three axes. x [N, C, D..], y [N, C, O..], float32. A mean may count the padding as zeros. Source:
// ONNX MaxPool, AveragePool.
#include "kernels/params.h"
#include "kernels/simd.h"

namespace situ {
namespace SITU_ISA {

void pool(const KernelCall& call, int thread, int threads) {
  const PoolParams& p = *static_cast<const PoolParams*>(call.params);
  const View &x = call.in[0], &y = call.out[0];
  int64_t outs = 1, taps = 1;
  for (int a = 0; a < p.axes; ++a) {
    outs *= y.dims[2 + a];
    taps *= p.kernel[a];
  }
  int64_t begin, end;
  split_range(x.dims[0] * x.dims[1] * outs, thread, threads, &begin, &end);
  for (int64_t unit = begin; unit < end; ++unit) {
    int64_t rest = unit, at[3] = {0, 0, 0}, to = 0;
    for (int a = p.axes; a-- > 0;) {
      at[a] = rest % y.dims[2 + a];
      rest /= y.dims[2 + a];
      to += at[a] * y.strides[2 + a];
    }
    const int64_t channel = rest % x.dims[1], batch = rest / x.dims[1];
    to += batch * y.strides[0] + channel * y.strides[1];
    const float* from = x.as<const float>() + batch * x.strides[0] + channel * x.strides[1];
    float largest = -__builtin_inff(), sum = 0;
    int64_t count = 0;
    for (int64_t t = 0; t < taps; ++t) {
      int64_t k = t, offset = 0;
      bool inside = true, padded = true;
      for (int a = p.axes; a-- > 0;) {
        const int64_t i = at[a] * p.strides[a] + k % p.kernel[a] * p.dilations[a] - p.begin[a];
        k /= p.kernel[a];
        inside = inside && i >= 0 && i < x.dims[2 + a];
        padded = padded && i < x.dims[2 + a] + p.end[a];
        offset += i * x.strides[2 + a];
      }
      count += inside || (p.count_pad && padded);
      if (!inside) continue;
      const float v = from[offset];
      sum += v;
      largest = v > largest || v != v ? v : largest;
    }
    y.as<float>()[to] = p.average ? sum / static_cast<float>(count > 0 ? count : 1) : largest;
  }
}

}  // namespace SITU_ISA
}  // namespace situ
