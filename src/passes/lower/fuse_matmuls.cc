// What stands around a packed product is computed with it, so that a step has fewer kernels and fewer barriers:
//   f(x g^T) * (x w^T)   two products of the same rows and an activation, as gated MLPs have them
//   RMSNorm(x) w^T       where every reader of the norm is a product that rounds its rows anyway: each thread
//                        normalises the rows that it rounds
//   x w^T + residual     the residual stream
//   x w^T + bias         also of float matrices (pack_dense)
#include <algorithm>

#include "ops/quantised.h"
#include "passes/context/builder.h"
#include "passes/context/pass_context.h"
#include "passes/lower/passes.h"

namespace situ {
namespace {

enum Operand { kX, kWeights, kBias, kResidual, kNorm, kGate, kOrder, kOperands };

class Fuser {
 public:
  explicit Fuser(PassContext& context) : context_(context), graph_(context.graph) {}

  Status run() {
    SITU_RETURN_IF_ERROR(each([&](Node& n) { return gate(n); }, "gated products"));
    SITU_RETURN_IF_ERROR(norms());
    SITU_RETURN_IF_ERROR(each([&](Node& n) { return residual(n); }, "products with a residual"));
    return each([&](Node& n) { return bias(n); }, "products with a bias");
  }

 private:
  const Shape& shape(ValueId v) const { return graph_.values[v].info.shape; }
  bool packed(const Node& n) const { return n.is("PackedMatMul", "situ"); }
  bool empty(const Node& n, Operand o) const { return !n.has_input(o); }

  // The packed product that makes `v` for one reader alone.
  Node* product(ValueId v) {
    const int p = graph_.values[v].producer;
    if (p < 0 || !packed(graph_.nodes[p]) || users_[v].size() != 1 || graph_.is_output(v)) return nullptr;
    return &graph_.nodes[p];
  }

  void set(Node& n, Operand o, ValueId v) {
    n.in.resize(std::max(n.in.size(), static_cast<size_t>(o) + 1), kNoValue);
    n.in[o] = v;
  }

  // Applies `fuse` to every node; it rewrites the node in place, and what it no longer reads dies.
  template <typename Fuse>
  Status each(Fuse fuse, const char* what) {
    graph_.rebuild_links();
    users_ = graph_.users();
    int count = 0;
    for (Node& n : graph_.nodes) count += fuse(n);
    if (count == 0) return Status::ok();
    context_.note("fused", "", std::to_string(count) + " " + what);
    SITU_RETURN_IF_ERROR(resolve_ops(graph_));
    graph_.remove_dead_nodes();
    return graph_.sort();
  }

  // Mul(f(g), u) of two products of the same x becomes the second with the first's weights as its gate.
  bool gate(Node& mul) {
    if (!mul.is("Mul") || mul.in.size() != 2) return false;
    for (int side = 0; side < 2; ++side) {
      const int p = graph_.values[mul.in[side]].producer;
      if (p < 0 || users_[mul.in[side]].size() != 1 || graph_.is_output(mul.in[side])) continue;
      const Node& f = graph_.nodes[p];
      const bool silu = f.is("Swish") && f.attr_float("alpha", 1) == 1.0f;
      const bool gelu = f.is("Gelu") && f.attr_string("approximate", "none") == "tanh";
      Node* g = silu || gelu ? product(f.in[0]) : nullptr;
      Node* u = product(mul.in[1 - side]);
      if (!g || !u || g == u || g->in[kX] != u->in[kX] || !same_form(*g, *u)) continue;
      for (Operand o : {kBias, kResidual, kNorm, kGate, kOrder})
        if (!empty(*g, o) || (o != kBias && !empty(*u, o))) return false;
      Node fused = *u;
      fused.name = mul.name;
      fused.out = mul.out;
      set(fused, kGate, g->in[kWeights]);
      fused.set_string("activation", silu ? "silu" : "gelu_tanh");
      mul = fused;
      return true;
    }
    return false;
  }

  bool same_form(const Node& a, const Node& b) const {
    const PackedMatMulParams p = packed_params(a), q = packed_params(b);
    return quantised_matrix(a) == quantised_matrix(b) && p.half_scales == q.half_scales &&
           p.accuracy_level == q.accuracy_level;
  }

  bool takes_norm(const Node& n, int operand) const {
    return packed(n) && operand == kX && empty(n, kNorm) && empty(n, kOrder) && n.attr_int("accuracy_level", 0) == 4;
  }

  // RMSNorm over the last axis whose readers are all rounded products.
  bool is_norm(const Node& n) const {
    const bool rms = n.is("RMSNormalization") || n.is("SimplifiedLayerNormalization") ||
                     n.is("SimplifiedLayerNormalization", "com.microsoft");
    if (!rms || n.out.size() != 1 || n.in.size() < 2 || graph_.is_output(n.out[0])) return false;
    const int64_t axis = n.attr_int("axis", -1), rank = static_cast<int64_t>(shape(n.in[0]).size());
    const Value& scale = graph_.values[n.in[1]];
    const bool plain = (axis == -1 || axis == rank - 1) && scale.constant.present() && scale.info.shape.size() == 1 &&
                       scale.info.shape[0] == shape(n.in[0]).back();
    const auto& users = users_[n.out[0]];
    return plain && !users.empty() && std::all_of(users.begin(), users.end(), [&](const auto& u) {
             return takes_norm(graph_.nodes[u.first], u.second);
           });
  }

  Status norms() {
    graph_.rebuild_links();
    users_ = graph_.users();
    int count = 0;
    for (const Node& n : graph_.nodes) {
      if (!is_norm(n)) continue;
      for (const auto& [u, operand] : users_[n.out[0]]) {
        Node& product = graph_.nodes[u];
        product.in[kX] = n.in[0];
        set(product, kNorm, n.in[1]);
        product.set_float("epsilon", n.attr_float("epsilon", 1e-5f));
      }
      ++count;
    }
    if (count == 0) return Status::ok();
    context_.note("fused", "", std::to_string(count) + " norms into the products that read them");
    graph_.remove_dead_nodes();
    return Status::ok();
  }

  // Add(product, r), where r is there before the product runs.
  bool residual(Node& add) {
    if (!add.is("Add") || add.in.size() != 2) return false;
    for (int side = 0; side < 2; ++side) {
      Node* u = product(add.in[side]);
      const ValueId r = add.in[1 - side];
      if (!u || !empty(*u, kResidual) || !(shape(r) == shape(add.out[0])) || !(shape(add.in[side]) == shape(r)))
        continue;
      if (graph_.values[r].info.type != graph_.values[add.out[0]].info.type || graph_.values[r].constant.present())
        continue;
      Node fused = *u;
      fused.name = add.name;
      fused.out = add.out;
      set(fused, kResidual, r);
      add = fused;
      return true;
    }
    return false;
  }

  // Add(product, b) with a constant b [N]: the kernels add a bias to the same sums.
  bool bias(Node& add) {
    if (!add.is("Add") || add.in.size() != 2) return false;
    for (int side = 0; side < 2; ++side) {
      const ValueId b = add.in[1 - side];
      const int p = graph_.values[add.in[side]].producer;
      if (p < 0 || users_[add.in[side]].size() != 1 || graph_.is_output(add.in[side])) continue;
      const Node& u = graph_.nodes[static_cast<size_t>(p)];
      const bool product = u.is("DenseMatMul", "situ") || (packed(u) && empty(u, kResidual) && empty(u, kGate));
      if (!product || !empty(u, kBias) || !(shape(add.in[side]) == shape(add.out[0]))) continue;
      if (!graph_.values[b].constant.present() || shape(b) != Shape{Dim(u.attr_int("N", 0))} ||
          graph_.values[b].info.type != graph_.values[add.out[0]].info.type ||
          graph_.values[add.in[side]].info.type != graph_.values[add.out[0]].info.type)
        continue;
      Node fused = u;
      fused.name = add.name;
      fused.out = add.out;
      set(fused, kBias, b);
      add = fused;
      return true;
    }
    return false;
  }

  PassContext& context_;
  Graph& graph_;
  std::vector<std::vector<std::pair<int, int>>> users_;
};

}  // namespace

Status fuse_matmuls(PassContext& context) { return Fuser(context).run(); }

}  // namespace situ
