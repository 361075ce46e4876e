// Mixtures of experts: situ.ExpertMatMul and its packed forms; com.microsoft.MoE and QMoE, which are made of them
// (passes/expand/expand_experts.cc).
#include "kernels/packed_layout.h"
#include "kernels/params.h"
#include "ops/infer.h"
#include "ops/ops.h"
#include "ops/quantised.h"

namespace situ {
namespace {

constexpr uint64_t kFloatTypes = type_bit(DType::kF32) | type_bit(DType::kF16) | type_bit(DType::kBF16);
// Two rows of floats fit a thread's scratch (kernels/expert_matmul.cc).
constexpr int64_t kMaxExpertDepth = 65536;

std::string operand_text(const InferContext& c, size_t i, const char* name) {
  return "input " + std::to_string(i) + " (" + name + ") " + shape_str(c.input(i).shape);
}

Status check_attributes(InferContext& c, int64_t experts, int64_t k, int64_t n) {
  if (experts >= 1 && experts <= kMaxExperts && k >= 1 && k <= kMaxExpertDepth && n >= 1 &&
      n <= (int64_t{1} << 31) / experts)
    return Status::ok();
  return c.fail("of " + std::to_string(experts) + " matrices [N " + std::to_string(n) + ", K " + std::to_string(k) +
                "], experts should be from 1 to " + std::to_string(kMaxExperts) + ", K to " +
                std::to_string(kMaxExpertDepth) + ", and N * experts to 2^31");
}

// x [.., K] or [.., choices, K], index [.., choices], bias? [experts, N] -> y [.., choices, N].
Status infer_rows(InferContext& c, int64_t experts, int64_t k, int64_t n) {
  SITU_RETURN_IF_ERROR(check_attributes(c, experts, k, n));
  SITU_RETURN_IF_ERROR(c.need(0, "x"));
  SITU_RETURN_IF_ERROR(c.need(1, "index"));
  const Shape &x = c.input(0).shape, &index = c.input(1).shape;
  const bool own = x.size() == index.size() + 1;
  if (index.empty() || (!own && x.size() != index.size()))
    return c.fail("x " + shape_str(x) + " should have as many dims as index " + shape_str(index) + ", or one more");
  Dim same;
  for (size_t i = 0; i + 1 < x.size(); ++i)
    SITU_RETURN_IF_ERROR(
        require_equal(c, "rows of x " + shape_str(x) + " and index " + shape_str(index), x[i], index[i], &same));
  SITU_RETURN_IF_ERROR(require_equal(c, "last dim of x " + shape_str(x) + " and K", x.back(), Dim(k), &same));
  if (c.has(2) && c.input(2).shape != Shape{Dim(experts), Dim(n)})
    return c.fail(operand_text(c, 2, "bias") + " should be [" + std::to_string(experts) + ", " + std::to_string(n) +
                  "]");
  Shape y = index;
  y.push_back(Dim(n));
  return emit(c, 0, c.input(0).type, std::move(y));
}

Status need_rows(const PrepareContext& c) {
  SITU_RETURN_IF_ERROR(need_type(c, 0, kFloatTypes));
  SITU_RETURN_IF_ERROR(need_type(c, 1, kIndexTypes));
  if (c.has(2)) SITU_RETURN_IF_ERROR(need_type(c, 2, kFloatTypes));
  return Status::ok();
}

ExpertMatMulParams expert_params(const Node& node) {
  const QuantisedMatrix w = quantised_matrix(node);
  return {node.attr_int("experts", 0), w.k, w.n, node.attr_int("transposed", 1) != 0, w.bits, w.block};
}

Status need_count(InferContext& c, size_t i, const char* name, uint64_t types, int64_t count) {
  SITU_RETURN_IF_ERROR(c.need(i, name));
  if ((type_bit(c.input(i).type) & types) == 0)
    return c.fail(operand_text(c, i, name) + " has type " + dtype_name(c.input(i).type) + ", which is not supported");
  if (shape_is_const(c.input(i).shape) && shape_count(c.input(i).shape) == Dim(count)) return Status::ok();
  return c.fail(operand_text(c, i, name) + " should hold " + std::to_string(count) + " elements");
}

// Matrix operands from `i` on hold so many experts.
Status check_weights(InferContext& c, const ExpertMatMulParams& p, size_t i, int64_t experts) {
  if (p.bits == 0) {
    SITU_RETURN_IF_ERROR(need_count(c, i, "weights", kFloatTypes, experts * p.n * p.k));
    Shape w{Dim(p.transposed ? p.n : p.k), Dim(p.transposed ? p.k : p.n)};
    if (c.input(i).shape.size() == 3) w.insert(w.begin(), Dim(experts));
    if (c.input(i).shape == w && (experts == 1 || w.size() == 3)) return Status::ok();
    return c.fail(operand_text(c, i, "weights") + " should be " + shape_str(w));
  }
  SITU_RETURN_IF_ERROR(need_count(c, i, "weights", kByteType, experts * p.n * p.column_bytes()));
  SITU_RETURN_IF_ERROR(need_count(c, i + 1, "scales", kFloatTypes, experts * p.n * p.blocks()));
  if (!c.has(i + 2)) return Status::ok();
  const bool digits = c.input(i + 2).type == DType::kU8;
  return need_count(c, i + 2, "zero_points", kFloatTypes | kByteType,
                    experts * (digits ? p.zero_bytes() : p.n * p.blocks()));
}

}  // namespace

// situ.ExpertMatMul (kernels/params.h): x, index, bias?, then floats [experts, N, K] (`transposed` 0: [experts, K, N]),
// or digits, scales and zero points; in one stack, or of each expert.
Status infer_expert_matmul(InferContext& c) {
  const ExpertMatMulParams p = expert_params(c.node);
  SITU_RETURN_IF_ERROR(infer_rows(c, p.experts, p.k, p.n));
  if (p.bits != 0 && p.bits != 2 && p.bits != 4 && p.bits != 8)
    return c.fail("bits is " + std::to_string(p.bits) + ", should be 2, 4 or 8");
  if (p.block < 0 || (p.block > 0 && (p.block < 16 || (p.block & (p.block - 1)) != 0)))
    return c.fail("block_size is " + std::to_string(p.block) + ", should be a power of two from 16 on");
  constexpr size_t kFirst = 3;
  const size_t each = static_cast<size_t>(p.operands()), count = c.in.size() - std::min(c.in.size(), kFirst);
  if (count <= each) return check_weights(c, p, kFirst, p.experts);
  if (count != each * static_cast<size_t>(p.experts))
    return c.fail("has " + std::to_string(count) + " operands of weights for " + std::to_string(p.experts) +
                  " experts");
  for (size_t i = 0; i < count; i += each) SITU_RETURN_IF_ERROR(check_weights(c, p, kFirst + i, 1));
  return Status::ok();
}

Status prepare_expert_matmul(const PrepareContext& c, Prepared* out) {
  SITU_RETURN_IF_ERROR(need_rows(c));
  if (quantised_matrix(c.node).table != DigitTable::kNone)  // pack_experts has taken the others
    return c.fail("N is " + std::to_string(c.node.attr_int("N", 0)) +
                  ": digits of a table (NF4, FP4) are supported for multiples of " +
                  std::to_string(kPanelColumns * kUnitPanels));
  return use_kernel(out, &KernelTable::expert_matmul, expert_params(c.node));
}

// situ.PackedExperts (kernels/params.h): w uint8 [bytes of the layout of all experts].
Status infer_packed_experts(InferContext& c) {
  const int64_t experts = c.node.attr_int("experts", 0);
  PackedMatMulParams p = packed_params(c.node);
  SITU_RETURN_IF_ERROR(infer_rows(c, experts, p.k, p.n));
  SITU_RETURN_IF_ERROR(check_packed(c, p));
  if (p.n % (kPanelColumns * kUnitPanels) != 0)
    return c.fail("N is " + std::to_string(p.n) + ", should be a multiple of " +
                  std::to_string(kPanelColumns * kUnitPanels));
  p.n *= experts;
  return need_count(c, 3, "w", kByteType, packed_layout(p).bytes());
}

Status prepare_packed_experts(const PrepareContext& c, Prepared* out) {
  SITU_RETURN_IF_ERROR(need_rows(c));
  return use_kernel(out, &KernelTable::packed_experts,
                    PackedExpertsParams{c.node.attr_int("experts", 0), packed_params(c.node)});
}

// situ.DenseExperts (kernels/params.h): w 1-D floats of the panels of all experts.
Status infer_dense_experts(InferContext& c) {
  const int64_t experts = c.node.attr_int("experts", 0), n = c.node.attr_int("N", 0);
  const DenseMatMulParams p{c.node.attr_int("K", 0), n * experts};
  SITU_RETURN_IF_ERROR(infer_rows(c, experts, p.k, n));
  if (n % kDensePanelColumns != 0)
    return c.fail("N is " + std::to_string(n) + ", should be a multiple of " + std::to_string(kDensePanelColumns));
  return need_count(c, 3, "w", kFloatTypes, p.packed_count());
}

Status prepare_dense_experts(const PrepareContext& c, Prepared* out) {
  SITU_RETURN_IF_ERROR(need_rows(c));
  return use_kernel(out, &KernelTable::dense_experts,
                    DenseExpertsParams{c.node.attr_int("experts", 0),
                                       DenseMatMulParams{c.node.attr_int("K", 0), c.node.attr_int("N", 0)}});
}

namespace {

// What MoE and QMoE have in common; their weights are checked where they are written out.
Status infer_mixture(InferContext& c) {
  SITU_RETURN_IF_ERROR(c.need(0, "input"));
  SITU_RETURN_IF_ERROR(c.need(1, "router_probs"));
  const Shape &x = c.input(0).shape, &router = c.input(1).shape;
  if ((x.size() != 2 && x.size() != 3) || router.size() != 2 || !x.back().is_const() || !router.back().is_const())
    return c.fail("input " + shape_str(x) + " and router_probs " + shape_str(router) +
                  " should be [tokens, hidden] or [batch, tokens, hidden], and [tokens, experts]");
  return emit(c, 0, c.input(0).type, x);
}

}  // namespace

// com.microsoft.MoE: input, router_probs [tokens, E], fc1 [E, F * I, H], fc1_bias?, fc2 [E, H, I], fc2_bias?, fc3?,
// fc3_bias?.
Status infer_moe(InferContext& c) {
  SITU_RETURN_IF_ERROR(at_most_inputs(c, 8));
  return infer_mixture(c);
}
// com.microsoft.QMoE: input, router_probs, then weights, scales and bias of fc1, fc2 and fc3, zero points of the three,
// router_weights; what comes behind belongs to floats of 4 and 8 bits.
Status infer_qmoe(InferContext& c) {
  SITU_RETURN_IF_ERROR(at_most_inputs(c, 15));
  return infer_mixture(c);
}

}  // namespace situ
