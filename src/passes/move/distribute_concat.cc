// A Concat whose operands cannot all be produced in place (one is used twice, or is a part of something that
// lives elsewhere) moves below the elementwise operators that read it: f(Concat(a, b)) = Concat(f(a), f(b)).
// Every operand of the new Concat is then computed, and can be computed in its place. This is what makes
// rotate_half, Concat(-x2, x1) * sin, and cos(Concat(f, f)) free of copies without knowing them.
#include <algorithm>
#include <map>
#include <set>

#include "passes/context/builder.h"
#include "passes/context/pass_context.h"
#include "passes/host/infer.h"
#include "passes/move/passes.h"

namespace situ {
namespace {

// Elements of integers that the host knows, or of a view that keeps their order.
std::optional<std::vector<Dim>> known_integers(const Graph& graph, ValueId v) {
  for (int views = 0; v != kNoValue && views < 4; ++views) {
    const Value& value = graph.values[v];
    if (value.info.type != DType::kI64) return std::nullopt;
    if (value.constant.present() && value.constant.count() <= kMaxContent) {
      std::vector<Dim> elements;
      for (const int64_t x : value.constant.to_i64()) elements.push_back(Dim(x));
      return elements;
    }
    if (value.info.content) return value.info.content;
    const Node* n = graph.producer(v);
    if (!n || !(n->is("Unsqueeze") || n->is("Squeeze") || n->is("Reshape") || n->is("Identity"))) return std::nullopt;
    v = n->in[0];
  }
  return std::nullopt;
}

// Concat([1, a], [1, b]) of integers that the host knows -> Reshape(all of them, [1, a + b]): the host writes them.
Status join_integers(PassContext& context) {
  Graph& graph = context.graph;
  std::map<size_t, std::vector<Dim>> joined;  // by node
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    const Node& n = graph.nodes[i];
    if (!n.is("Concat") || graph.values[n.out[0]].info.content || graph.is_output(n.out[0])) continue;
    const Shape& shape = graph.values[n.out[0]].info.shape;
    const int64_t rank = static_cast<int64_t>(shape.size()),
                  axis = n.attr_int("axis", 0) + (n.attr_int("axis", 0) < 0 ? rank : 0);
    bool all = shape_is_const(shape) && shape_count(shape).value() <= kMaxContent &&
               std::all_of(shape.begin(), shape.begin() + axis, [](const Dim& d) { return d == Dim(1); });
    std::vector<Dim> elements;
    for (size_t o = 0; all && o < n.in.size(); ++o) {
      const auto part = known_integers(graph, n.in[o]);
      all = part && shape_count(graph.values[n.in[o]].info.shape) == Dim(static_cast<int64_t>(part->size()));
      if (all) elements.insert(elements.end(), part->begin(), part->end());
    }
    if (all) joined[i] = std::move(elements);
  }
  if (joined.empty()) return Status::ok();
  Builder builder(graph);
  std::vector<Node> nodes = std::exchange(graph.nodes, {});
  for (size_t i = 0; i < nodes.size(); ++i) {
    if (const auto at = joined.find(i); at != joined.end()) {
      builder.start(nodes[i]);
      const ValueId out = nodes[i].out[0];
      builder.reshape(graph.add_shape(nodes[i].name + "/integers", at->second),
                      shape_values(graph.values[out].info.shape), out);
    } else {
      builder.keep(std::move(nodes[i]));
    }
  }
  SITU_RETURN_IF_ERROR(builder.finish());
  graph.remove_dead_nodes();
  return infer_shapes(context);
}

class Distributor {
 public:
  explicit Distributor(PassContext& context) : context_(context), graph_(context.graph), users_(graph_.users()) {}

  // Moves Concats below their users; false when there are none left to move.
  Result<bool> step() {
    std::map<int, int> concat_of;  // by the nodes that read one alone
    std::set<int> chosen;
    for (size_t n = 0; n < graph_.nodes.size(); ++n) {
      const int index = static_cast<int>(n);
      if (!wanted(graph_.nodes[n])) continue;
      const auto& readers = users_[graph_.nodes[n].out[0]];
      if (std::any_of(readers.begin(), readers.end(), [&](const auto& r) { return concat_of.count(r.first) != 0; }))
        continue;
      chosen.insert(index);
      for (const auto& [u, operand] : readers) concat_of[u] = index;
    }
    if (chosen.empty()) return false;
    SITU_RETURN_IF_ERROR(distribute(chosen, concat_of));
    return true;
  }

 private:
  const Shape& shape(ValueId v) const { return graph_.values[v].info.shape; }
  bool is_state(ValueId v) const {
    return std::any_of(context_.binding.states.begin(), context_.binding.states.end(),
                       [&](const StatePair& s) { return s.present == v; });
  }

  // Computed by a node for this Concat alone: the planner can place it.
  bool placeable(ValueId v, int concat) const {
    while (true) {
      const int p = graph_.values[v].producer;
      if (p < 0 || graph_.values[v].info.content || users_[v].size() != 1) return false;
      (void)concat;
      const Node& n = graph_.nodes[p];
      if (!n.def || n.def->placement != Placement::kView) return n.def != nullptr;
      if (n.op == "Slice" || n.op == "Split" || n.op == "Expand") return false;
      v = n.in[0];
    }
  }

  int axis_of(const Node& concat) const {
    const int64_t a = concat.attr_int("axis", 0);
    return static_cast<int>(a < 0 ? a + static_cast<int64_t>(shape(concat.out[0]).size()) : a);
  }

  bool wanted(const Node& concat) const {
    if (!concat.is("Concat") || graph_.is_output(concat.out[0]) || is_state(concat.out[0]) ||
        graph_.values[concat.out[0]].info.content)
      return false;
    const int index = graph_.values[concat.out[0]].producer;
    std::vector<ValueId> parts = concat.in;
    std::sort(parts.begin(), parts.end());
    const bool twice = std::adjacent_find(parts.begin(), parts.end()) != parts.end();
    const bool all_placeable =
        std::all_of(concat.in.begin(), concat.in.end(), [&](ValueId v) { return placeable(v, index); });
    if (users_[concat.out[0]].empty() || (all_placeable && !twice)) return false;
    const size_t rank = shape(concat.out[0]).size();
    for (const auto& [u, operand] : users_[concat.out[0]]) {
      const Node& n = graph_.nodes[u];
      if (n.is("Transpose") && !n.attr_ints("perm").empty() && !graph_.is_output(n.out[0]) && !is_state(n.out[0]))
        continue;
      const bool plain = operand >= 0 && n.def &&
                         (n.def->placement == Placement::kElementwise || n.is("Cast") || n.is("Pow")) &&
                         n.out.size() == 1;
      if (!plain || graph_.is_output(n.out[0]) || is_state(n.out[0]) || !(shape(n.out[0]) == shape(concat.out[0])) ||
          n.is("Rotary", "situ"))
        return false;
      for (ValueId v : n.in)
        if (v != kNoValue && v != concat.out[0] && shape(v).size() > rank) return false;
    }
    return true;
  }

  Status distribute(const std::set<int>& concats, const std::map<int, int>& concat_of) {
    Builder builder(graph_);
    std::vector<Node> nodes = std::exchange(graph_.nodes, {});
    for (size_t n = 0; n < nodes.size(); ++n) {
      const auto read = concat_of.find(static_cast<int>(n));
      if (read == concat_of.end()) {
        if (!concats.count(static_cast<int>(n))) builder.keep(std::move(nodes[n]));
        continue;
      }
      const Node user = nodes[n], &concat = nodes[static_cast<size_t>(read->second)];
      const int axis = axis_of(concat);
      const size_t rank = shape(concat.out[0]).size();
      builder.start(user);
      if (user.is("Transpose")) {
        transpose_parts(builder, user, concat, axis);
        continue;
      }
      std::vector<ValueId> results;
      Dim begin = 0;
      for (size_t p = 0; p < concat.in.size(); ++p) {
        const Dim extent = shape(concat.in[p])[static_cast<size_t>(axis)];
        std::vector<ValueId> operands;
        for (ValueId v : user.in)
          operands.push_back(v == concat.out[0] ? concat.in[p] : part_of(builder, v, axis, rank, begin, extent));
        results.push_back(builder.again(user, operands));
        // A class token in front of patches, plus its position: the sum is computed in its place.
        builder.last().computed_in_place = graph_.values[concat.in[p]].constant.present();
        begin = begin + extent;
      }
      builder.op("Concat", results, user.out[0]);
      builder.last().set_int("axis", axis);
    }
    return builder.finish();
  }

  // Transpose(Concat(a, b)) = Concat(Transpose(a), Transpose(b)) along where the axis went.
  void transpose_parts(Builder& builder, const Node& user, const Node& concat, int axis) {
    const std::vector<int64_t> perm = user.attr_ints("perm");
    std::vector<ValueId> parts;
    for (ValueId v : concat.in) parts.push_back(builder.transpose(v, perm));
    builder.op("Concat", parts, user.out[0]);
    for (size_t i = 0; i < perm.size(); ++i)
      if (perm[i] == axis) builder.last().set_int("axis", static_cast<int64_t>(i));
  }

  // The slice of another operand that goes with one part; whole where it is broadcast along the axis.
  ValueId part_of(Builder& builder, ValueId v, int axis, size_t rank, const Dim& begin, const Dim& extent) {
    if (v == kNoValue) return v;
    const int own = axis - static_cast<int>(rank - shape(v).size());
    if (own < 0 || shape(v)[static_cast<size_t>(own)] == Dim(1)) return v;
    const ValueId from = dim_value(begin), to = dim_value(begin + extent), axes = builder.constant_i64({own});
    return builder.op("Slice", {v, from, to, axes});
  }
  ValueId dim_value(const Dim& d) {
    const ValueId v = graph_.add_value("bound", DType::kI64);
    graph_.values[v].info = {DType::kI64, true, {Dim(1)}, std::vector<Dim>{d}};
    if (d.is_const()) graph_.values[v].constant = Tensor::vector_i64({d.value()});
    return v;
  }

  PassContext& context_;
  Graph& graph_;
  std::vector<std::vector<std::pair<int, int>>> users_;
};

}  // namespace

Status distribute_concat(PassContext& context) {
  SITU_RETURN_IF_ERROR(join_integers(context));
  // Each step moves Concats towards the outputs, all that share no reader at once; real graphs need a handful of steps.
  const size_t most = 16 * context.graph.nodes.size() + 16;
  for (size_t i = 0; i < most; ++i) {
    Result<bool> moved = Distributor(context).step();
    if (!moved.is_ok()) return moved.status();
    if (!*moved) return Status::ok();
    SITU_RETURN_IF_ERROR(infer_shapes(context));
  }
  return Status::ok();
}

}  // namespace situ
