// dequantize_linear, quantize_linear, round_linear and gather_block_quantized against element-by-element decoding.
#include "kernels/strided_test.h"

namespace situ {
namespace {

// A contiguous tensor of a type below one byte.
struct PackedTensor {
  DType type;
  std::vector<uint8_t> bytes;
  View view;

  PackedTensor(DType t, const std::vector<int64_t>& dims) : type(t) {
    view.type = t;
    view.rank = static_cast<int32_t>(dims.size());
    for (size_t i = 0; i < dims.size(); ++i) view.dims[i] = dims[i];
    view.set_contiguous_strides();
    bytes.resize(static_cast<size_t>((view.count() * dtype_bits(t) + 7) / 8));
    for (uint8_t& b : bytes) b = static_cast<uint8_t>(random_int(0, 255));
    view.data = reinterpret_cast<std::byte*>(bytes.data());
  }
  PackedTensor(const PackedTensor&) = delete;
  static int digit(const std::vector<uint8_t>& bytes, int64_t bit, int bits) {
    return (bytes[static_cast<size_t>(bit / 8)] >> (bit % 8)) & ((1 << bits) - 1);
  }
  double get(int64_t i) const {
    const int bits = dtype_bits(type), d = digit(bytes, i * bits, bits);
    const bool negative = (type == DType::kI4 || type == DType::kI2) && d >= 1 << (bits - 1);
    return negative ? d - (1 << bits) : d;
  }
};

struct Case {
  std::vector<int64_t> dims;
  int axis = 0;
  int64_t block = 0;
  bool single = false, zeros = false;
  DType scale_type = DType::kF32;
};

std::vector<int64_t> scale_dims(const Case& t) {
  if (t.single) return {};
  if (t.block == 0) return {t.dims[static_cast<size_t>(t.axis)]};
  std::vector<int64_t> dims = t.dims;
  dims[static_cast<size_t>(t.axis)] = (dims[static_cast<size_t>(t.axis)] + t.block - 1) / t.block;
  return dims;
}

// Row-major index of the scale for element i.
int64_t scale_index(const Case& t, int64_t i) {
  if (t.single) return 0;
  const std::vector<int64_t> dims = scale_dims(t);
  int64_t at = 0, unit = 1;
  for (size_t d = t.dims.size(); d-- > 0;) {
    const int64_t index = i % t.dims[d];
    i /= t.dims[d];
    if (t.block == 0) {
      if (static_cast<int>(d) == t.axis) at = index;
      continue;
    }
    at += (static_cast<int>(d) == t.axis ? index / t.block : index) * unit;
    unit *= dims[d];
  }
  return at;
}

template <typename Quantised>
void check(const Case& t, const Quantised& x, const View& x_view, const Quantised& zero, const View& zero_view) {
  StridedTensor scale(t.scale_type, scale_dims(t)), y = StridedTensor::random_layout(t.scale_type, t.dims);
  scale.fill(0.1, 1);
  const DequantizeParams params{t.axis, t.block};
  const std::vector<View> in{x_view, scale.view(), t.zeros ? zero_view : View{}};
  for_each_isa([&](const KernelTable& table, int threads) {
    y.reset();
    run_kernel(table, &KernelTable::dequantize_linear, in, y.view(), &params, threads);
    ASSERT_TRUE(y.untouched_outside());
    for (int64_t i = 0; i < y.count(); ++i) {
      const int64_t s = scale_index(t, i);
      const double expected = (x.get(i) - (t.zeros ? zero.get(s) : 0)) * scale.get(s);
      ASSERT_NEAR(y.get(i), expected, rounding(t.scale_type) * std::fabs(expected) + 1e-6) << i;
    }
  });
}

TEST(Quantize, DequantizeLinear) {
  const std::vector<Case> cases = {
      {.dims = {3, 5, 7}, .single = true, .zeros = true},
      {.dims = {3, 5, 7}, .axis = 0},
      {.dims = {3, 5, 7}, .axis = 1, .zeros = true, .scale_type = DType::kF16},
      {.dims = {3, 5, 7}, .axis = 2, .zeros = true},
      {.dims = {300}, .axis = 0, .zeros = true},
      {.dims = {}, .single = true, .zeros = true},
      {.dims = {2, 600}, .axis = 1, .block = 32, .zeros = true},
      {.dims = {70, 300}, .axis = 0, .block = 16, .zeros = true, .scale_type = DType::kBF16},
      {.dims = {4, 9, 3}, .axis = 1, .block = 4},
      {.dims = {0, 4}, .axis = 1},
  };
  for (const Case& t : cases) {
    for (DType type : {DType::kU8, DType::kI8, DType::kU16, DType::kI16, DType::kI32}) {
      StridedTensor x = StridedTensor::random_layout(type, t.dims), zero(type, scale_dims(t));
      const int64_t low = type == DType::kU8 || type == DType::kU16 ? 0 : -100;
      x.fill_integers(low, 100);
      zero.fill_integers(low, 100);
      check(t, x, x.view(), zero, zero.view());
    }
    for (DType type : {DType::kU4, DType::kI4, DType::kU2, DType::kI2}) {
      const PackedTensor x(type, t.dims), zero(type, scale_dims(t));
      check(t, x, x.view, zero, zero.view);
    }
    if (HasFatalFailure()) return;
  }
}

// Numbers on both sides of the range, ties among them.
void check_rounding(const Case& t, DType type) {
  StridedTensor x = StridedTensor::random_layout(t.scale_type, t.dims), scale(t.scale_type, scale_dims(t)),
                zero(type, scale_dims(t)), y = StridedTensor::random_layout(type, t.dims),
                back = StridedTensor::random_layout(t.scale_type, t.dims);
  const bool is_signed = type == DType::kI8 || type == DType::kI16;
  const double numbers = dtype_bytes(type) == 1 ? 256 : 65536, low = is_signed ? -numbers / 2 : 0;
  for (int64_t i = 0; i < scale.count(); ++i) scale.set(i, 0.125 * (i % 3 + 1));
  zero.fill_integers(is_signed ? -20 : 100, is_signed ? 20 : 140);
  for (int64_t i = 0; i < x.count(); ++i)
    x.set(i,
          i % 4 == 0 ? 0.0625 * static_cast<double>(random_int(-40, 40)) : 0.01 * numbers * (random_int(0, 80) - 40));
  const QuantizeParams params{{t.axis, t.block}, static_cast<float>(low), static_cast<float>(low + numbers - 1)};
  const std::vector<View> in{x.view(), scale.view(), t.zeros ? zero.view() : View{}};
  for_each_isa([&](const KernelTable& table, int threads) {
    y.reset();
    back.reset();
    run_kernel(table, &KernelTable::quantize_linear, in, y.view(), &params, threads);
    run_kernel(table, &KernelTable::round_linear, in, back.view(), &params, threads);
    ASSERT_TRUE(y.untouched_outside() && back.untouched_outside());
    for (int64_t i = 0; i < y.count(); ++i) {
      const int64_t s = scale_index(t, i);
      const double offset = t.zeros ? zero.get(s) : 0,
                   digit = std::clamp(
                       std::nearbyint(static_cast<float>(x.get(i)) / static_cast<float>(scale.get(s))) + offset, low,
                       low + numbers - 1);
      ASSERT_EQ(y.get(i), digit) << i;
      const double number = (digit - offset) * scale.get(s);
      ASSERT_NEAR(back.get(i), number, rounding(t.scale_type) * std::fabs(number) + 1e-6) << i;
    }
  });
}

TEST(Quantize, QuantizeLinear) {
  for (const DType type : {DType::kU8, DType::kI8, DType::kU16, DType::kI16})
    for (const Case& t : {Case{.dims = {3, 5, 7}, .single = true, .zeros = true},
                          Case{.dims = {3, 5, 7}, .axis = 1, .zeros = true, .scale_type = DType::kF16},
                          Case{.dims = {2, 600}, .axis = 1, .block = 32, .zeros = true}, Case{.dims = {300}, .axis = 0},
                          Case{.dims = {}, .single = true}, Case{.dims = {0, 4}, .axis = 1}}) {
      check_rounding(t, type);
      if (HasFatalFailure()) return;
    }
}

TEST(Quantize, WhatIsNoNumberBecomesTheLeast) {
  StridedTensor x(DType::kF32, {3}), scale(DType::kF32, {}), y(DType::kI8, {3});
  scale.set(0, 0.5);
  x.set(0, std::nan(""));
  x.set(1, INFINITY);
  x.set(2, -1e30);
  const QuantizeParams params{{0, 0}, -128, 127};
  const std::vector<View> in{x.view(), scale.view()};
  for_each_isa([&](const KernelTable& table, int threads) {
    run_kernel(table, &KernelTable::quantize_linear, in, y.view(), &params, threads);
    ASSERT_EQ(y.get(0), -128);
    ASSERT_EQ(y.get(1), 127);
    ASSERT_EQ(y.get(2), -128);
  });
}

TEST(Quantize, EightBitFloats) {
  struct Pair {
    DType type;
    uint8_t bits;
    double value;
  };
  const Pair pairs[] = {
      {DType::kF8E4M3FN, 0x38, 1},      {DType::kF8E4M3FN, 0x7e, 448},       {DType::kF8E4M3FN, 0x01, 0.001953125},
      {DType::kF8E4M3FN, 0xb8, -1},     {DType::kF8E5M2, 0x3c, 1},           {DType::kF8E5M2, 0x7b, 57344},
      {DType::kF8E5M2, 0x7c, INFINITY}, {DType::kF8E5M2, 0x01, 1.0 / 65536}, {DType::kF8E4M3FNUZ, 0x40, 1},
      {DType::kF8E5M2FNUZ, 0x40, 1},    {DType::kF8E4M3FNUZ, 0x7f, 240},     {DType::kF8E5M2FNUZ, 0xff, -57344}};
  for (const Pair& pair : pairs) {
    StridedTensor x(pair.type, {1}), scale(DType::kF32, {}), y(DType::kF32, {1});
    x.set(0, pair.bits);
    scale.set(0, 1);
    const DequantizeParams params{0, 0};
    const std::vector<View> in{x.view(), scale.view()};
    for_each_isa([&](const KernelTable& table, int threads) {
      run_kernel(table, &KernelTable::dequantize_linear, in, y.view(), &params, threads);
      ASSERT_EQ(y.get(0), pair.value) << static_cast<int>(pair.type) << " " << static_cast<int>(pair.bits);
    });
  }
}

struct GatherCase {
  std::vector<int64_t> dims;  // in elements
  std::vector<int64_t> index_dims;
  int gather_axis = 0, quantize_axis = 1, block = 16, bits = 4;
  DType type = DType::kU8;
  bool zeros = false;
};

void check_gather(const GatherCase& t) {
  const bool packed = t.type == DType::kU8;
  const size_t last = t.dims.size() - 1;
  auto pack = [&](std::vector<int64_t> dims) {
    if (packed) dims[last] = (dims[last] * t.bits + 7) / 8;
    return dims;
  };
  std::vector<int64_t> scale_dims = t.dims;
  scale_dims[static_cast<size_t>(t.quantize_axis)] =
      (scale_dims[static_cast<size_t>(t.quantize_axis)] + t.block - 1) / t.block;
  const PackedTensor data(t.type, pack(t.dims)), zeros(t.type, pack(scale_dims));
  StridedTensor scales(DType::kF32, scale_dims), indices = StridedTensor::random_layout(DType::kI64, t.index_dims);
  scales.fill(0.1, 1);
  const int64_t rows = t.dims[static_cast<size_t>(t.gather_axis)];
  indices.fill_integers(-rows - 1, rows);  // one beyond either end
  std::vector<int64_t> y_dims;
  for (size_t i = 0; i <= last; ++i) {
    if (static_cast<int>(i) == t.gather_axis)
      y_dims.insert(y_dims.end(), t.index_dims.begin(), t.index_dims.end());
    else
      y_dims.push_back(t.dims[i]);
  }
  StridedTensor y = StridedTensor::random_layout(DType::kF32, y_dims);
  const GatherBlockQuantizedParams params{t.bits,          t.block, t.gather_axis,
                                          t.quantize_axis, packed,  packed ? 1 << (t.bits - 1) : 0};
  const std::vector<View> in{data.view, indices.view(), scales.view(), t.zeros ? zeros.view : View{}};
  auto element = [&](const PackedTensor& v, const std::vector<int64_t>& dims, const std::vector<int64_t>& at) {
    int64_t row = 0;
    for (size_t d = 0; d < last; ++d) row = row * dims[d] + at[d];
    if (!packed) return v.get(row * dims[last] + at[last]);
    return static_cast<double>(PackedTensor::digit(v.bytes, row * v.view.dims[last] * 8 + at[last] * t.bits, t.bits));
  };
  const auto outside = [&](int64_t i) { return indices.get(i) < -rows || indices.get(i) >= rows; };
  bool some_outside = false;
  for (int64_t i = 0; i < indices.count(); ++i) some_outside |= outside(i);
  for_each_isa([&](const KernelTable& table, int threads) {
    y.reset();
    const RunResult result = run_kernel(table, &KernelTable::gather_block_quantized, in, y.view(), &params, threads);
    ASSERT_TRUE(y.untouched_outside());
    ASSERT_EQ(result.fault.what != nullptr, some_outside);
    if (some_outside) {
      ASSERT_STREQ(result.fault.what, "index out of range");
      ASSERT_EQ(result.fault.limit, rows);
      ASSERT_TRUE(result.fault.value == -rows - 1 || result.fault.value == rows) << result.fault.value;
    }
    for (int64_t i = 0; i < y.count(); ++i) {
      int64_t rest = i, index = 0, unit = 1;
      std::vector<int64_t> at(t.dims.size());
      for (size_t d = y_dims.size(); d-- > 0;) {
        const int64_t part = rest % y_dims[d];
        rest /= y_dims[d];
        const auto g = static_cast<size_t>(t.gather_axis);
        if (d < g)
          at[d] = part;
        else if (d >= g + t.index_dims.size())
          at[d - t.index_dims.size() + 1] = part;
        else {
          index += part * unit;
          unit *= y_dims[d];
        }
      }
      auto row = static_cast<int64_t>(indices.get(index));
      if (row < 0) row += rows;
      double expected = 0;
      if (row >= 0 && row < rows) {
        at[static_cast<size_t>(t.gather_axis)] = row;
        std::vector<int64_t> scale_at = at;
        scale_at[static_cast<size_t>(t.quantize_axis)] /= t.block;
        const double zero = t.zeros ? element(zeros, scale_dims, scale_at) : params.default_zero;
        expected = (element(data, t.dims, at) - zero) * scales.at(scale_at);
      }
      ASSERT_NEAR(y.get(i), expected, 1e-5) << i;
    }
  });
}

TEST(Quantize, GatherBlockQuantized) {
  for (bool zeros : {false, true}) {
    for (int bits : {2, 4, 8}) {
      check_gather({.dims = {9, 80}, .index_dims = {2, 3}, .block = 32, .bits = bits, .zeros = zeros});
      check_gather(
          {.dims = {5, 3, 272}, .index_dims = {4}, .gather_axis = 1, .quantize_axis = 2, .bits = bits, .zeros = zeros});
    }
    for (DType type : {DType::kU4, DType::kI4}) {
      check_gather({.dims = {9, 35}, .index_dims = {2, 3}, .type = type, .zeros = zeros});
      check_gather({.dims = {9, 35}, .index_dims = {}, .type = type, .zeros = zeros});
      check_gather(
          {.dims = {20, 6, 7}, .index_dims = {3}, .gather_axis = 2, .quantize_axis = 0, .type = type, .zeros = zeros});
      check_gather(
          {.dims = {4, 40, 5}, .index_dims = {3}, .gather_axis = 1, .quantize_axis = 1, .type = type, .zeros = zeros});
      check_gather({.dims = {9, 35}, .index_dims = {0}, .type = type, .zeros = zeros});
    }
  }
}

}  // namespace
}  // namespace situ
