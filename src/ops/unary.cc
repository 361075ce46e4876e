// y = f(x), x and y of the same shape: ONNX unary operators and activations, and the Gelu family of
// com.microsoft. Formulas stand in kernels/unary.cc.
#include <string_view>

#include "kernels/params.h"
#include "ops/infer.h"
#include "ops/ops.h"

namespace situ {
namespace {

// One row per operator; alpha and beta are attributes of that name with these defaults.
struct UnaryOp {
  std::string_view name;
  UnaryKind kind;
  uint64_t types = kRealTypes;
  float alpha = 0, beta = 0;
  const char* alpha_name = "alpha";
  const char* beta_name = "beta";
};

constexpr uint64_t kSignedOrReal = kRealTypes | kSignedTypes;
const UnaryOp kUnaryOps[] = {
    {"Abs", UnaryKind::kAbs, kNumberTypes},
    {"Neg", UnaryKind::kNeg, kSignedOrReal},
    {"Sign", UnaryKind::kSign, kNumberTypes},
    {"Relu", UnaryKind::kRelu, kSignedOrReal},
    {"Not", UnaryKind::kNot, kBoolType},
    {"BitwiseNot", UnaryKind::kBitwiseNot, kIntegerTypes},
    {"Exp", UnaryKind::kExp},
    {"Log", UnaryKind::kLog},
    {"Sqrt", UnaryKind::kSqrt},
    {"Reciprocal", UnaryKind::kReciprocal},
    {"Erf", UnaryKind::kErf},
    {"Tanh", UnaryKind::kTanh},
    {"Sigmoid", UnaryKind::kSigmoid},
    {"Sin", UnaryKind::kSin},
    {"Cos", UnaryKind::kCos},
    {"Tan", UnaryKind::kTan},
    {"Asin", UnaryKind::kAsin},
    {"Acos", UnaryKind::kAcos},
    {"Atan", UnaryKind::kAtan},
    {"Sinh", UnaryKind::kSinh},
    {"Cosh", UnaryKind::kCosh},
    {"Asinh", UnaryKind::kAsinh},
    {"Acosh", UnaryKind::kAcosh},
    {"Atanh", UnaryKind::kAtanh},
    {"Floor", UnaryKind::kFloor},
    {"Ceil", UnaryKind::kCeil},
    {"Round", UnaryKind::kRound},
    {"IsNaN", UnaryKind::kIsNaN},
    {"IsInf", UnaryKind::kIsInf, kRealTypes, 1, 1, "detect_positive", "detect_negative"},
    {"Softplus", UnaryKind::kSoftplus},
    {"Softsign", UnaryKind::kSoftsign},
    {"Elu", UnaryKind::kElu, kRealTypes, 1},
    {"Selu", UnaryKind::kSelu, kRealTypes, 1.67326319217681884765625f, 1.05070102214813232421875f, "alpha", "gamma"},
    {"Celu", UnaryKind::kCelu, kRealTypes, 1},
    {"LeakyRelu", UnaryKind::kLeakyRelu, kRealTypes, 0.01f},
    {"ThresholdedRelu", UnaryKind::kThresholdedRelu, kRealTypes, 1},
    {"HardSigmoid", UnaryKind::kHardSigmoid, kRealTypes, 0.2f, 0.5f},
    {"HardSwish", UnaryKind::kHardSwish},
    {"Mish", UnaryKind::kMish},
    {"Gelu", UnaryKind::kGeluErf},
    {"FastGelu", UnaryKind::kGeluTanh},
    {"QuickGelu", UnaryKind::kQuickGelu, kRealTypes, 1.702f},
    {"Swish", UnaryKind::kQuickGelu, kRealTypes, 1},
};

const UnaryOp* unary_op(const Node& node) {
  for (const UnaryOp& op : kUnaryOps)
    if (node.op == op.name) return &op;
  return nullptr;
}

float float_attribute(const Node& node, const char* name, float fallback) {
  const Attribute* a = node.attr(name);
  if (a != nullptr && a->kind == Attribute::Kind::kInt) return static_cast<float>(a->i);
  return node.attr_float(name, fallback);
}

}  // namespace

// x [any] -> y [same], same type.
Status infer_unary(InferContext& c) {
  SITU_RETURN_IF_ERROR(c.need(0, "X"));
  return emit(c, 0, c.input(0).type, c.input(0).shape);
}

// x [any] -> y [same], bool.
Status infer_question(InferContext& c) {
  SITU_RETURN_IF_ERROR(c.need(0, "X"));
  return emit(c, 0, DType::kBool, c.input(0).shape);
}

// com.microsoft.BiasGelu, FastGelu: x [.., D], bias [D] -> [.., D].
Status infer_bias_gelu(InferContext& c) {
  SITU_RETURN_IF_ERROR(c.need(0, "X"));
  if (c.has(1)) {
    SITU_RETURN_IF_ERROR(c.need(1, "bias"));
    SITU_RETURN_IF_ERROR(need_same_type(c, 0, 1));
    const Shape &x = c.input(0).shape, &bias = c.input(1).shape;
    Dim width;
    if (x.empty() || bias.size() != 1) return c.fail("bias " + shape_str(bias) + " does not fit X " + shape_str(x));
    SITU_RETURN_IF_ERROR(require_equal(c, "width of X and of bias", x.back(), bias[0], &width));
  }
  return emit(c, 0, c.input(0).type, c.input(0).shape);
}

Status prepare_unary(const PrepareContext& c, Prepared* out) {
  const UnaryOp* op = unary_op(c.node);
  if (op == nullptr) return c.fail("is not a unary operator");
  SITU_RETURN_IF_ERROR(need_type(c, 0, op->types));
  UnaryParams p{op->kind};
  p.alpha = float_attribute(c.node, op->alpha_name, op->alpha);
  p.beta = float_attribute(c.node, op->beta_name, op->beta);
  if (c.node.op == "Gelu") {
    const std::string approximate = c.node.attr_string("approximate", "none");
    if (approximate != "none" && approximate != "tanh") return c.fail("approximate '" + approximate + "' is not known");
    if (approximate == "tanh") p.kind = UnaryKind::kGeluTanh;
  }
  return use_kernel(out, &KernelTable::unary, p);
}

// FastGelu without its bias; the bias is an Add that a pass takes out.
Status prepare_fast_gelu(const PrepareContext& c, Prepared* out) {
  if (c.has(1)) return c.fail("with a bias should have been expanded into Add and FastGelu");
  return prepare_unary(c, out);
}

}  // namespace situ
