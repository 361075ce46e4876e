// What the compiler knows of a quantised matrix: every spelling of one is written as the same attributes of a node,
// from which shape functions, packs and parameters of kernels are made.
#pragma once

#include <compare>

#include "kernels/params.h"
#include "ops/op.h"

namespace situ {

// W [N, K] of digits: w[n][k] = (q[n][k] - zero[n][b]) * scale[n][b], or table[q[n][k]] * scale[n][b], b = k / block.
// As operands of MatMulNBits: digits uint8 [N, blocks, block * bits / 8], the first of a byte in its low bits; scales
// [N, blocks]; and zero points: digits, each column's from a new byte on, or floats [N, blocks].
struct QuantisedMatrix {
  int64_t k = 0, n = 0;
  int32_t bits = 0;   // of a digit: 2, 4 or 8; 0: w are floats
  int32_t block = 0;  // of k that share a scale, a power of two >= 16; 0: a column has one
  ZeroPoints zeros = ZeroPoints::kMiddle;
  DigitTable table = DigitTable::kNone;  // of kTable
  bool high_first = false;               // of two digits in a byte of W the first is the higher one

  int64_t blocks() const { return block > 0 ? (k + block - 1) / block : 1; }
  // Bytes of the digits of a column, and of its zero points.
  int64_t column_bytes() const { return ((block > 0 ? blocks() * block : k) * bits + 7) / 8; }
  int64_t column_zero_bytes() const { return (blocks() * bits + 7) / 8; }
  auto operator<=>(const QuantisedMatrix&) const = default;
};

// What the attributes say; of com.microsoft.MatMulNBits and situ.ExpertMatMul, whose zero points are an operand, of
// this type.
QuantisedMatrix quantised_matrix(const Node& node, DType zero_type = DType::kNone);
void set_quantised_matrix(Node* node, const QuantisedMatrix& w);

// Packed, and what the attributes say of the rest of a product on packed weights.
PackedMatMulParams packed_params(const QuantisedMatrix& w, bool half_scales);
PackedMatMulParams packed_params(const Node& node);
// Whether kernels have such products, but for N; a file may name situ's own operators.
Status check_packed(InferContext& c, const PackedMatMulParams& p);

}  // namespace situ
