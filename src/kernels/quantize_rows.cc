// situ.QuantizeRows (layout in params.h): x [.., D] of floats -> y [.., D + 4] int8. Rows that hold an infinity or NaN
// become NaN; rows of zeros stay zero.
#include "kernels/nbits_int8.h"
#include "kernels/params.h"
#include "kernels/rows.h"

namespace situ {
namespace SITU_ISA {
namespace {

// q[i] = round(x[i] / scale); returns scale: NaN if a number is not finite. q has unit stride.
float quantize(const float* x, int64_t size, int8_t* q) {
  VecF largest{}, zeros{};
  int64_t i = 0;
  auto look_at = [&](VecF v) {
    largest = vmax((VecF)((VecU)v & 0x7fffffffu), largest);
    zeros += v * 0.0f;
  };
  for (; i + kLanes <= size; i += kLanes) look_at(load(x + i));
  if (i < size) look_at(load_n(x + i, size - i));
  const float scale = max_lanes(largest) / 127.0f + sum_lanes(zeros), inverse = scale > 0 ? 1.0f / scale : 0.0f;
  auto round = [&](VecF v) { return __builtin_convertvector(nearest_bytes(v * inverse), VecB); };
  for (i = 0; i + kLanes <= size; i += kLanes) *reinterpret_cast<UnalignedB*>(q + i) = round(load(x + i));
  if (i < size) {
    const VecB last = round(load_n(x + i, size - i));
    for (int64_t j = i; j < size; ++j) q[j] = last[j - i];
  }
  return scale;
}

}  // namespace

void quantize_rows(const KernelCall& call, int thread, int threads) {
  const View &x = call.in[0], &y = call.out[0];
  const int64_t size = x.dims[x.rank - 1], x_step = x.strides[x.rank - 1], y_step = y.strides[y.rank - 1];
  float* row = reinterpret_cast<float*>(call.scratch);
  int8_t* bytes = reinterpret_cast<int8_t*>(row + size);
  const RowOffsets x_rows(x, x.rank - 1), y_rows(y, y.rank - 1);
  int64_t begin, end;
  split_rows(count_dims(x, 0, x.rank - 1), size, thread, threads, &begin, &end);
  for (int64_t i = begin; i < end; ++i) {
    read_row(x.data, x.type, x_rows[i], x_step, size, row);
    int8_t *to = y.as<int8_t>() + y_rows[i], *q = y_step == 1 ? to : bytes;
    *reinterpret_cast<FloatAnywhere*>(q + size) = quantize(row, size, q);
    for (int64_t d = 0; q != to && d < size + kRowScaleBytes; ++d) to[d * y_step] = q[d];
  }
}

}  // namespace SITU_ISA
}  // namespace situ
