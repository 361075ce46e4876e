// y = x in another element type. Reals to integers: towards zero. Reals to narrower reals: nearest even.
// Anything to bool: != 0. float8, float4: nearest even, overflow as CastParams says. int4, uint4, int2,
// uint2 are contiguous and packed, low bits first; values wrap.
#include "kernels/elements.h"
#include "kernels/params.h"

namespace situ {
namespace SITU_ISA {
namespace {

// A float of 8 bits or less: sign, exponent, mantissa.
struct MiniFormat {
  int exponent_bits, mantissa_bits, bias;
  bool has_sign;
  bool infinity;       // the largest exponent holds infinity and NaN, as IEEE
  bool negative_zero;  // false (FNUZ): the bits of -0 are the only NaN
  bool nan;
};

bool mini_format(DType type, MiniFormat* f) {
  switch (type) {
    case DType::kF8E4M3FN:
      *f = {4, 3, 7, true, false, true, true};
      return true;
    case DType::kF8E4M3FNUZ:
      *f = {4, 3, 8, true, false, false, true};
      return true;
    case DType::kF8E5M2:
      *f = {5, 2, 15, true, true, true, true};
      return true;
    case DType::kF8E5M2FNUZ:
      *f = {5, 2, 16, true, false, false, true};
      return true;
    case DType::kF4E2M1:
      *f = {2, 1, 1, true, false, true, false};
      return true;
    default:
      return false;
  }
}

float power_of_two(int n) { return static_cast<float>(__builtin_ldexp(1.0, n)); }

float decode(const MiniFormat& f, uint32_t bits) {
  const int width = 1 + f.exponent_bits + f.mantissa_bits;
  const uint32_t magnitude = bits & ((1u << (width - 1)) - 1);
  const bool negative = (bits >> (width - 1)) != 0;
  const uint32_t exponent = magnitude >> f.mantissa_bits, mantissa = magnitude & ((1u << f.mantissa_bits) - 1);
  const uint32_t top = (1u << f.exponent_bits) - 1;
  const float nan = __builtin_nanf("");
  if (!f.negative_zero && negative && magnitude == 0) return nan;
  if (f.infinity && exponent == top) return mantissa != 0 ? nan : negative ? -__builtin_inff() : __builtin_inff();
  if (f.nan && f.negative_zero && !f.infinity && exponent == top && mantissa == (1u << f.mantissa_bits) - 1) return nan;
  const int scale = (exponent == 0 ? 1 : static_cast<int>(exponent)) - f.bias - f.mantissa_bits;
  const uint32_t whole = mantissa + (exponent == 0 ? 0u : 1u << f.mantissa_bits);
  const float value = static_cast<float>(whole) * power_of_two(scale);
  return negative ? -value : value;
}

// Bits of the largest finite number.
uint32_t largest(const MiniFormat& f) {
  const uint32_t all = (1u << (f.exponent_bits + f.mantissa_bits)) - 1;
  if (f.infinity) return all - (1u << f.mantissa_bits);
  return f.nan && f.negative_zero ? all - 1 : all;
}

uint32_t encode(const MiniFormat& f, float x, bool saturate) {
  const uint32_t sign = (float_bits(x) >> 31) << (f.exponent_bits + f.mantissa_bits);
  const uint32_t top = ((1u << f.exponent_bits) - 1) << f.mantissa_bits;
  const uint32_t nan = !f.negative_zero ? 1u << (f.exponent_bits + f.mantissa_bits)
                       : f.infinity     ? sign | top | (1u << (f.mantissa_bits - 1))
                                        : sign | top | ((1u << f.mantissa_bits) - 1);
  if (x != x) return f.nan ? nan : 1u << (f.exponent_bits + f.mantissa_bits);  // no NaN: -0
  const float t = absolute(x);
  const uint32_t overflow = !f.nan || saturate ? sign | largest(f) : f.infinity ? sign | top : nan;
  if (t > 3.4e38f) return overflow;  // infinity
  // The spacing of numbers around t, never finer than that of the subnormals.
  int exponent = static_cast<int>(float_bits(t) >> 23) - 127;
  exponent = exponent < 1 - f.bias ? 1 - f.bias : exponent;
  const double units = __builtin_rint(static_cast<double>(t) * __builtin_ldexp(1.0, f.mantissa_bits - exponent));
  const uint32_t magnitude =
      static_cast<uint32_t>(exponent + f.bias - 1) * (1u << f.mantissa_bits) + static_cast<uint32_t>(units);
  if (magnitude > largest(f)) return overflow;
  return magnitude == 0 && !f.negative_zero ? 0 : sign | magnitude;
}

// float8e8m0: a power of two, 2^(bits - 127); 255 is NaN. Rounds up, as ONNX's default round_mode.
uint32_t encode_e8m0(float x, bool saturate) {
  if (x != x || x < 0) return 255;
  if (x > 3.4e38f) return saturate ? 254 : 255;
  if (x <= 0x1p-127f) return 0;
  const uint32_t bits = float_bits(x);
  const uint32_t exponent = (bits >> 23) + ((bits & 0x7fffffu) != 0 ? 1u : 0u);
  return exponent > 254 ? (saturate ? 254 : 255) : exponent;
}
float decode_e8m0(uint32_t bits) {
  return bits == 255 ? __builtin_nanf("") : power_of_two(static_cast<int>(bits) - 127);
}

// Elements of less than a byte, or without a C type: `width` bits at flat index i.
uint32_t read_bits(const View& v, int64_t i, int width) {
  const uint32_t byte = static_cast<uint32_t>(v.data[i * width / 8]);
  return (byte >> (i * width % 8)) & ((1u << width) - 1);
}
void write_bits(const View& v, int64_t i, int width, uint32_t bits) {
  std::byte& byte = v.data[i * width / 8];
  const int shift = static_cast<int>(i * width % 8);
  const uint32_t mask = ((1u << width) - 1) << shift;
  byte = static_cast<std::byte>((static_cast<uint32_t>(byte) & ~mask) | ((bits << shift) & mask));
}

bool is_small_integer(DType t) { return t == DType::kU4 || t == DType::kI4 || t == DType::kU2 || t == DType::kI2; }
bool is_unusual(DType t) {
  MiniFormat f;
  return is_small_integer(t) || t == DType::kF8E8M0 || mini_format(t, &f);
}

template <typename C>
void load_unusual(const View& v, int64_t at, int64_t step, int64_t n, C* buffer) {
  const int width = dtype_bits(v.type);
  MiniFormat f;
  const bool mini = mini_format(v.type, &f);
  const bool is_signed = v.type == DType::kI4 || v.type == DType::kI2;
  for (int64_t i = 0; i < n; ++i) {
    const uint32_t bits = read_bits(v, at + i * step, width);
    if (mini)
      buffer[i] = convert<C>(decode(f, bits));
    else if (v.type == DType::kF8E8M0)
      buffer[i] = convert<C>(decode_e8m0(bits));
    else
      buffer[i] = static_cast<C>(is_signed && bits >> (width - 1) ? static_cast<int>(bits) - (1 << width)
                                                                  : static_cast<int>(bits));
  }
}

template <typename C>
void store_unusual(const View& v, int64_t at, int64_t step, int64_t n, const C* values, bool saturate) {
  const int width = dtype_bits(v.type);
  MiniFormat f;
  const bool mini = mini_format(v.type, &f);
  for (int64_t i = 0; i < n; ++i) {
    uint32_t bits;
    if (mini)
      bits = encode(f, narrow_for_half(values[i]), saturate);
    else if (v.type == DType::kF8E8M0)
      bits = encode_e8m0(narrow_for_half(values[i]), saturate);
    else
      bits = static_cast<uint32_t>(convert<int64_t>(values[i]));
    write_bits(v, at + i * step, width, bits);
  }
}

// Integers meet in 64 bits, reals in their own width.
template <typename F>
void dispatch_intermediate(DType from, F f) {
  if (from == DType::kF64)
    f(Tag<double>());
  else if (from == DType::kU64)
    f(Tag<uint64_t>());
  else if (dtype_is_float(from) || (is_unusual(from) && !is_small_integer(from)))
    f(Tag<float>());
  else
    f(Tag<int64_t>());
}

}  // namespace

void cast(const KernelCall& call, int thread, int threads) {
  const View &x = call.in[0], &y = call.out[0];
  const auto* p = static_cast<const CastParams*>(call.params);
  const bool saturate = p == nullptr || p->saturate;
  const View* views[] = {&y, &x};
  const Nest nest = make_nest(views, 2);
  int64_t begin, end;
  split_elements(nest.count(), thread, threads, &begin, &end);
  dispatch_intermediate(x.type, [&](auto tag) {
    using C = typename decltype(tag)::type;
    C buffer[kChunk];
    for_each_span(nest, begin, end, [&](const int64_t* at, int64_t count) {
      const int64_t y_step = nest.step(0), x_step = nest.step(1);
      for (int64_t i = 0; i < count; i += kChunk) {
        const int64_t n = count - i < kChunk ? count - i : kChunk;
        const int64_t y_at = at[0] + i * y_step, x_at = at[1] + i * x_step;
        const C* values = buffer;
        if (is_unusual(x.type))
          load_unusual(x, x_at, x_step, n, buffer);
        else
          values = load(x, x_at, x_step, n, buffer);
        if (is_unusual(y.type))
          store_unusual(y, y_at, y_step, n, values, saturate);
        else
          store(y, y_at, y_step, n, values);
      }
    });
  });
}

}  // namespace SITU_ISA
}  // namespace situ
