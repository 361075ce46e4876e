// situ.ExpertMatMul on constant weights becomes situ.PackedExperts or situ.DenseExperts: the matrices of all experts
// side by side, packed as one. What no layout fits stays as the file has it.
#include <unistd.h>

#include <algorithm>

#include "kernels/packed_layout.h"
#include "ops/op.h"
#include "passes/context/pass_context.h"
#include "passes/experts/expert_rows.h"
#include "passes/lower/passes.h"
#include "passes/pack/pack_store.h"
#include "passes/pack/stored_matrix.h"

namespace situ {
namespace {

constexpr size_t kFirstMatrix = 3;  // operand of weights
constexpr int64_t kExpertColumns = kPanelColumns * kUnitPanels;
static_assert(kExpertColumns % kDensePanelColumns == 0);
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
      if (w_.bits == 0 && !room) continue;
      SITU_RETURN_IF_ERROR((w_.bits == 0 ? pack_floats(n) : pack_digits(n)).with_context(n.label()));
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
    w_ = quantised_matrix(n, n.has_input(kFirstMatrix + 2) ? constant(n, kFirstMatrix + 2).type() : DType::kNone);
    for (size_t i = kFirstMatrix; i < n.in.size(); ++i)
      if (n.in[i] != kNoValue && (!constant(n, i).present() || !constant(n, i).contiguous())) return false;
    if (!packs_expert(w_)) return false;
    return w_.bits == 0 ? same_types(n, kFirstMatrix, 1) : same_types(n, kFirstMatrix + 1, 3) && has_all_zeros(n);
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
    if (!context_.packs->dry()) all = all.reshaped({experts_ * w_.n, w_.k});
    Result<Tensor> packed = context_.packs->pack_dense(all, w_.k, experts_ * w_.n, true);
    if (!packed.is_ok()) return packed.status();
    become(n, "DenseExperts", *packed);
    return Status::ok();
  }
  // [experts, K, N] as [experts, N, K].
  Tensor columns_first(const Tensor& w) {
    const int64_t size = dtype_bytes(w.type());
    Tensor turned = Tensor::allocate(w.type(), {experts_ * w_.n, w_.k});
    const std::byte* from = w.view().data;
    for (int64_t e = 0; e < experts_; ++e)
      for (int64_t k = 0; k < w_.k; ++k)
        for (int64_t c = 0; c < w_.n; ++c)
          for (int64_t b = 0; b < size; ++b) turned.view().data[((e * w_.n + c) * w_.k + k) * size + b] = *from++;
    return turned;
  }

  Status pack_digits(Node& n) {
    const int64_t level = n.attr_int("accuracy_level", 0) == 4 ? 4 : 0;
    // A scale of a whole column is written for each block of it.
    QuantisedMatrix form = w_;
    if (form.block == 0)
      for (form.block = kLongestBlock; form.block > 1 && form.k % form.block != 0;) form.block /= 2;
    if (form.block < 16) return Status::ok();
    form.n *= experts_;
    StoredMatrix all = stored_matrix(form);
    all.digits.data = joined(n, kFirstMatrix, 3);
    all.scales.data = joined(n, kFirstMatrix + 1, 3);
    if (n.has_input(kFirstMatrix + 2)) all.zeros.data = joined(n, kFirstMatrix + 2, 3);
    if (w_.block == 0) {  // zero points of all columns stand side by side: those of an expert are whole bytes
      for (MatrixPart* part : {&all.scales, &all.zeros}) part->column = 1, part->place = 0;
      if (!context_.packs->dry()) all = laid_out(all, &context_);
    }
    Result<Packed> packed = context_.packs->pack(all, level == 4);
    if (!packed.is_ok()) return packed.status();
    become(n, "PackedExperts", packed->data);
    form.n = w_.n;
    set_quantised_matrix(&n, form);
    n.set_int("half_scales", packed->half_scales);
    n.set_int("accuracy_level", level);
    return Status::ok();
  }

  PassContext& context_;
  Graph& graph_;
  std::vector<std::vector<std::pair<int, int>>> users_;
  int64_t experts_ = 0;
  QuantisedMatrix w_;  // of one expert
};

}  // namespace

bool packs_expert(const QuantisedMatrix& w) {
  const bool digits = (w.bits == 4 || w.bits == 8) && w.block <= kLongestBlock;
  return w.n % kExpertColumns == 0 && w.k <= kMaxExpertDepth && (w.bits == 0 || digits);
}

Status pack_experts(PassContext& context) {
  return context.packs != nullptr ? ExpertPacker(context).run() : Status::ok();
}

}  // namespace situ
