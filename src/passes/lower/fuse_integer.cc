// What onnxruntime's quantize_dynamic makes of a product, with a constant W:
//   q, s, z = DynamicQuantizeLinear(x);  y = Cast(MatMulInteger(q, W, z, w_zero)) * (s * w_scale)
// becomes situ.RoundRows(x), once for all products of the same q, and situ.IntegerMatMul: rounded rows are a value with
// a place, which has the rows' scale and zero point in it, and of the int32 sums nothing is written. pack_integer lays
// W out at the end of the passes, and takes in what stands behind the product:
//   Add(y, bias [N]), GELU, Add(y, residual)
#include <algorithm>
#include <map>

#include "kernels/integer_layout.h"
#include "passes/context/builder.h"
#include "passes/context/pass_context.h"
#include "passes/lower/passes.h"
#include "passes/pack/pack_store.h"

namespace situ {
namespace {

enum Operand { kRows, kWeights, kScale, kResidual, kZero, kBias, kOperands };

class IntegerFuser {
 public:
  explicit IntegerFuser(PassContext& context) : context_(context), graph_(context.graph), users_(graph_.users()) {}

  Status run() {
    std::map<int, Product> found;  // by the node that makes y
    for (const Node& n : graph_.nodes) {
      Product p;
      if (n.is("MatMulInteger") && match(n, &p)) found.emplace(p.last, p);
    }
    if (found.empty()) return Status::ok();
    Builder builder(graph_);
    std::vector<Node> nodes = std::exchange(graph_.nodes, {});
    std::map<ValueId, ValueId> rounded;  // x: its rows
    for (size_t i = 0; i < nodes.size(); ++i) {
      const auto it = found.find(static_cast<int>(i));
      if (it == found.end()) {
        builder.keep(std::move(nodes[i]));
        continue;
      }
      const Product& p = it->second;
      builder.start(nodes[i]);
      ValueId& rows = rounded.try_emplace(p.x, kNoValue).first->second;
      if (rows == kNoValue) rows = builder.op("RoundRows", {p.x}, kNoValue, "situ");
      builder.op("IntegerMatMul", {rows, p.w, p.scale, kNoValue, p.zero}, nodes[i].out[0], "situ");
      builder.last().name = nodes[p.product].name;
      builder.last().set_int("K", p.k);
      builder.last().set_int("N", p.n);
      builder.last().set_int("signed_weights", p.is_signed);
    }
    context_.note("integer products", "",
                  std::to_string(found.size()) + " of " + std::to_string(rounded.size()) + " rounded values");
    SITU_RETURN_IF_ERROR(builder.finish());
    graph_.remove_dead_nodes();
    return graph_.sort();
  }

 private:
  struct Product {
    ValueId x = kNoValue, w = kNoValue, scale = kNoValue, zero = kNoValue;
    int64_t k = 0, n = 0;
    bool is_signed = false;
    size_t product = 0;
    int last = -1;  // the node that makes y
  };

  const Tensor& constant(ValueId v) const { return graph_.values[v].constant; }
  const Node* producer(ValueId v) const {
    const int p = v == kNoValue ? -1 : graph_.values[v].producer;
    return p < 0 ? nullptr : &graph_.nodes[p];
  }
  // The only reader of `v`.
  const Node* reader(ValueId v) const {
    if (graph_.is_output(v) || users_[v].size() != 1 || users_[v][0].first < 0) return nullptr;
    return &graph_.nodes[users_[v][0].first];
  }
  int index(const Node& n) const { return static_cast<int>(&n - graph_.nodes.data()); }

  // One number, or one for each of `n` columns.
  bool of_columns(ValueId v, int64_t n) const {
    const Tensor& t = constant(v);
    return t.present() && (t.count() == 1 || (t.rank() == 1 && t.count() == n));
  }

  bool match(const Node& product, Product* p) const {
    const Node* round = producer(product.in[0]);
    if (!round || !round->is("DynamicQuantizeLinear") || product.in[0] != round->out[0] || !product.has_input(2) ||
        round->out.size() != 3 || product.in[2] != round->out[2])
      return false;
    p->x = round->in[0];
    p->w = product.in[1];
    p->zero = product.has_input(3) ? product.in[3] : kNoValue;
    p->product = static_cast<size_t>(index(product));
    const Tensor& w = constant(p->w);
    const Shape& x = graph_.values[p->x].info.shape;
    if (!w.present() || w.rank() != 2 || x.size() < 2 || x.back() != Dim(w.dims()[0]) || constant(p->x).present())
      return false;
    p->k = w.dims()[0];
    p->n = w.dims()[1];
    p->is_signed = w.type() == DType::kI8;
    if (p->k < 1 || p->k > kMostDepth || p->n < 1 || (p->zero != kNoValue && !of_columns(p->zero, p->n))) return false;
    const Node* cast = reader(product.out[0]);
    if (!cast || !cast->is("Cast") || graph_.values[cast->out[0]].info.type != DType::kF32) return false;
    return match_scales(*cast, round->out[1], p);
  }
  static constexpr int64_t kMostDepth = 65536;

  // Cast(sums) * (s * w_scale), or the one and then the other.
  bool match_scales(const Node& cast, ValueId s, Product* p) const {
    const Node* mul = reader(cast.out[0]);
    if (!mul || !mul->is("Mul")) return false;
    const ValueId factor = mul->in[mul->in[0] == cast.out[0] ? 1 : 0];
    if (const Node* scales = producer(factor); scales && scales->is("Mul") && factor != s) {
      if (scales->in[0] != s && scales->in[1] != s) return false;
      p->scale = scales->in[scales->in[0] == s ? 1 : 0];
    } else {
      const Node* second = reader(mul->out[0]);
      if (!second || !second->is("Mul")) return false;
      const ValueId other = second->in[second->in[0] == mul->out[0] ? 1 : 0];
      if (factor != s && other != s) return false;
      p->scale = factor == s ? other : factor;
      mul = second;
    }
    if (p->scale == s || !of_columns(p->scale, p->n) || constant(p->scale).type() != DType::kF32) return false;
    p->last = index(*mul);
    return graph_.values[mul->out[0]].info.shape.size() == graph_.values[p->x].info.shape.size();
  }

  PassContext& context_;
  Graph& graph_;
  std::vector<std::vector<std::pair<int, int>>> users_;
};

// What stands behind products, once they are laid out.
class Tails {
 public:
  explicit Tails(PassContext& context) : graph_(context.graph) {}

  Status run() {
    SITU_RETURN_IF_ERROR(each([&](Node& n) { return bias(n); }));
    SITU_RETURN_IF_ERROR(each([&](Node& n) { return gelu(n); }));
    return each([&](Node& n) { return residual(n); });
  }

 private:
  // The product that makes `v` for one reader alone.
  const Node* product(ValueId v) const {
    const int p = v == kNoValue ? -1 : graph_.values[v].producer;
    if (p < 0 || !graph_.nodes[p].is("IntegerMatMul", "situ") || users_[v].size() != 1 || graph_.is_output(v))
      return nullptr;
    return &graph_.nodes[p];
  }

  template <typename Fuse>
  Status each(Fuse fuse) {
    graph_.rebuild_links();
    users_ = graph_.users();
    int count = 0;
    for (Node& n : graph_.nodes) count += fuse(n);
    if (count == 0) return Status::ok();
    SITU_RETURN_IF_ERROR(resolve_ops(graph_));
    graph_.remove_dead_nodes();
    return graph_.sort();
  }

  static void take_place(Node& n, Node fused) {
    fused.name = n.name;
    fused.out = n.out;
    n = std::move(fused);
  }
  static bool plain(const Node& n) { return !n.has_input(kResidual) && n.attr_int("gelu", 0) == 0; }

  bool bias(Node& add) {
    if (!add.is("Add") || add.in.size() != 2) return false;
    for (int side = 0; side < 2; ++side) {
      const Node* p = product(add.in[side]);
      const ValueId b = add.in[1 - side];
      const Value& value = graph_.values[b];
      if (!p || !plain(*p) || p->has_input(kBias) || !value.constant.present() || value.info.type != DType::kF32 ||
          value.info.shape != Shape{Dim(p->attr_int("N", 0))})
        continue;
      Node fused = *p;
      fused.in.resize(kOperands, kNoValue);
      fused.in[kBias] = b;
      take_place(add, std::move(fused));
      return true;
    }
    return false;
  }

  bool gelu(Node& n) {
    const Node* p = n.is("Gelu") && n.attr_string("approximate", "none") == "none" ? product(n.in[0]) : nullptr;
    if (!p || !plain(*p)) return false;
    Node fused = *p;
    fused.set_int("gelu", 1);
    take_place(n, std::move(fused));
    return true;
  }

  bool residual(Node& add) {
    if (!add.is("Add") || add.in.size() != 2) return false;
    for (int side = 0; side < 2; ++side) {
      const Node* p = product(add.in[side]);
      const ValueId r = add.in[1 - side];
      const ValueInfo &other = graph_.values[r].info, &y = graph_.values[add.out[0]].info;
      if (!p || p->has_input(kResidual) || graph_.values[r].constant.present() || other.type != DType::kF32 ||
          other.shape != y.shape || graph_.values[add.in[side]].info.shape != y.shape)
        continue;
      Node fused = *p;
      fused.in.resize(kOperands, kNoValue);
      fused.in[kResidual] = r;
      take_place(add, std::move(fused));
      return true;
    }
    return false;
  }

  Graph& graph_;
  std::vector<std::vector<std::pair<int, int>>> users_;
};

}  // namespace

Status fuse_integer(PassContext& context) { return context.packs ? IntegerFuser(context).run() : Status::ok(); }

Status pack_integer(PassContext& context) {
  if (!context.packs) return Status::ok();
  Graph& graph = context.graph;
  int count = 0;
  int64_t bytes = 0;
  const auto users = graph.users();
  for (Node& n : graph.nodes) {
    if (!n.is("IntegerMatMul", "situ")) continue;
    Value& w = graph.values[n.in[kWeights]];
    if (!w.constant.present()) return Status::error(n.label() + ": the weights are not constant");
    Result<Tensor> packed = context.packs->pack_integer(w.constant);
    if (!packed.is_ok()) return packed.status().with_context(n.label());
    bytes += packed->bytes();
    if (users[static_cast<size_t>(n.in[kWeights])].size() == 1) context.packs->let_go(&w.constant);
    n.in[kWeights] = graph.add_constant(n.name + "/packed", *packed);
    ++count;
  }
  if (count == 0) return Status::ok();
  context.note("packed weights", "", std::to_string(count) + " matrices of bytes, " + std::to_string(bytes) + " bytes");
  graph.drop_unread_constants();
  return Tails(context).run();
}

}  // namespace situ
