// A product with repeated heads, MatMul(q, Reshape(Expand(k))), reads each head where it stands once: the heads' axis
// stays two axes, [G, repeats], of which the second has stride 0, and q and the result are reshaped instead, which
// moves nothing. Attention that is recognised needs no such help; this keeps what is not free of copies of K and V.
#include "passes/builder.h"
#include "passes/pass.h"

namespace situ {
namespace {

class Splitter {
 public:
  explicit Splitter(PassContext& context) : graph_(context.graph), builder_(graph_) {}

  Status run() {
    const std::vector<Node> nodes = graph_.nodes;
    graph_.nodes.clear();
    bool any = false;
    for (const Node& n : nodes) {
      Repeated left, right;
      bool split = product(n) && shape(n.out[0]).size() == 4;
      if (split) {
        const bool on_left = repeated(nodes, n.in[0], &left), on_right = repeated(nodes, n.in[1], &right);
        split = (on_left || on_right) && fits(n, left, right);
      }
      if (!split) {
        builder_.keep(n);
        continue;
      }
      emit(n, left, right);
      any = true;
    }
    SITU_RETURN_IF_ERROR(builder_.finish());
    if (any) graph_.remove_dead_nodes();
    return Status::ok();
  }

 private:
  // A value [B, G * R, X, Y] that is `source` [B, G, R, X, Y] (or X and Y swapped), broadcast along R.
  struct Repeated {
    ValueId source = kNoValue;
    Dim groups, repeats;
    bool swapped = false;
  };

  const Shape& shape(ValueId v) const { return graph_.values[v].info.shape; }

  // MatMul, and MatMulInteger with zero points of one number.
  bool product(const Node& n) const {
    if (n.is("MatMul")) return true;
    if (!n.is("MatMulInteger")) return false;
    for (size_t i = 2; i < n.in.size(); ++i)
      if (n.has_input(i) && shape_count(shape(n.in[i])) != Dim(1)) return false;
    return true;
  }

  bool repeated(const std::vector<Node>& nodes, ValueId v, Repeated* r) const {
    if (shape(v).size() != 4 || graph_.values[v].producer < 0) return false;
    const Node* n = &nodes[static_cast<size_t>(graph_.values[v].producer)];
    if (n->is("Transpose") && n->attr_ints("perm") == std::vector<int64_t>{0, 1, 3, 2}) {
      r->swapped = true;
      v = n->in[0];
      if (graph_.values[v].producer < 0) return false;
      n = &nodes[static_cast<size_t>(graph_.values[v].producer)];
    }
    if (!n->is("Reshape")) return false;
    const Shape &wide = shape(n->in[0]), &merged = shape(v);
    if (wide.size() != 5 || merged.size() != 4 || graph_.values[n->in[0]].producer < 0) return false;
    const bool merges =
        wide[0] == merged[0] && wide[1] * wide[2] == merged[1] && wide[3] == merged[2] && wide[4] == merged[3];
    const Node& expand = nodes[static_cast<size_t>(graph_.values[n->in[0]].producer)];
    if (!merges || !expand.is("Expand") || shape(expand.in[0]).size() != 5 || shape(expand.in[0])[2] != Dim(1) ||
        wide[2] == Dim(1))
      return false;
    *r = {n->in[0], wide[1], wide[2], r->swapped};
    return true;
  }

  // Both operands have the same heads, and repeat them alike if both do.
  bool fits(const Node& n, const Repeated& left, const Repeated& right) const {
    if (left.source != kNoValue && right.source != kNoValue &&
        (left.groups != right.groups || left.repeats != right.repeats))
      return false;
    return shape(n.in[0]).size() == 4 && shape(n.in[1]).size() == 4 && shape(n.in[0])[1] == shape(n.in[1])[1] &&
           shape(n.in[0])[0] == shape(n.in[1])[0];
  }

  ValueId five_axes(ValueId v, const Repeated& own, const Repeated& other) {
    if (own.source != kNoValue) return own.swapped ? builder_.transpose(own.source, {0, 1, 2, 4, 3}) : own.source;
    const Shape& s = shape(v);
    return builder_.op("Reshape", {v, graph_.add_shape("dims", {s[0], other.groups, other.repeats, s[2], s[3]})});
  }

  void emit(const Node& n, const Repeated& left, const Repeated& right) {
    builder_.start(n);
    const Shape result = shape(n.out[0]);
    std::vector<ValueId> in = n.in;
    in[0] = five_axes(n.in[0], left, right);
    in[1] = five_axes(n.in[1], right, left);
    const ValueId y = builder_.again(n, in);
    builder_.op("Reshape", {y, graph_.add_shape("dims", result)}, n.out[0]);
  }

  Graph& graph_;
  Builder builder_;
};

}  // namespace

Status split_products(PassContext& context) { return Splitter(context).run(); }

}  // namespace situ
