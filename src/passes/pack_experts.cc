// situ.ExpertMatMul on constant weights becomes situ.PackedExperts or situ.DenseExperts: the matrices of all experts
// side by side, packed as one. What no layout fits stays as the file has it.
#include <unistd.h>

#include <algorithm>

#include "kernels/packed_layout.h"
#include "ops/infer.h"
#include "ops/op.h"
#include "passes/pack_store.h"
#include "passes/pass.h"

namespace situ {
namespace {

constexpr size_t kFirstMatrix = 3;  // operand of weights
constexpr int64_t kExpertColumns = kPanelColumns * kUnitPanels;
static_assert(kExpertColumns % kDensePanelColumns == 0);
constexpr int64_t kMostExpertBlock = 256;  // kernels/packed_matmul.cc
// A thread's scratch holds a row of floats, and with it what tells rows from experts.
constexpr int64_t kMaxExpertDepth = 65536;
constexpr int64_t kExpertsMemoryShare = 3;  // pack_dense.cc

class ExpertPacker {
 public:
  explicit ExpertPacker(PassContext& context) : context_(context), graph_(context.graph) {}

  Status run() {
    const int64_t before = context_.packs->bytes();
    users_ = graph_.users();
    int64_t floats = 0;
    for (const Node& n : graph_.nodes)
      if (n.is("ExpertMatMul", "situ") && n.attr_int("bits", 0) == 0)
        for (size_t i = kFirstMatrix; i < n.in.size(); ++i) floats += graph_.values[n.in[i]].constant.bytes();
    const bool room =
        floats <= static_cast<int64_t>(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGESIZE) / kExpertsMemoryShare;
    int count = 0;
    for (Node& n : graph_.nodes) {
      if (!n.is("ExpertMatMul", "situ") || !fits(n)) continue;
      if (bits_ == 0 && !room) continue;
      SITU_RETURN_IF_ERROR((bits_ == 0 ? pack_floats(n) : pack_digits(n)).with_context(n.label()));
      ++count;
    }
    if (count == 0) return Status::ok();
    context_.note(
        "packed weights", "",
        std::to_string(count) + " stacks of experts, " + std::to_string(context_.packs->bytes() - before) + " bytes");
    graph_.remove_dead_nodes();
    graph_.drop_unread_constants();
    return Status::ok();
  }

 private:
  const Tensor& constant(const Node& n, size_t i) const { return graph_.values[n.in[i]].constant; }

  bool fits(const Node& n) {
    experts_ = n.attr_int("experts", 0);
    k_ = n.attr_int("K", 0);
    n_ = n.attr_int("N", 0);
    bits_ = n.attr_int("bits", 0);
    block_ = n.attr_int("block_size", 0);
    for (size_t i = kFirstMatrix; i < n.in.size(); ++i)
      if (n.in[i] != kNoValue && (!constant(n, i).present() || !constant(n, i).contiguous())) return false;
    if (n_ % kExpertColumns != 0 || k_ > kMaxExpertDepth) return false;
    if (bits_ == 0) return same_types(n, kFirstMatrix, 1);
    return (bits_ == 4 || bits_ == 8) && block_ <= kMostExpertBlock && same_types(n, kFirstMatrix + 1, 3) &&
           has_all_zeros(n);
  }
  // Of every `step`-th operand.
  bool same_types(const Node& n, size_t first, size_t step) const {
    for (size_t i = first; i < n.in.size(); i += step)
      if (constant(n, i).type() != constant(n, first).type()) return false;
    return true;
  }
  // Zero points of all matrices, or of none.
  bool has_all_zeros(const Node& n) const {
    for (size_t i = kFirstMatrix + 2; i < n.in.size(); i += 3)
      if (n.has_input(i) != n.has_input(kFirstMatrix + 2) ||
          (n.has_input(i) && constant(n, i).type() != constant(n, kFirstMatrix + 2).type()))
        return false;
    return true;
  }

  // The operands at `first` of all experts one after the other: the stack as it is, or matrices that are joined.
  Tensor joined(const Node& n, size_t first, size_t step) {
    if (context_.packs->dry()) return constant(n, first);
    if (n.in.size() <= first + step) return constant(n, first);
    int64_t count = 0;
    for (size_t i = first; i < n.in.size(); i += step) count += constant(n, i).count();
    Tensor all = Tensor::allocate(constant(n, first).type(), {count});
    std::byte* to = all.view().data;
    for (size_t i = first; i < n.in.size(); i += step) {
      const Tensor& one = constant(n, i);
      for (int64_t b = 0; b < one.bytes(); ++b) *to++ = one.view().data[b];
      context_.packs->release(one);
      if (users_[n.in[i]].size() == 1) context_.packs->let_go(&graph_.values[n.in[i]].constant);
    }
    context_.evaluator.ledger().packed += all.bytes();
    return all;
  }
  void let_go(const Node& n) {
    for (size_t i = kFirstMatrix; i < n.in.size(); ++i)
      if (n.in[i] != kNoValue && users_[n.in[i]].size() == 1 && constant(n, i).present())
        context_.packs->let_go(&graph_.values[n.in[i]].constant);
  }

  void become(Node& n, const char* op, const Tensor& packed) {
    let_go(n);
    n.in.resize(kFirstMatrix);
    n.in.push_back(graph_.add_constant(n.name + "/packed", packed));
    n.op = op;
    n.def = find_op("situ", op, 1);
  }

  Status pack_floats(Node& n) {
    Tensor all = joined(n, kFirstMatrix, 1);
    if (n.attr_int("transposed", 1) == 0 && !context_.packs->dry()) all = columns_first(all);
    if (!context_.packs->dry()) all = all.reshaped({experts_ * n_, k_});
    Result<Tensor> packed = context_.packs->pack_dense(all, k_, experts_ * n_, true);
    if (!packed.is_ok()) return packed.status();
    become(n, "DenseExperts", *packed);
    return Status::ok();
  }
  // [experts, K, N] as [experts, N, K].
  Tensor columns_first(const Tensor& w) {
    const int64_t size = dtype_bytes(w.type());
    Tensor turned = Tensor::allocate(w.type(), {experts_ * n_, k_});
    const std::byte* from = w.view().data;
    for (int64_t e = 0; e < experts_; ++e)
      for (int64_t k = 0; k < k_; ++k)
        for (int64_t c = 0; c < n_; ++c)
          for (int64_t b = 0; b < size; ++b) turned.view().data[((e * n_ + c) * k_ + k) * size + b] = *from++;
    return turned;
  }

  Status pack_digits(Node& n) {
    PackedMatMulParams p{};
    p.k = k_;
    p.n = experts_ * n_;
    p.bits = static_cast<int32_t>(bits_);
    p.accuracy_level = n.attr_int("accuracy_level", 0) == 4 ? 4 : 0;
    const bool zeros_given = n.has_input(kFirstMatrix + 2);
    const bool digits = zeros_given && constant(n, kFirstMatrix + 2).type() == DType::kU8;
    p.zeros = !zeros_given ? ZeroPoints::kMiddle : digits ? ZeroPoints::kIntegers : ZeroPoints::kFloats;
    // A scale of a whole column is written for each block of it.
    int64_t block = block_;
    if (block == 0)
      for (block = kMostExpertBlock; block > 1 && k_ % block != 0;) block /= 2;
    if (block < 16) return Status::ok();
    p.block = static_cast<int32_t>(block);
    Tensor weights = joined(n, kFirstMatrix, 3), scales = joined(n, kFirstMatrix + 1, 3), zeros;
    if (zeros_given) zeros = joined(n, kFirstMatrix + 2, 3);
    const int64_t blocks = (k_ + block - 1) / block;
    if (block_ == 0 && !context_.packs->dry()) {
      scales = repeated(scales, blocks);
      if (digits) zeros = repeated_digits(zeros, blocks);
      if (zeros_given && !digits) zeros = repeated(zeros, blocks);
    }
    Result<Packed> packed = context_.packs->pack({weights, scales, zeros, p, p.accuracy_level == 4});
    if (!packed.is_ok()) return packed.status();
    become(n, "PackedExperts", packed->data);
    n.set_int("block_size", block);
    n.set_int("half_scales", packed->half_scales);
    n.set_int("zeros", static_cast<int64_t>(p.zeros));
    n.set_int("accuracy_level", p.accuracy_level);
    return Status::ok();
  }
  static Tensor repeated(const Tensor& columns, int64_t times) {
    const int64_t size = dtype_bytes(columns.type());
    Tensor all = Tensor::allocate(columns.type(), {columns.count() * times});
    std::byte* to = all.view().data;
    for (int64_t c = 0; c < columns.count(); ++c)
      for (int64_t t = 0; t < times; ++t)
        for (int64_t b = 0; b < size; ++b) *to++ = columns.view().data[c * size + b];
    return all;
  }
  // Zero points that are packed along the columns of each expert, as a row of `blocks` of them for each column.
  Tensor repeated_digits(const Tensor& zeros, int64_t blocks) const {
    const int64_t row = (blocks * bits_ + 7) / 8, of_expert = (n_ * bits_ + 7) / 8;
    Tensor all = Tensor::allocate(DType::kU8, {experts_ * n_ * row});
    for (int64_t e = 0; e < experts_; ++e)
      for (int64_t c = 0; c < n_; ++c) {
        const int byte = zeros.view().as<uint8_t>()[e * of_expert + c * bits_ / 8];
        const int zero = byte >> (c * bits_ % 8) & ((1 << bits_) - 1);
        uint8_t* to = all.view().as<uint8_t>() + (e * n_ + c) * row;
        for (int64_t b = 0; b < blocks; ++b)
          to[b * bits_ / 8] = static_cast<uint8_t>(to[b * bits_ / 8] | zero << (b * bits_ % 8));
      }
    return all;
  }

  PassContext& context_;
  Graph& graph_;
  std::vector<std::vector<std::pair<int, int>>> users_;
  int64_t experts_ = 0, k_ = 0, n_ = 0, bits_ = 0, block_ = 0;
};

}  // namespace

Status pack_experts(PassContext& context) {
  return context.packs != nullptr ? ExpertPacker(context).run() : Status::ok();
}

}  // namespace situ
