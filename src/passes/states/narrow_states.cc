// States as the Concat that grows them has them, not as the graph's interface has them. A graph in one float type with
// inputs and outputs in another (half inside, float outside: what converters call "keep_io_types") casts the whole past
// on its way in and the whole present on its way out; one with caches in another layout transposes both. The wider type
// holds every value of the narrower one, so a row is the same before and after: the state is kept in the narrower of
// the two, in the layout inside, and the casts and transposes go.
#include <optional>

#include "passes/context/builder.h"
#include "passes/context/pass_context.h"
#include "passes/host/equal_operand.h"
#include "passes/states/passes.h"

namespace situ {
namespace {

// The Concat that `present` is made by, through casts.
int concat_of(const Graph& graph, ValueId present) {
  ValueId v = present;
  while (graph.values[v].producer >= 0) {
    const Node& n = graph.nodes[graph.values[v].producer];
    if (n.is("Concat")) return graph.values[v].producer;
    if (!n.is("Cast") && !n.is("Identity") && !n.is("Transpose")) return -1;
    v = n.in[0];
  }
  return -1;
}

class Narrower {
 public:
  explicit Narrower(PassContext& context) : context_(context), graph_(context.graph), builder_(graph_) {}

  Status run() {
    for (StatePair& s : context_.binding.states) {
      if (s.rule != StateRule::kAppend || s.past == kNoValue) continue;
      const int concat = concat_of(graph_, s.present);
      if (concat < 0) continue;
      const Node& n = graph_.nodes[concat];
      if (n.in[0] == s.past && n.out[0] == s.present) continue;
      const std::optional<std::vector<int64_t>> inward = axes_inside(n.in[0], s.past);
      if (!inward) continue;
      concats_[concat] = &s;
      inward_[concat] = *inward;
    }
    if (concats_.empty()) return Status::ok();
    nodes_ = std::exchange(graph_.nodes, {});
    for (const auto& [index, state] : concats_) retype_past(nodes_[index], *state, inward_[index]);
    for (size_t i = 0; i < nodes_.size(); ++i) {
      const auto it = concats_.find(static_cast<int>(i));
      if (it == concats_.end())
        keep(nodes_[i]);
      else
        append(nodes_[i], *it->second);
    }
    SITU_RETURN_IF_ERROR(builder_.finish());
    graph_.remove_dead_nodes();
    return Status::ok();
  }

 private:
  DType type(ValueId v) const { return graph_.values[v].info.type; }

  // The state's type: that of the graph's interface or that of the Concat.
  DType narrower(const Node& concat, const StatePair& s) const {
    const DType outside = type(s.past), inside = type(concat.out[0]);
    return dtype_bytes(inside) < dtype_bytes(outside) ? inside : outside;
  }

  // The past as the interface had it.
  struct Outside {
    DType type;
    std::vector<int64_t> perm;  // from the layout inside; empty: the same
  };

  // The axis of the past that each axis of `v` is, through casts, transposes and what changes nothing; empty: as it is.
  std::optional<std::vector<int64_t>> axes_inside(ValueId v, ValueId past) const {
    std::vector<int64_t> inward;
    while (v != past) {
      const Node* n = graph_.producer(v);
      if (!n) return std::nullopt;
      if (const ValueId same = equal_operand(graph_, *n); same != kNoValue) {
        v = same;
        continue;
      }
      if (!n->is("Cast") && !n->is("Transpose")) return std::nullopt;
      v = n->in[0];
      if (n->is("Cast")) continue;
      const std::vector<int64_t> perm = n->permutation(graph_.values[v].info.shape.size());
      if (inward.empty())
        inward = perm;
      else
        for (int64_t& axis : inward) axis = perm[static_cast<size_t>(axis)];
    }
    return inward;
  }

  void retype_past(const Node& concat, StatePair& s, const std::vector<int64_t>& inward) {
    Value& past = graph_.values[s.past];
    Outside outside{past.info.type, {}};
    past.info.type = narrower(concat, s);
    if (!inward.empty()) {
      Shape inside;
      outside.perm.resize(inward.size());
      for (size_t i = 0; i < inward.size(); ++i) {
        inside.push_back(past.info.shape[static_cast<size_t>(inward[i])]);
        outside.perm[static_cast<size_t>(inward[i])] = static_cast<int64_t>(i);
      }
      past.info.shape = inside;
    }
    const int64_t axis = concat.attr_int("axis", 0);
    s.axis = static_cast<int>(axis < 0 ? axis + static_cast<int64_t>(past.info.shape.size()) : axis);
    outside_[s.past] = outside;
  }

  // Users of a past other than its Concat read it as it was.
  void keep(Node n) {
    for (ValueId& v : n.in) {
      const auto it = outside_.find(v);
      if (it == outside_.end()) continue;
      builder_.start(n);
      ValueId x = v;
      if (!it->second.perm.empty()) {
        x = builder_.transpose(x, it->second.perm);
        graph_.values[x].info.type = type(v);
      }
      if (it->second.type != type(v)) x = builder_.cast(x, it->second.type);
      v = x;
    }
    builder_.keep(std::move(n));
  }

  // present = Concat(past, new rows), all in the state's type; readers of the wider one get a cast of it.
  void append(Node concat, StatePair& s) {
    const DType narrow = type(s.past), wide = type(concat.out[0]);
    builder_.start(concat);
    concat.in[0] = s.past;
    for (size_t i = 1; i < concat.in.size(); ++i)
      if (type(concat.in[i]) != narrow) concat.in[i] = builder_.cast(concat.in[i], narrow);
    const ValueId before = concat.out[0],
                  present = narrow == wide ? before : graph_.add_value(graph_.values[s.present].name, narrow);
    graph_.values[present].info = graph_.values[before].info;
    graph_.values[present].info.type = narrow;
    concat.out[0] = present;
    builder_.keep(std::move(concat));
    if (present != before) builder_.cast(present, wide, before);
    for (ValueId& out : graph_.outputs)
      if (out == s.present) out = present;
    s.present = present;
  }

  PassContext& context_;
  Graph& graph_;
  Builder builder_;
  std::map<int, StatePair*> concats_;
  std::map<int, std::vector<int64_t>> inward_;  // by Concat
  std::vector<Node> nodes_;                     // before the pass
  std::map<ValueId, Outside> outside_;
};

}  // namespace

Status narrow_states(PassContext& context) { return Narrower(context).run(); }

}  // namespace situ
