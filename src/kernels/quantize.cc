// Values out of quantised tables, y = (q - zero) * scale, and into integers, q = round(x / scale) + zero. Elements
// below a byte are packed low bits first.
#include "kernels/params.h"
#include "kernels/rows.h"

namespace situ {
namespace SITU_ISA {
namespace {

constexpr int64_t kChunk = 256;

// 8-bit floats: sign, `exponent` bits, the rest mantissa. `finite`: no infinity (E4M3FN and the FNUZ types);
// `nuz`: 0x80 is the only NaN and the bias is one more.
SITU_INLINE float decode_f8(uint8_t bits, int exponent_bits, bool finite, bool nuz) {
  const int mantissa_bits = 7 - exponent_bits;
  const int bias = (1 << (exponent_bits - 1)) - 1 + (nuz ? 1 : 0);
  const int exponent = (bits & 0x7f) >> mantissa_bits, mantissa = bits & ((1 << mantissa_bits) - 1);
  const float nan = __builtin_nanf("");
  if (nuz && bits == 0x80) return nan;
  if (!nuz && finite && (bits & 0x7f) == 0x7f) return nan;
  if (!nuz && !finite && exponent == (1 << exponent_bits) - 1) {
    return mantissa != 0 ? nan : ((bits & 0x80) != 0 ? -__builtin_inff() : __builtin_inff());
  }
  const float fraction = static_cast<float>(exponent == 0 ? mantissa : mantissa + (1 << mantissa_bits));
  const float value = fraction * exp2_integer((exponent == 0 ? 1 : exponent) - bias - mantissa_bits);
  return (bits & 0x80) != 0 ? -value : value;
}

// `bits` bits (a divisor of 8) at bit offset `at`.
SITU_INLINE uint32_t read_bits(const uint8_t* data, int64_t at, int bits) {
  return (data[at >> 3] >> (at & 7)) & ((1u << bits) - 1);
}
SITU_INLINE float signed_value(uint32_t digit, int bits) {
  const int32_t sign = 1 << (bits - 1);
  return static_cast<float>((static_cast<int32_t>(digit) ^ sign) - sign);
}

template <typename T>
SITU_INLINE void read_integers(const View& v, int64_t at, int64_t step, int64_t n, float* out) {
  const T* p = v.as<const T>() + at;
  for (int64_t i = 0; i < n; ++i) out[i] = static_cast<float>(p[i * step]);
}

// Elements at, at + step, .. of a quantised view as floats.
void read_quantized(const View& v, int64_t at, int64_t step, int64_t n, float* out) {
  const uint8_t* bytes = v.as<const uint8_t>();
  const int bits = dtype_bits(v.type);
  switch (v.type) {
    case DType::kU8:
      return read_integers<uint8_t>(v, at, step, n, out);
    case DType::kI8:
      return read_integers<int8_t>(v, at, step, n, out);
    case DType::kU16:
      return read_integers<uint16_t>(v, at, step, n, out);
    case DType::kI16:
      return read_integers<int16_t>(v, at, step, n, out);
    case DType::kI32:
      return read_integers<int32_t>(v, at, step, n, out);
    case DType::kU4:
    case DType::kU2:
      for (int64_t i = 0; i < n; ++i) out[i] = static_cast<float>(read_bits(bytes, (at + i * step) * bits, bits));
      return;
    case DType::kI4:
    case DType::kI2:
      for (int64_t i = 0; i < n; ++i) out[i] = signed_value(read_bits(bytes, (at + i * step) * bits, bits), bits);
      return;
    case DType::kF4E2M1:
      for (int64_t i = 0; i < n; ++i) {
        constexpr float kValues[8] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6};
        const uint32_t digit = read_bits(bytes, (at + i * step) * 4, 4);
        out[i] = (digit & 8) != 0 ? -kValues[digit & 7] : kValues[digit & 7];
      }
      return;
    default:
      break;
  }
  const bool e4 = v.type == DType::kF8E4M3FN || v.type == DType::kF8E4M3FNUZ;
  const bool nuz = v.type == DType::kF8E4M3FNUZ || v.type == DType::kF8E5M2FNUZ;
  for (int64_t i = 0; i < n; ++i) out[i] = decode_f8(bytes[at + i * step], e4 ? 4 : 5, e4 || nuz, nuz);
}

// Where the scale of element index (i0, ..) lies: per tensor, per axis or per block of an axis.
struct ScaleMap {
  int64_t strides[kMaxRank] = {};
  int axis = -1;
  int64_t block = 1;

  ScaleMap(const View& x, const View& scale, const DequantizeParams& params) {
    if (scale.rank == 0 || (scale.count() == 1 && params.block == 0)) return;
    axis = params.axis;
    if (params.block > 0) {
      block = params.block;
      for (int i = 0; i < x.rank; ++i) strides[i] = scale.strides[i];
    } else {
      strides[axis] = scale.strides[0];
    }
  }
  int64_t offset(int dim, int64_t index) const { return (dim == axis ? index / block : index) * strides[dim]; }
};

// The scales and zero points of a call: operands x, scale, zero? -> y, with DequantizeParams.
struct Scaled {
  const View &x, &scale, &y;
  const View* zero;  // null: 0
  const ScaleMap scales, zeros;

  Scaled(const KernelCall& call, const DequantizeParams& params)
      : x(call.in[0]),
        scale(call.in[1]),
        y(call.out[0]),
        zero(call.in_count > 2 && call.in[2].present() ? &call.in[2] : nullptr),
        scales(x, scale, params),
        zeros(x, zero != nullptr ? *zero : scale, params) {}

  int last() const { return x.rank - 1; }
  int64_t x_step() const { return x.rank > 0 ? x.strides[last()] : 1; }
  int64_t y_step() const { return x.rank > 0 ? y.strides[last()] : 1; }

  // Of `n` elements of a row from column `j` on.
  void factors(int64_t scale_at, int64_t zero_at, int64_t j, int64_t n, float* factor, float* offset) const {
    if (x.rank > 0 && scales.axis == last()) {
      for (int64_t i = 0; i < n; ++i) {
        factor[i] = read_float(scale.data, scale.type, scale_at + scales.offset(last(), j + i));
        offset[i] = 0;
        if (zero != nullptr) read_quantized(*zero, zero_at + zeros.offset(last(), j + i), 1, 1, offset + i);
      }
      return;
    }
    const int64_t column_step = x.rank > 0 ? scales.strides[last()] : 0,
                  zero_step = x.rank > 0 ? zeros.strides[last()] : 0;
    read_row(scale.data, scale.type, scale_at + j * column_step, column_step, n, factor);
    for (int64_t i = 0; i < n; ++i) offset[i] = 0;
    if (zero != nullptr) read_quantized(*zero, zero_at + j * zero_step, zero_step, n, offset);
  }

  // body(elements of x and y from their data on, n, factor, offset) for each chunk of a row of this thread.
  template <typename Body>
  void each_chunk(int thread, int threads, Body body) const {
    const int outer = x.rank > 0 ? x.rank - 1 : 0;
    const int64_t columns = x.rank > 0 ? x.dims[outer] : 1;
    int64_t begin, end;
    split_rows(count_dims(x, 0, outer), columns, thread, threads, &begin, &end);
    for (int64_t row = begin; row < end; ++row) {
      int64_t rest = row, x_at = 0, y_at = 0, scale_at = 0, zero_at = 0;
      for (int i = outer - 1; i >= 0; --i) {
        const int64_t index = rest % x.dims[i];
        rest /= x.dims[i];
        x_at += index * x.strides[i];
        y_at += index * y.strides[i];
        scale_at += scales.offset(i, index);
        zero_at += zeros.offset(i, index);
      }
      for (int64_t j = 0; j < columns; j += kChunk) {
        const int64_t n = columns - j < kChunk ? columns - j : kChunk;
        float factor[kChunk], offset[kChunk];
        factors(scale_at, zero_at, j, n, factor, offset);
        body(x_at + j * x_step(), y_at + j * y_step(), n, factor, offset);
      }
    }
  }
};

// The nearest of low .. high to x / factor + offset, ties to even; NaN becomes low. Beyond 2^22 there is nothing to
// round: every such number is out of range.
SITU_INLINE float nearest_digit(float x, float factor, float offset, float low, float high) {
  constexpr float kMagic = 12582912.0f;  // 1.5 * 2^23: what is added to it is rounded to an integer
  const float quotient = x / factor, bounded = quotient > 4194304.0f ? 4194304.0f : quotient;
  const float digit = ((bounded < -4194304.0f ? -4194304.0f : bounded) + kMagic) - kMagic + offset;
  return !(digit > low) ? low : digit > high ? high : digit;
}

template <typename T>
SITU_INLINE void write_digits(const View& y, int64_t at, int64_t step, int64_t n, const float* digits) {
  T* p = y.as<T>() + at;
  for (int64_t i = 0; i < n; ++i) p[i * step] = static_cast<T>(static_cast<int32_t>(digits[i]));
}

}  // namespace

void dequantize_linear(const KernelCall& call, int thread, int threads) {
  const Scaled work(call, *static_cast<const DequantizeParams*>(call.params));
  work.each_chunk(thread, threads, [&](int64_t from, int64_t to, int64_t n, const float* factor, const float* offset) {
    float value[kChunk];
    read_quantized(work.x, from, work.x_step(), n, value);
    for (int64_t i = 0; i < n; ++i) value[i] = (value[i] - offset[i]) * factor[i];
    write_row(work.y.data, work.y.type, to, work.y_step(), n, value);
  });
}

// y = round(x / scale) + zero, the nearest that y can hold.
void quantize_linear(const KernelCall& call, int thread, int threads) {
  const QuantizeParams& params = *static_cast<const QuantizeParams*>(call.params);
  const Scaled work(call, params.scales);
  const View& y = work.y;
  work.each_chunk(thread, threads, [&](int64_t from, int64_t to, int64_t n, const float* factor, const float* offset) {
    float value[kChunk];
    read_row(work.x.data, work.x.type, from, work.x_step(), n, value);
    for (int64_t i = 0; i < n; ++i) value[i] = nearest_digit(value[i], factor[i], offset[i], params.low, params.high);
    if (y.type == DType::kU8) return write_digits<uint8_t>(y, to, work.y_step(), n, value);
    if (y.type == DType::kI8) return write_digits<int8_t>(y, to, work.y_step(), n, value);
    if (y.type == DType::kU16) return write_digits<uint16_t>(y, to, work.y_step(), n, value);
    write_digits<int16_t>(y, to, work.y_step(), n, value);
  });
}

// situ.RoundLinear: the same, and back: what a number is worth after it was written as an integer.
void round_linear(const KernelCall& call, int thread, int threads) {
  const QuantizeParams& params = *static_cast<const QuantizeParams*>(call.params);
  const Scaled work(call, params.scales);
  work.each_chunk(thread, threads, [&](int64_t from, int64_t to, int64_t n, const float* factor, const float* offset) {
    float value[kChunk];
    read_row(work.x.data, work.x.type, from, work.x_step(), n, value);
    for (int64_t i = 0; i < n; ++i)
      value[i] = (nearest_digit(value[i], factor[i], offset[i], params.low, params.high) - offset[i]) * factor[i];
    write_row(work.y.data, work.y.type, to, work.y_step(), n, value);
  });
}

namespace {

// One block-quantised table. Everything is contiguous: these are weights.
struct Table {
  const View &data, &scales;
  const View* zeros;  // null: default_zero
  const GatherBlockQuantizedParams& params;
  int64_t dims[kMaxRank];  // in elements, also when bytes are packed
  bool is_signed;

  float zero(int64_t scale_row, int64_t scale_column) const {
    if (zeros == nullptr) return static_cast<float>(params.default_zero);
    const int last = scales.rank - 1;
    const int64_t bit = params.packed_bytes ? scale_row * zeros->dims[last] * 8 + scale_column * params.bits
                                            : (scale_row * scales.dims[last] + scale_column) * params.bits;
    const uint32_t digit = read_bits(zeros->as<const uint8_t>(), bit, params.bits);
    return is_signed ? signed_value(digit, params.bits) : static_cast<float>(digit);
  }
  // `n` elements from index `at` of the table on, along the last dim.
  void read(const int64_t* at, int64_t n, float* out) const {
    const int last = data.rank - 1;
    int64_t row = 0, scale_row = 0;
    for (int i = 0; i < last; ++i) {
      row = row * dims[i] + at[i];
      scale_row = scale_row * scales.dims[i] + (i == params.quantize_axis ? at[i] / params.block : at[i]);
    }
    const int64_t row_bits = params.packed_bytes ? data.dims[last] * 8 : dims[last] * params.bits;
    const int64_t block = params.quantize_axis == last ? params.block : 1;
    const int64_t scale_base = scale_row * scales.dims[last];
    for (int64_t i = 0; i < n;) {
      const int64_t column = at[last] + i, b = column / block;
      const int64_t to = (b + 1) * block - at[last] < n ? (b + 1) * block - at[last] : n;
      const float scale = read_float(scales.data, scales.type, scale_base + b), z = zero(scale_row, b);
      for (; i < to; ++i) {
        const uint32_t digit =
            read_bits(data.as<const uint8_t>(), row * row_bits + (at[last] + i) * params.bits, params.bits);
        out[i] = ((is_signed ? signed_value(digit, params.bits) : static_cast<float>(digit)) - z) * scale;
      }
    }
  }
};

int64_t read_index(const View& indices, int64_t linear) {
  const int64_t at = row_offset(indices, indices.rank, linear);
  return indices.type == DType::kI32 ? indices.as<const int32_t>()[at] : indices.as<const int64_t>()[at];
}

}  // namespace

// y [d0 .. dg-1, indices.., dg+1 ..] = rows of data along gather_axis g. An index out of range is reported and gives
// zeros.
void gather_block_quantized(const KernelCall& call, int thread, int threads) {
  const GatherBlockQuantizedParams& params = *static_cast<const GatherBlockQuantizedParams*>(call.params);
  const View &data = call.in[0], &indices = call.in[1], &y = call.out[0];
  Table table{data, call.in[2], call.in_count > 3 && call.in[3].present() ? &call.in[3] : nullptr, params, {}, false};
  table.is_signed = data.type == DType::kI4 || data.type == DType::kI2;
  const int last = data.rank - 1, axis = params.gather_axis;
  for (int i = 0; i <= last; ++i) table.dims[i] = data.dims[i];
  if (params.packed_bytes) table.dims[last] = data.dims[last] * (8 / params.bits);
  const bool whole_rows = axis != last;  // else every element has its own index
  const int outer = whole_rows ? y.rank - 1 : y.rank;
  const int64_t columns = whole_rows ? table.dims[last] : 1, step = whole_rows ? y.strides[outer] : 0;
  int64_t begin, end;
  split_rows(count_dims(y, 0, outer), columns, thread, threads, &begin, &end);
  for (int64_t row = begin; row < end; ++row) {
    int64_t rest = row, at[kMaxRank] = {};
    for (int i = whole_rows ? last - 1 : last; i > axis; --i) {
      at[i] = rest % table.dims[i];
      rest /= table.dims[i];
    }
    const int64_t count = indices.count();
    const int64_t given = read_index(indices, rest % count);
    rest /= count;
    for (int i = axis - 1; i >= 0; --i) {
      at[i] = rest % table.dims[i];
      rest /= table.dims[i];
    }
    const int64_t index = given < 0 ? given + table.dims[axis] : given;
    const bool valid = index >= 0 && index < table.dims[axis];
    if (!valid) report(call, "index out of range", given, table.dims[axis]);
    at[axis] = valid ? index : 0;
    const int64_t y_at = row_offset(y, outer, row);
    for (int64_t j = 0; j < columns; j += kChunk) {
      const int64_t n = columns - j < kChunk ? columns - j : kChunk;
      float values[kChunk] = {};
      if (whole_rows) at[last] = j;
      if (valid) table.read(at, n, values);
      write_row(y.data, y.type, y_at + j * step, step, n, values);
    }
  }
}

}  // namespace SITU_ISA
}  // namespace situ
