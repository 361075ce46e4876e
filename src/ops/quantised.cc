#include "ops/quantised.h"

#include "kernels/packed_layout.h"

namespace situ {

QuantisedMatrix quantised_matrix(const Node& node, DType zero_type) {
  QuantisedMatrix w;
  w.k = node.attr_int("K", 0);
  w.n = node.attr_int("N", 0);
  w.bits = static_cast<int32_t>(node.attr_int("bits", node.domain == "com.microsoft" ? 4 : 0));
  w.block = static_cast<int32_t>(node.attr_int("block_size", 0));
  w.table = static_cast<DigitTable>(node.attr_int("table", 0));
  w.high_first = node.attr_int("high_first", 0) != 0;
  w.zeros = w.table != DigitTable::kNone ? ZeroPoints::kTable
            : zero_type == DType::kU8    ? ZeroPoints::kIntegers
            : zero_type != DType::kNone  ? ZeroPoints::kFloats
                                         : static_cast<ZeroPoints>(node.attr_int("zeros", 0));
  return w;
}

void set_quantised_matrix(Node* node, const QuantisedMatrix& w) {
  node->set_int("K", w.k);
  node->set_int("N", w.n);
  node->set_int("bits", w.bits);
  node->set_int("block_size", w.block);
  node->set_int("zeros", static_cast<int64_t>(w.zeros));
  node->set_int("table", static_cast<int64_t>(w.table));
  node->set_int("high_first", w.high_first);
}

PackedMatMulParams packed_params(const QuantisedMatrix& w, bool half_scales) {
  PackedMatMulParams p{w.k, w.n, w.bits, w.block, 0, half_scales, w.zeros};
  p.table = w.table;
  p.high_first = w.high_first;
  return p;
}

PackedMatMulParams packed_params(const Node& node) {
  PackedMatMulParams p = packed_params(quantised_matrix(node), node.attr_int("half_scales", 0) != 0);
  p.accuracy_level = static_cast<int32_t>(node.attr_int("accuracy_level", 0));
  p.epsilon = node.attr_float("epsilon", 0);
  p.activation = node.attr_string("activation", "silu") == "silu" ? UnaryKind::kSilu : UnaryKind::kGeluTanh;
  return p;
}

Status check_packed(InferContext& c, const PackedMatMulParams& p) {
  const auto refuse = [&](const char* what, int64_t value, const std::string& wanted) {
    return c.fail(std::string(what) + " is " + std::to_string(value) + ", should be " + wanted);
  };
  if (p.k < 1 || p.k > kDeepestPacked) return refuse("K", p.k, "from 1 to " + std::to_string(kDeepestPacked));
  if (p.bits != 4 && p.bits != 8) return refuse("bits", p.bits, "4 or 8");
  if (p.block < 16 || p.block > kLongestBlock || (p.block & (p.block - 1)) != 0)
    return refuse("block_size", p.block, "a power of two from 16 to " + std::to_string(kLongestBlock));
  const bool table = p.zeros == ZeroPoints::kTable;
  if (p.zeros > ZeroPoints::kTable || p.table > DigitTable::kNf4 || table != (p.table != DigitTable::kNone) ||
      (table && p.bits != 4))
    return refuse("table", static_cast<int64_t>(p.table), "that of zeros " + std::to_string(static_cast<int>(p.zeros)));
  return Status::ok();
}

}  // namespace situ
