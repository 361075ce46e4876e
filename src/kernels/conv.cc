// conv: y[n, m, o] = b[m] + sum over c, k of w[m, c, k] x[n, g C + c, o * stride + k * dilation - pad], where o and k
// have one to three axes and m is of group g. x [N, G C, D..], w [M, C, K..], b [M], y [N, M, O..], all float32; what
// lies in the padding counts as 0. Source: ONNX Conv.
//
// What one output position sees of x is gathered into scratch, and multiplied with the rows of w, four at a time. A
// unit of work is a position of one group.
#include "kernels/conv_patch.h"
#include "kernels/dots.h"

namespace situ {
namespace SITU_ISA {
namespace {

// Any strides of w.
inline float plain_dot(const View& w, int axes, int64_t m, int64_t depth, const float* patch) {
  float sum = 0;
  for (int64_t i = 0; i < depth; ++i) {
    int64_t rest = i, at = m * w.strides[0];
    for (int a = axes; a-- > 0;) {
      at += rest % w.dims[2 + a] * w.strides[2 + a];
      rest /= w.dims[2 + a];
    }
    sum += w.as<const float>()[at + rest * w.strides[1]] * patch[i];
  }
  return sum;
}

}  // namespace

void conv(const KernelCall& call, int thread, int threads) {
  const ConvParams& c = *static_cast<const ConvParams*>(call.params);
  const View &x = call.in[0], &w = call.in[1], &y = call.out[0];
  const View* bias = call.in_count > 2 && call.in[2].present() ? &call.in[2] : nullptr;
  const int64_t groups = c.groups, rows = w.dims[0] / groups;
  int64_t depth = 1, units = x.dims[0] * groups;
  for (int i = 1; i < w.rank; ++i) depth *= w.dims[i];
  for (int a = 0; a < c.axes; ++a) units *= y.dims[2 + a];
  float* patch = reinterpret_cast<float*>(call.scratch);
  const bool dense = w.contiguous();
  const int64_t begin = units * thread / threads, end = units * (thread + 1) / threads;
  for (int64_t unit = begin; unit < end; ++unit) {
    const Position p = position_of(y, c.axes, groups, unit);
    gather_patch<float>(c, x, w, p, 0.0f, patch);
    int64_t at = p.batch * y.strides[0];
    for (int a = 0; a < c.axes; ++a) at += p.at[a] * y.strides[2 + a];
    const auto put = [&](int64_t m, float sum) {
      y.as<float>()[at + m * y.strides[1]] = sum + (bias ? bias->as<const float>()[m * bias->strides[0]] : 0.0f);
    };
    const float* const row = patch;
    int64_t m = p.group * rows;
    const int64_t last = m + rows;
    for (; dense && m + 4 <= last; m += 4) {
      float sums[4] = {0, 0, 0, 0};
      dots<1, 4>(&row, EvenRows<float>{w.as<const float>() + m * depth, depth}, depth, sums, 4);
      for (int64_t i = 0; i < 4; ++i) put(m + i, sums[i]);
    }
    for (; m < last; ++m) {
      float sum[1] = {0};
      if (dense)
        dots<1, 1>(&row, EvenRows<float>{w.as<const float>() + m * depth, depth}, depth, sum, 1);
      else
        sum[0] = plain_dot(w, c.axes, m, depth, patch);
      put(m, sum[0]);
    }
  }
}

}  // namespace SITU_ISA
}  // namespace situ
