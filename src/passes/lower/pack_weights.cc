// MatMulNBits on constant weights becomes situ.PackedMatMul on the same weights in the order in which a thread reads
// them. Scales become half precision where that changes none of them, and at accuracy_level 4, which rounds activations
// by 2^-8, also where it rounds them by at most 2^-11 and the matrix is large: scales in float would be a tenth of what
// a token reads.
#include "kernels/packed_layout.h"
#include "ops/op.h"
#include "passes/context/pass_context.h"
#include "passes/lower/passes.h"
#include "passes/pack/pack_store.h"
#include "passes/pack/stored_matrix.h"

namespace situ {
namespace {

constexpr size_t kOrderOperand = 6;  // operand of situ.PackedMatMul
// Weights of a matrix from which on a tenth of its bytes is worth rounding its scales.
constexpr int64_t kLargeMatrix = 1 << 17;

const Tensor* constant(const Graph& graph, const Node& n, size_t i) {
  if (!n.has_input(i)) return nullptr;
  const Tensor& t = graph.values[static_cast<size_t>(n.in[i])].constant;
  return t.present() ? &t : nullptr;
}

// The matrix of a MatMulNBits that can be packed.
bool fits(const Graph& graph, const Node& n, StoredMatrix* w) {
  if (!n.is("MatMulNBits", "com.microsoft")) return false;
  *w = stored_matrix(graph, n);
  const bool known = w->digits.data.present() && w->scales.data.present() &&
                     n.has_input(3) == w->zeros.data.present() && (!n.has_input(4) || constant(graph, n, 4));
  return known && w->digits.data.type() == DType::kU8 && (w->form.bits == 4 || w->form.bits == 8) &&
         w->form.block >= 16 && w->form.block <= kLongestBlock && w->form.k <= kDeepestPacked;
}

// What k belong to groups in any order (g_idx), sorted by group and each group filled up to whole blocks: a matrix that
// MatMulNBits has without groups, on rows whose elements stand in `elements`.
struct SortedGroups {
  std::vector<int32_t> elements, of_blocks;  // elements [depth]: -1 for what a group is filled up with

  SortedGroups(const QuantisedMatrix& w, const std::vector<int64_t>& group_of_k) {
    std::vector<std::vector<int32_t>> members(static_cast<size_t>(w.blocks()));
    for (int64_t k = 0; k < w.k; ++k)
      members[static_cast<size_t>(group_of_k[static_cast<size_t>(k)])].push_back(static_cast<int32_t>(k));
    for (size_t g = 0; g < members.size(); ++g)
      for (size_t i = 0; i < members[g].size(); i += static_cast<size_t>(w.block)) {
        of_blocks.push_back(static_cast<int32_t>(g));
        for (size_t j = i; j < i + static_cast<size_t>(w.block); ++j)
          elements.push_back(j < members[g].size() ? members[g][j] : -1);
      }
  }
};

}  // namespace

Status pack_weights(PassContext& context) {
  if (!context.packs) return Status::ok();
  Graph& graph = context.graph;
  int count = 0;
  const int64_t before = context.packs->bytes();
  const auto users = graph.users();
  for (Node& n : graph.nodes) {
    StoredMatrix w;
    if (!fits(graph, n, &w)) continue;
    // Only level 4 rounds activations, as onnxruntime has it; the others are float, and so are groups in any order.
    const int level = n.attr_int("accuracy_level", 0) == 4 && !n.has_input(4) ? 4 : 0;
    const bool rounded = level == 4 && w.form.n * w.form.k >= kLargeMatrix;
    Tensor order;
    if (n.has_input(4)) {
      const SortedGroups groups(w.form, constant(graph, n, 4)->to_i64());
      w.form.k = static_cast<int64_t>(groups.elements.size());
      if (w.form.k > kDeepestPacked) continue;
      w.digits.order = &groups.elements;
      w.scales.order = w.zeros.order = &groups.of_blocks;
      w = laid_out(w, &context);
      order = Tensor::allocate(DType::kI32, {w.form.k});
      for (int64_t i = 0; i < w.form.k; ++i) order.view().as<int32_t>()[i] = groups.elements[static_cast<size_t>(i)];
    }
    Result<Packed> packed = context.packs->pack(w, rounded);
    if (!packed.is_ok()) return packed.status().with_context(n.label());
    // What passes laid out on the heap goes at once: all matrices together would be a second copy of the model.
    for (size_t i = 1; i < 4; ++i) {
      if (!n.has_input(i) || users[static_cast<size_t>(n.in[i])].size() != 1) continue;
      context.packs->let_go(&graph.values[static_cast<size_t>(n.in[i])].constant);
    }
    const ValueId data = graph.add_constant(n.name + "/packed", packed->data),
                  bias = n.has_input(5) ? n.in[5] : kNoValue;
    n.in = {n.in[0], data};
    if (bias != kNoValue) n.in.push_back(bias);
    if (order.present()) {
      n.in.resize(kOrderOperand + 1, kNoValue);
      n.in[kOrderOperand] = graph.add_constant(n.name + "/order", order);
    }
    n.domain = "situ";
    n.op = "PackedMatMul";
    n.opset = 1;
    n.def = find_op("situ", "PackedMatMul", 1);
    set_quantised_matrix(&n, w.form);
    n.set_int("half_scales", packed->half_scales);
    n.set_int("accuracy_level", level);
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
