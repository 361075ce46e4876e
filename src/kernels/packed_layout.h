// The arithmetic of packed weights (kernels/packed.h says what lies where). No standard library: kernels include it.
#pragma once

#include <cstdint>

#include "kernels/params.h"

namespace situ {

constexpr int64_t kPanelColumns = 16, kUnitPanels = 2;
// Blocks and rows are no longer: kernels have room for these.
constexpr int64_t kLongestBlock = 256, kDeepestPacked = 65536;

// bitsandbytes' tables (onnxruntime blockwise_quant_block_bnb4.h).
constexpr float kFp4Digits[16] = {0.00000000f,  5.208333333e-03f,  0.66666667f,  1.00000000f,
                                  0.33333333f,  0.50000000f,       0.16666667f,  0.25000000f,
                                  -0.00000000f, -5.208333333e-03f, -0.66666667f, -1.00000000f,
                                  -0.33333333f, -0.50000000f,      -0.16666667f, -0.25000000f};
constexpr float kNf4Digits[16] = {-1.0f,
                                  -0.6961928009986877f,
                                  -0.5250730514526367f,
                                  -0.39491748809814453f,
                                  -0.28444138169288635f,
                                  -0.18477343022823334f,
                                  -0.09105003625154495f,
                                  0.0f,
                                  0.07958029955625534f,
                                  0.16093020141124725f,
                                  0.24611230194568634f,
                                  0.33791524171829224f,
                                  0.44070982933044434f,
                                  0.5626170039176941f,
                                  0.7229568362236023f,
                                  1.0f};
constexpr const float* digits_of(DigitTable table) {
  return table == DigitTable::kNone ? nullptr : table == DigitTable::kFp4 ? kFp4Digits : kNf4Digits;
}

struct PackedLayout {
  int64_t n = 0, k = 0;
  int32_t bits = 4, block = 32;
  bool half_scales = false;
  ZeroPoints zeros = ZeroPoints::kMiddle;
  int64_t blocks = 0;  // ceil(k / block)
  const float* table = nullptr;

  constexpr PackedLayout() = default;
  constexpr PackedLayout(int64_t columns, int64_t depth, int32_t bits_, int32_t block_, bool half,
                         ZeroPoints zero_points)
      : n(columns),
        k(depth),
        bits(bits_),
        block(block_),
        half_scales(half),
        zeros(zero_points),
        blocks((depth + block_ - 1) / block_) {}

  constexpr int64_t panels() const { return (n + kPanelColumns - 1) / kPanelColumns; }
  constexpr int64_t units() const { return (panels() + kUnitPanels - 1) / kUnitPanels; }
  // Panels of unit u: two, or one at the end.
  constexpr int unit_panels(int64_t u) const {
    return static_cast<int>(panels() - u * kUnitPanels < kUnitPanels ? panels() - u * kUnitPanels : kUnitPanels);
  }
  constexpr int64_t lines() const {
    return static_cast<int64_t>(block) * bits / 32;
  }  // of 64 bytes, per block and panel
  constexpr int64_t panel_bytes() const { return lines() * 64; }
  constexpr int64_t weight_bytes(int width) const { return width * panel_bytes(); }
  constexpr int64_t scale_bytes(int width) const { return width * kPanelColumns * (half_scales ? 2 : 4); }
  constexpr int64_t zero_bytes(int width) const {
    return zeros == ZeroPoints::kMiddle || zeros == ZeroPoints::kTable ? 0
           : zeros == ZeroPoints::kIntegers                            ? width * kPanelColumns
                                                                       : scale_bytes(width);
  }
  constexpr int64_t record_bytes(int width) const {
    return weight_bytes(width) + scale_bytes(width) + zero_bytes(width);
  }
  constexpr int64_t unit_offset(int64_t u) const { return u * blocks * record_bytes(kUnitPanels); }
  constexpr int64_t bytes() const {
    const int64_t whole = panels() / kUnitPanels, rest = panels() % kUnitPanels;
    return blocks * (whole * record_bytes(kUnitPanels) + (rest != 0 ? record_bytes(1) : 0));
  }
};

constexpr PackedLayout packed_layout(const PackedMatMulParams& p) {
  PackedLayout w(p.n, p.k, p.bits, p.block, p.half_scales, p.zeros);
  w.table = digits_of(p.table);
  return w;
}

}  // namespace situ
