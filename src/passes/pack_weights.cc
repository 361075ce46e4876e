// MatMulNBits on constant weights becomes situ.PackedMatMul on the same weights in the order in which a thread reads
// them. Scales become half precision where that changes none of them, and at accuracy_level 4, which rounds activations
// by 2^-8, also where it rounds them by at most 2^-11 and the matrix is large: scales in float would be a tenth of what
// a token reads.
#include "kernels/packed_layout.h"
#include "passes/pack_store.h"
#include "passes/pass.h"

#include "ops/op.h"

namespace situ {
namespace {

// A float row of activations must fit a thread's scratch (kernels/packed_matmul.cc).
constexpr int64_t kMaxDepth = 65536;
// Weights of a matrix from which on a tenth of its bytes is worth rounding its scales.
constexpr int64_t kLargeMatrix = 1 << 17;

const Tensor* constant(const Graph& graph, const Node& n, size_t i) {
  if (!n.has_input(i)) return nullptr;
  const Tensor& t = graph.values[static_cast<size_t>(n.in[i])].constant;
  return t.present() ? &t : nullptr;
}

bool fits(const Graph& graph, const Node& n, PackedMatMulParams* p) {
  if (!n.is("MatMulNBits", "com.microsoft")) return false;
  const Tensor *weights = constant(graph, n, 1), *scales = constant(graph, n, 2), *zeros = constant(graph, n, 3);
  p->k = n.attr_int("K", 0);
  p->n = n.attr_int("N", 0);
  p->bits = static_cast<int32_t>(n.attr_int("bits", 4));
  p->block = static_cast<int32_t>(n.attr_int("block_size", 0));
  // Only level 4 rounds activations, as onnxruntime has it; the others are float.
  p->accuracy_level = n.attr_int("accuracy_level", 0) == 4 ? 4 : 0;
  p->zeros = !n.has_input(3)                        ? ZeroPoints::kMiddle
             : zeros && zeros->type() == DType::kU8 ? ZeroPoints::kIntegers
                                                    : ZeroPoints::kFloats;
  const bool known = weights && scales && (!n.has_input(3) || zeros) && !n.has_input(4);
  return known && weights->type() == DType::kU8 && (p->bits == 4 || p->bits == 8) && p->block >= 16 &&
         p->block <= 256 && p->k <= kMaxDepth;
}

}  // namespace

Status pack_weights(PassContext& context) {
  if (!context.packs) return Status::ok();
  Graph& graph = context.graph;
  int count = 0;
  const int64_t before = context.packs->bytes();
  const auto users = graph.users();
  for (Node& n : graph.nodes) {
    PackedMatMulParams p{};
    if (!fits(graph, n, &p)) continue;
    const bool rounded = p.accuracy_level == 4 && p.n * p.k >= kLargeMatrix;
    const Tensor none;
    Result<Packed> packed = context.packs->pack(
        {*constant(graph, n, 1), *constant(graph, n, 2), n.has_input(3) ? *constant(graph, n, 3) : none, p, rounded});
    if (!packed.is_ok()) return packed.status().with_context(n.label());
    // What passes laid out on the heap goes at once: all matrices together would be a second copy of the model.
    for (size_t i = 1; i < 4; ++i) {
      if (!n.has_input(i) || users[static_cast<size_t>(n.in[i])].size() != 1) continue;
      context.packs->let_go(&graph.values[static_cast<size_t>(n.in[i])].constant);
    }
    const ValueId w = graph.add_constant(n.name + "/packed", packed->data), bias = n.has_input(5) ? n.in[5] : kNoValue;
    n.in = {n.in[0], w};
    if (bias != kNoValue) n.in.push_back(bias);
    n.domain = "situ";
    n.op = "PackedMatMul";
    n.opset = 1;
    n.def = find_op("situ", "PackedMatMul", 1);
    n.set_int("half_scales", packed->half_scales);
    n.set_int("zeros", static_cast<int64_t>(p.zeros));
    n.set_int("accuracy_level", p.accuracy_level);
    ++count;
  }
  if (count == 0) return Status::ok();
  context.note("packed weights", "",
               std::to_string(count) + " matrices, " + std::to_string(context.packs->bytes() - before) + " bytes");
  graph.remove_dead_nodes();
  graph.drop_unread_constants();
  return Status::ok();
}

}  // namespace situ
