// The arithmetic of packed weights (kernels/packed.h says what lies where). No standard library: kernels include it.
#pragma once

#include <cstdint>

#include "kernels/params.h"

namespace situ {

constexpr int64_t kPanelColumns = 16, kUnitPanels = 2;

struct PackedLayout {
  int64_t n = 0, k = 0;
  int32_t bits = 4, block = 32;
  bool half_scales = false;
  ZeroPoints zeros = ZeroPoints::kMiddle;
  int64_t blocks = 0;  // ceil(k / block)

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
    return zeros == ZeroPoints::kMiddle     ? 0
           : zeros == ZeroPoints::kIntegers ? width * kPanelColumns
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
  return PackedLayout(p.n, p.k, p.bits, p.block, p.half_scales, p.zeros);
}

}  // namespace situ
