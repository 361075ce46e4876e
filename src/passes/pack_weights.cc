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
constexpr size_t kOrderOperand = 6;  // operand of situ.PackedMatMul
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
  p->table = static_cast<DigitTable>(n.attr_int("table", 0));
  p->high_first = n.attr_int("high_first", 0) != 0;
  p->zeros = p->table != DigitTable::kNone          ? ZeroPoints::kTable
             : !n.has_input(3)                      ? ZeroPoints::kMiddle
             : zeros && zeros->type() == DType::kU8 ? ZeroPoints::kIntegers
                                                    : ZeroPoints::kFloats;
  // Groups in any order: onnxruntime computes in float.
  if (n.has_input(4)) p->accuracy_level = 0;
  const bool known = weights && scales && (!n.has_input(3) || zeros) && (!n.has_input(4) || constant(graph, n, 4));
  return known && weights->type() == DType::kU8 && (p->bits == 4 || p->bits == 8) && p->block >= 16 &&
         p->block <= 256 && p->k <= kMaxDepth;
}

// A matrix whose k belong to groups in any order (g_idx), its k sorted by group and each group filled up to whole
// blocks: what MatMulNBits has without groups, on rows whose elements stand in `order`.
struct Sorted {
  Tensor weights, scales, zeros, order;  // order int32 [depth]: -1 for what a group is filled up with
  int64_t depth = 0;
};

class Sorter {
 public:
  Sorter(const PackedMatMulParams& p, const std::vector<int64_t>& groups) : p_(p), old_blocks_(blocks_of(p.k)) {
    std::vector<std::vector<int32_t>> of_group(static_cast<size_t>(old_blocks_));
    for (int64_t k = 0; k < p.k; ++k)
      of_group[static_cast<size_t>(groups[static_cast<size_t>(k)])].push_back(static_cast<int32_t>(k));
    for (size_t g = 0; g < of_group.size(); ++g)
      for (size_t i = 0; i < of_group[g].size(); i += static_cast<size_t>(p.block)) {
        group_of_.push_back(static_cast<int64_t>(g));
        for (size_t j = i; j < i + static_cast<size_t>(p.block); ++j)
          order_.push_back(j < of_group[g].size() ? of_group[g][j] : -1);
      }
  }

  int64_t depth() const { return static_cast<int64_t>(order_.size()); }
  Sorted sorted(const Tensor& weights, const Tensor& scales, const Tensor* zeros) const {
    Sorted s{digits(weights, order_, old_blocks_ * p_.block), floats(scales), {}, {}, depth()};
    if (zeros != nullptr)
      s.zeros = zeros->type() == DType::kU8 ? digits(*zeros, group_of_, (old_blocks_ * p_.bits + 7) / 8 * 8 / p_.bits)
                                            : floats(*zeros);
    s.order = Tensor::allocate(DType::kI32, {depth()});
    for (size_t i = 0; i < order_.size(); ++i) s.order.view().as<int32_t>()[i] = order_[i];
    return s;
  }

 private:
  int64_t blocks_of(int64_t k) const { return (k + p_.block - 1) / p_.block; }

  // Rows of the digits at `places`, of rows of `width` digits; 0 at -1.
  template <typename Place>
  Tensor digits(const Tensor& from, const std::vector<Place>& places, int64_t width) const {
    const int64_t row = width * p_.bits / 8, new_row = (static_cast<int64_t>(places.size()) * p_.bits + 7) / 8;
    Tensor to = Tensor::allocate(DType::kU8, {p_.n, new_row});
    const auto* in = from.view().as<const uint8_t>();
    auto* out = to.view().as<uint8_t>();
    for (int64_t n = 0; n < p_.n; ++n)
      for (size_t i = 0; i < places.size(); ++i) {
        if (places[i] < 0) continue;
        const int64_t at = places[i] * p_.bits, put = static_cast<int64_t>(i) * p_.bits;
        const int digit = in[n * row + at / 8] >> (at % 8) & ((1 << p_.bits) - 1);
        uint8_t& byte = out[n * new_row + put / 8];
        byte = static_cast<uint8_t>(byte | digit << (put % 8));
      }
    return to;
  }
  Tensor floats(const Tensor& from) const {
    const int64_t size = dtype_bytes(from.type());
    Tensor to = Tensor::allocate(from.type(), {p_.n, static_cast<int64_t>(group_of_.size())});
    std::byte* out = to.view().data;
    for (int64_t n = 0; n < p_.n; ++n)
      for (const int64_t g : group_of_)
        for (int64_t b = 0; b < size; ++b) *out++ = from.view().data[(n * old_blocks_ + g) * size + b];
    return to;
  }

  const PackedMatMulParams& p_;
  int64_t old_blocks_;
  std::vector<int64_t> group_of_;  // of each new block
  std::vector<int32_t> order_;
};

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
    Sorted own{*constant(graph, n, 1), *constant(graph, n, 2), {}, {}, p.k};
    if (n.has_input(3)) own.zeros = *constant(graph, n, 3);
    if (n.has_input(4)) {
      const Sorter sorter(p, constant(graph, n, 4)->to_i64());
      if (sorter.depth() > kMaxDepth) continue;
      own = sorter.sorted(own.weights, own.scales, n.has_input(3) ? constant(graph, n, 3) : nullptr);
      p.k = own.depth;
    }
    Result<Packed> packed = context.packs->pack({own.weights, own.scales, own.zeros, p, rounded});
    if (!packed.is_ok()) return packed.status().with_context(n.label());
    // What passes laid out on the heap goes at once: all matrices together would be a second copy of the model.
    for (size_t i = 1; i < 4; ++i) {
      if (!n.has_input(i) || users[static_cast<size_t>(n.in[i])].size() != 1) continue;
      context.packs->let_go(&graph.values[static_cast<size_t>(n.in[i])].constant);
    }
    const ValueId w = graph.add_constant(n.name + "/packed", packed->data), bias = n.has_input(5) ? n.in[5] : kNoValue;
    n.in = {n.in[0], w};
    if (bias != kNoValue) n.in.push_back(bias);
    if (own.order.present()) {
      n.in.resize(kOrderOperand + 1, kNoValue);
      n.in[kOrderOperand] = graph.add_constant(n.name + "/order", own.order);
      n.set_int("K", p.k);
    }
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
