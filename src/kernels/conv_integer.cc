// conv_integer: y int32 [N, M, O..] = the convolution (kernels/conv.cc) of x - zx with w - zw: x, w uint8 or int8, zx
// one number, zw one number or [M], 0 where absent. What lies in the padding counts as 0, that is as zx. Sums wrap as
// int32. Source: ONNX ConvInteger.
#include "kernels/conv_patch.h"

namespace situ {
namespace SITU_ISA {
namespace {

SITU_INLINE int32_t byte_at(const View& v, int64_t i) {
  return v.type == DType::kI8 ? v.as<const int8_t>()[i] : v.as<const uint8_t>()[i];
}

// sum over i of patch[i] * (w[m, i] - zero); w of any strides.
template <typename T>
int32_t dot(const View& w, int axes, int64_t m, int64_t depth, const int32_t* patch, int32_t zero) {
  const T* row = w.as<const T>() + m * w.strides[0];
  uint32_t sum = 0;
  if (w.contiguous()) {
    for (int64_t i = 0; i < depth; ++i)
      sum += static_cast<uint32_t>(patch[i]) * static_cast<uint32_t>(static_cast<int32_t>(row[i]) - zero);
    return static_cast<int32_t>(sum);
  }
  for (int64_t i = 0; i < depth; ++i) {
    int64_t rest = i, at = 0;
    for (int a = axes; a-- > 0;) {
      at += rest % w.dims[2 + a] * w.strides[2 + a];
      rest /= w.dims[2 + a];
    }
    at += rest * w.strides[1];
    sum += static_cast<uint32_t>(patch[i]) * static_cast<uint32_t>(static_cast<int32_t>(row[at]) - zero);
  }
  return static_cast<int32_t>(sum);
}

}  // namespace

void conv_integer(const KernelCall& call, int thread, int threads) {
  const ConvParams& c = *static_cast<const ConvParams*>(call.params);
  const View &x = call.in[0], &w = call.in[1], &y = call.out[0];
  const auto zero_at = [&](int i, int64_t m) {
    if (call.in_count <= i || !call.in[i].present()) return 0;
    return byte_at(call.in[i], call.in[i].count() == 1 ? 0 : m * call.in[i].strides[0]);
  };
  const int64_t groups = c.groups, rows = w.dims[0] / groups;
  int64_t depth = 1, units = x.dims[0] * groups;
  for (int i = 1; i < w.rank; ++i) depth *= w.dims[i];
  for (int a = 0; a < c.axes; ++a) units *= y.dims[2 + a];
  int32_t* patch = reinterpret_cast<int32_t*>(call.scratch);
  int64_t begin, end;
  split_range(units, thread, threads, &begin, &end);
  for (int64_t unit = begin; unit < end; ++unit) {
    const Position p = position_of(y, c.axes, groups, unit);
    if (x.type == DType::kI8)
      gather_patch<int8_t>(c, x, w, p, zero_at(2, 0), patch);
    else
      gather_patch<uint8_t>(c, x, w, p, zero_at(2, 0), patch);
    int64_t at = p.batch * y.strides[0];
    for (int a = 0; a < c.axes; ++a) at += p.at[a] * y.strides[2 + a];
    for (int64_t m = p.group * rows; m < (p.group + 1) * rows; ++m)
      y.as<int32_t>()[at + m * y.strides[1]] = w.type == DType::kI8
                                                   ? dot<int8_t>(w, c.axes, m, depth, patch, zero_at(3, m))
                                                   : dot<uint8_t>(w, c.axes, m, depth, patch, zero_at(3, m));
  }
}

}  // namespace SITU_ISA
}  // namespace situ
