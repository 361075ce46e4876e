// y = f(a, b) with NumPy broadcasting: arithmetic, comparison, logic, bits; Min, Max, Sum and Mean take one
// operand or more. Formulas stand in kernels/binary.cc.
#include <string_view>

#include "kernels/params.h"
#include "ops/infer.h"
#include "ops/ops.h"

namespace situ {
namespace {

struct BinaryOp {
  std::string_view name;
  BinaryKind kind;
  uint64_t types;
};

const BinaryOp kBinaryOps[] = {
    {"Add", BinaryKind::kAdd, kNumberTypes},
    {"Sub", BinaryKind::kSub, kNumberTypes},
    {"Mul", BinaryKind::kMul, kNumberTypes},
    {"Div", BinaryKind::kDiv, kNumberTypes},
    {"Pow", BinaryKind::kPow, kNumberTypes},
    {"Mod", BinaryKind::kMod, kNumberTypes},
    {"PRelu", BinaryKind::kPRelu, kNumberTypes},
    {"Min", BinaryKind::kMin, kNumberTypes},
    {"Max", BinaryKind::kMax, kNumberTypes},
    {"Sum", BinaryKind::kAdd, kNumberTypes},
    {"Mean", BinaryKind::kMean, kNumberTypes},
    {"And", BinaryKind::kAnd, kBoolType},
    {"Or", BinaryKind::kOr, kBoolType},
    {"Xor", BinaryKind::kXor, kBoolType},
    {"Equal", BinaryKind::kEqual, kNumberTypes | kBoolType},
    {"Less", BinaryKind::kLess, kNumberTypes},
    {"LessOrEqual", BinaryKind::kLessOrEqual, kNumberTypes},
    {"Greater", BinaryKind::kGreater, kNumberTypes},
    {"GreaterOrEqual", BinaryKind::kGreaterOrEqual, kNumberTypes},
    {"BitwiseAnd", BinaryKind::kBitwiseAnd, kIntegerTypes},
    {"BitwiseOr", BinaryKind::kBitwiseOr, kIntegerTypes},
    {"BitwiseXor", BinaryKind::kBitwiseXor, kIntegerTypes},
    {"BitShift", BinaryKind::kShiftLeft, kIntegerTypes},
};

// Operands that one call takes (kMaxOperands of kernels/isa.h less the output).
constexpr size_t kMaxVariadic = 16;

// The kernel takes any number of operands; these operators take two.
Status need_two(const InferContext& c) {
  SITU_RETURN_IF_ERROR(c.need(0, "A"));
  SITU_RETURN_IF_ERROR(c.need(1, "B"));
  return c.in.size() == 2 ? Status::ok() : c.fail("has " + std::to_string(c.in.size()) + " inputs, not 2");
}

Status infer_broadcast(InferContext& c, DType type, size_t first, size_t count) {
  Shape shape = c.input(first).shape;
  for (size_t i = first + 1; i < first + count; ++i) {
    SITU_RETURN_IF_ERROR(broadcast(c, shape, c.input(i).shape, &shape));
  }
  return emit(c, 0, type, std::move(shape));
}

}  // namespace

// a, b -> broadcast shape, a's type. Pow's exponent may be of another type.
Status infer_binary(InferContext& c) {
  SITU_RETURN_IF_ERROR(need_two(c));
  if (c.node.op != "Pow") SITU_RETURN_IF_ERROR(need_same_type(c, 0, 1));
  return infer_broadcast(c, c.input(0).type, 0, 2);
}

// a, b -> broadcast shape, bool.
Status infer_compare(InferContext& c) {
  SITU_RETURN_IF_ERROR(need_two(c));
  SITU_RETURN_IF_ERROR(need_same_type(c, 0, 1));
  return infer_broadcast(c, DType::kBool, 0, 2);
}

// x0, x1 .. -> broadcast shape of all.
Status infer_variadic(InferContext& c) {
  if (c.in.empty()) return c.fail("needs at least one input");
  for (size_t i = 0; i < c.in.size(); ++i) {
    SITU_RETURN_IF_ERROR(c.need(i, "data"));
    SITU_RETURN_IF_ERROR(need_same_type(c, 0, i));
  }
  return infer_broadcast(c, c.input(0).type, 0, c.in.size());
}

Status prepare_binary(const PrepareContext& c, Prepared* out) {
  const BinaryOp* found = nullptr;
  for (const BinaryOp& op : kBinaryOps)
    if (c.node.op == op.name) found = &op;
  if (found == nullptr) return c.fail("is not a binary operator");
  if (c.in.size() > kMaxVariadic)
    return c.fail(std::to_string(c.in.size()) + " inputs, at most " + std::to_string(kMaxVariadic) + " are supported");
  for (size_t i = 0; i < c.in.size(); ++i) SITU_RETURN_IF_ERROR(need_type(c, i, found->types));
  BinaryParams p{found->kind};
  if (c.node.op == "Mod" && c.node.attr_int("fmod", 0) != 0) p.kind = BinaryKind::kFmod;
  if (c.node.op == "BitShift") {
    const std::string direction = c.node.attr_string("direction", "");
    if (direction != "LEFT" && direction != "RIGHT")
      return c.fail("direction '" + direction + "' is not LEFT or RIGHT");
    p.kind = direction == "LEFT" ? BinaryKind::kShiftLeft : BinaryKind::kShiftRight;
  }
  return use_kernel(out, &KernelTable::binary, p);
}

// Where: condition (bool), x, y -> broadcast shape of the three.
Status infer_where(InferContext& c) {
  SITU_RETURN_IF_ERROR(c.need(0, "condition"));
  SITU_RETURN_IF_ERROR(c.need(1, "X"));
  SITU_RETURN_IF_ERROR(c.need(2, "Y"));
  if (c.input(0).type != DType::kBool)
    return c.fail(std::string("condition is ") + dtype_name(c.input(0).type) + ", not bool");
  SITU_RETURN_IF_ERROR(need_same_type(c, 1, 2));
  return infer_broadcast(c, c.input(1).type, 0, 3);
}

Status prepare_where(const PrepareContext& c, Prepared* out) {
  SITU_RETURN_IF_ERROR(need_whole_bytes(c, 1));
  out->kernel = &KernelTable::where;
  return Status::ok();
}

}  // namespace situ
