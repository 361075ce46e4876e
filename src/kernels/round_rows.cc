// situ.RoundRows: x [.., K] of floats -> rows of bytes (kernels/integer_layout.h), rounded as ONNX
// DynamicQuantizeLinear rounds them (kernels/dynamic_range.h): one range for all numbers of the call, which are those
// of one sequence. Every thread finds it, and rounds rows of its own.
#include "kernels/dynamic_range.h"
#include "kernels/integer_layout.h"

namespace situ {
namespace SITU_ISA {
namespace {

// q[0 .. k) = the bytes of x less 128; returns their sum.
int32_t round_signed(const float* x, int64_t k, const ByteRange& range, int8_t* q) {
  VecI sum{};
  int64_t i = 0;
  for (; i + kLanes <= k; i += kLanes) {
    const VecI v = rounded(load(x + i), range) - 128;
    sum += v;
    *reinterpret_cast<UnalignedB*>(q + i) = __builtin_convertvector(v, VecB);
  }
  int32_t total = 0;
  for (int lane = 0; lane < kLanes; ++lane) total += sum[lane];
  if (i < k) {
    const VecI v = rounded(load_n(x + i, k - i), range) - 128;
    for (int64_t j = i; j < k; ++j) {
      q[j] = static_cast<int8_t>(v[j - i]);
      total += v[j - i];
    }
  }
  return total;
}

}  // namespace

void round_rows(const KernelCall& call, int thread, int threads) {
  const View &x = call.in[0], &y = call.out[0];
  const int64_t k = x.dims[x.rank - 1], step = x.strides[x.rank - 1], rows = count_dims(x, 0, x.rank - 1);
  const IntegerLayout layout{k, 0};
  const RowOffsets from(x, x.rank - 1), to(y, y.rank - 1);
  float* numbers = reinterpret_cast<float*>(call.scratch);
  const auto row_of = [&](int64_t r) {
    const float* row = x.as<const float>() + from[r];
    if (step == 1) return row;
    read_row(row, step, k, numbers);
    return static_cast<const float*>(numbers);
  };
  Extremes seen;
  if (step == 1 && from.even && from.step == k)
    seen.look_at(x.as<const float>(), rows * k);
  else
    for (int64_t r = 0; r < rows; ++r) seen.look_at(row_of(r), k);
  const ByteRange range = seen.range();
  int64_t begin, end;
  split_range(rows, thread, threads, &begin, &end);
  for (int64_t r = begin; r < end; ++r) {
    int8_t* q = y.as<int8_t>() + to[r];
    IntegerRowEnd last{range.scale, range.zero - 128, round_signed(row_of(r), k, range, q)};
    for (int64_t i = k; i < layout.depth(); ++i) q[i] = 0;
    *reinterpret_cast<IntegerRowEnd*>(q + layout.depth()) = last;
  }
}

}  // namespace SITU_ISA
}  // namespace situ
