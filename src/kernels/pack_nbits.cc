// pack_nbits: weights of MatMulNBits in the order of kernels/packed.h.
#include "kernels/packed_layout.h"
#include "kernels/rows.h"

namespace situ {
namespace SITU_ISA {
namespace {

// Eight 4-bit digits in order of k as a line stores them: k + i in the low, k + 4 + i in the high half of byte i.
SITU_INLINE uint32_t interleave_digits(uint32_t word) {
  auto spread = [](uint32_t x) {
    x = (x | x << 8) & 0x00ff00ffu;
    return (x | x << 4) & 0x0f0f0f0fu;
  };
  return spread(word & 0xffffu) | spread(word >> 16) << 4;
}

// Each byte's halves the other way round.
SITU_INLINE uint32_t swap_digits(uint32_t word) { return (word & 0x0f0f0f0fu) << 4 | (word >> 4 & 0x0f0f0f0fu); }

struct PackSource {
  const uint8_t* q;
  const View& scales;
  const View* zeros;  // null: none
  bool high_first;
  int64_t row_bytes, zero_bytes;

  uint8_t integer_zero(const PackedLayout& w, int64_t n, int64_t b) const {
    return static_cast<uint8_t>(zeros->as<const uint8_t>()[n * zero_bytes + b * w.bits / 8] >> (b * w.bits % 8)) &
           static_cast<uint8_t>((1 << w.bits) - 1);
  }
};

void write_scale(const PackedLayout& w, uint8_t* to, int64_t column, float value) {
  if (w.half_scales)
    from_float(reinterpret_cast<Half*>(to) + column, value);
  else
    reinterpret_cast<float*>(to)[column] = value;
}

void pack_record(const PackedLayout& w, const PackSource& s, int64_t column, int64_t b, int panels, uint8_t* record) {
  typedef uint32_t UnalignedWord __attribute__((aligned(1), may_alias));
  uint32_t* words = reinterpret_cast<uint32_t*>(record);
  const int64_t lines = w.lines(), block_bytes = lines * 4;
  uint8_t* scales = record + w.weight_bytes(panels);
  uint8_t* zeros = scales + w.scale_bytes(panels);
  for (int64_t c = 0; c < panels * kPanelColumns; ++c) {
    const int64_t n = column + c;
    uint32_t* to = words + c / kPanelColumns * lines * 16 + c % kPanelColumns;
    const bool real = n < w.n;
    const UnalignedWord* from =
        real ? reinterpret_cast<const UnalignedWord*>(s.q + n * s.row_bytes + b * block_bytes) : nullptr;
    for (int64_t line = 0; line < lines; ++line)
      to[line * 16] = !real         ? 0
                      : w.bits != 4 ? from[line]
                                    : interleave_digits(s.high_first ? swap_digits(from[line]) : from[line]);
    const float scale = real ? read_float(s.scales.data, s.scales.type, n * w.blocks + b) : 0.0f;
    write_scale(w, scales, c, scale);
    if (w.zeros == ZeroPoints::kIntegers) zeros[c] = real ? s.integer_zero(w, n, b) : 0;
    if (w.zeros == ZeroPoints::kFloats)
      write_scale(w, zeros, c, real ? scale * read_float(s.zeros->data, s.zeros->type, n * w.blocks + b) : 0.0f);
  }
}

}  // namespace

// Operands as MatMulNBits has them from B on: B, scales, zero_points?; y: the packed bytes.
void pack_nbits(const KernelCall& call, int thread, int threads) {
  const auto& params = *static_cast<const PackNBitsParams*>(call.params);
  const PackedLayout w = packed_layout(params.product);
  const PackSource source{call.in[0].as<const uint8_t>(),
                          call.in[1],
                          has_zeros(w.zeros) ? &call.in[2] : nullptr,
                          params.product.high_first,
                          w.blocks * w.block * w.bits / 8,
                          (w.blocks * w.bits + 7) / 8};
  int64_t u0, u1;
  split_range(params.last_unit - params.first_unit, thread, threads, &u0, &u1);
  for (int64_t u = params.first_unit + u0; u < params.first_unit + u1; ++u) {
    const int panels = w.unit_panels(u);
    uint8_t* unit = call.out[0].as<uint8_t>() + w.unit_offset(u);
    for (int64_t b = 0; b < w.blocks; ++b)
      pack_record(w, source, u * kUnitPanels * kPanelColumns, b, panels, unit + b * w.record_bytes(panels));
  }
}

}  // namespace SITU_ISA
}  // namespace situ
