// Rows of floats as they are stored (kernels/row_encoding.h).
//   situ.EncodeRows(x [.., D]) -> y [.., D + 4] int8, each row with a scale of its own. Rows that hold an infinity or
//   NaN become NaN; rows of zeros stay zero.
//   situ.EncodeRows(x [B, H, S, D], factors f32 [H or 1, D or 1]) -> y [B, H, S, D] int8, or digits [.., (D + 1) / 2]
//   uint8: round(x * factor), ties to even; what is beyond becomes the nearest that there is.
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

// x[i] = round(x[i] * factors[i * step]) between `least` and `most`.
void round_row(float* x, const float* factors, int64_t step, int64_t size, float least, float most) {
  for (int64_t i = 0; i < size; i += kLanes) {
    const int64_t n = size - i < kLanes ? size - i : kLanes;
    const VecF factor = step == 1 ? load_n(factors + i, n) : splat(*factors);
    const VecF above = vmax(load_n(x + i, n) * factor, splat(least)), within = above < most ? above : splat(most);
    store_n(x + i, __builtin_convertvector(nearest(within), VecF), n);
  }
}

void encode_by_factors(const KernelCall& call, bool digits, int thread, int threads) {
  const View &x = call.in[0], &factors = call.in[1], &y = call.out[0];
  const int64_t size = x.dims[3], y_step = y.strides[3], step = factors.dims[1] > 1 ? 1 : 0;
  const int64_t head_step = factors.dims[0] > 1 ? factors.strides[0] : 0;
  float* row = reinterpret_cast<float*>(call.scratch);
  const RowOffsets x_rows(x, 3), y_rows(y, 3);
  int64_t begin, end;
  split_rows(count_dims(x, 0, 3), size, thread, threads, &begin, &end);
  for (int64_t i = begin; i < end; ++i) {
    read_row(x.data, x.type, x_rows[i], x.strides[3], size, row);
    round_row(row, factors.as<const float>() + i / x.dims[2] % x.dims[1] * head_step, step, size,
              digits ? -8.0f : -128.0f, digits ? 7.0f : 127.0f);
    row[size] = 0;  // beside the last digit of an odd number of them
    int8_t* bytes = y.as<int8_t>() + y_rows[i];
    for (int64_t d = 0; !digits && d < size; ++d) bytes[d * y_step] = static_cast<int8_t>(row[d]);
    for (int64_t d = 0; digits && d < size; d += 2) {
      const int32_t low = static_cast<int32_t>(row[d]) + 8, high = static_cast<int32_t>(row[d + 1]) + 8;
      y.as<uint8_t>()[y_rows[i] + d / 2 * y_step] = static_cast<uint8_t>(low | high << 4);
    }
  }
}

void encode_by_row(const KernelCall& call, int thread, int threads) {
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

}  // namespace

void encode_rows(const KernelCall& call, int thread, int threads) {
  const RowEncoding encoding = static_cast<const EncodeRowsParams*>(call.params)->encoding;
  if (encoding == RowEncoding::kRowScale) return encode_by_row(call, thread, threads);
  encode_by_factors(call, encoding == RowEncoding::kDigits, thread, threads);
}

}  // namespace SITU_ISA
}  // namespace situ
