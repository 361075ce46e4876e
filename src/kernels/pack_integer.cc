// Weights w [K, N] of int8 or uint8 in the order in which integer_matmul reads them (kernels/integer_layout.h).
#include "kernels/integer_layout.h"
#include "kernels/isa.h"

namespace situ {
namespace SITU_ISA {

// Operands: w; y: the packed bytes. A call lays out units [first_unit, last_unit).
void pack_integer(const KernelCall& call, int thread, int threads) {
  const auto& params = *static_cast<const PackIntegerParams*>(call.params);
  const IntegerLayout& layout = params.layout;
  const View &w = call.in[0], &y = call.out[0];
  const uint8_t flip = w.type == DType::kI8 ? 0x80 : 0;
  const int64_t k_step = w.strides[0], n_step = w.strides[1];
  int64_t first, last;
  split_range(params.last_unit - params.first_unit, thread, threads, &first, &last);
  for (int64_t u = params.first_unit + first; u < params.first_unit + last; ++u) {
    uint8_t* to = y.as<uint8_t>() + u * layout.unit_bytes();
    const int64_t n0 = u * kIntegerColumns, count = layout.n - n0 < kIntegerColumns ? layout.n - n0 : kIntegerColumns;
    uint32_t sums[kIntegerColumns] = {};
    for (int64_t k = 0; k < layout.depth(); k += 4, to += kIntegerLine) {
      for (int64_t i = 0; i < 4; ++i) {
        const uint8_t* row = w.as<const uint8_t>() + (k + i) * k_step + n0 * n_step;
        for (int64_t j = 0; j < kIntegerColumns; ++j) {
          const bool there = k + i < layout.k && j < count;
          const uint8_t byte = there ? static_cast<uint8_t>(row[j * n_step] ^ flip) : uint8_t{0};
          to[j * 4 + i] = byte;
          sums[j] += byte;
        }
      }
    }
    for (int64_t j = 0; j < kIntegerColumns; ++j) reinterpret_cast<int32_t*>(to)[j] = static_cast<int32_t>(sums[j]);
  }
}

}  // namespace SITU_ISA
}  // namespace situ
