// A graph in one float type with inputs and outputs in another (half inside, float outside: what converters call
// "keep_io_types") casts the whole past on its way in and the whole present on its way out. The wider type holds
// every value of the narrower one, so a row is the same before and after: the state is kept in the narrower of
// the two and the casts go.
#include "passes/builder.h"
#include "passes/pass.h"

namespace situ {
namespace {

// The Concat that `present` is made by, through casts.
int concat_of(const Graph& graph, ValueId present) {
  ValueId v = present;
  while (graph.values[v].producer >= 0) {
    const Node& n = graph.nodes[graph.values[v].producer];
    if (n.is("Concat")) return graph.values[v].producer;
    if (!n.is("Cast") && !n.is("Identity")) return -1;
    v = n.in[0];
  }
  return -1;
}

class Narrower {
 public:
  explicit Narrower(PassContext& context) : context_(context), graph_(context.graph), builder_(graph_) {}

  Status run() {
    for (StatePair& s : context_.binding.states) {
      if (s.rule != StateRule::kAppend) continue;
      const int concat = concat_of(graph_, s.present);
      if (concat < 0) continue;
      const Node& n = graph_.nodes[concat];
      if (n.in[0] != s.past || n.out[0] != s.present) concats_[concat] = &s;
    }
    if (concats_.empty()) return Status::ok();
    std::vector<Node> nodes = std::move(graph_.nodes);
    graph_.nodes.clear();
    for (const auto& [index, state] : concats_) retype_past(nodes[index], *state);
    for (size_t i = 0; i < nodes.size(); ++i) {
      const auto it = concats_.find(static_cast<int>(i));
      if (it == concats_.end()) keep(std::move(nodes[i]));
      else append(std::move(nodes[i]), *it->second);
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

  void retype_past(const Node& concat, const StatePair& s) {
    const DType narrow = narrower(concat, s);
    if (narrow == type(s.past)) return;
    was_[s.past] = type(s.past);
    graph_.values[s.past].info.type = narrow;
  }

  ValueId cast(ValueId x, DType to, ValueId result = kNoValue) {
    const ValueId y = builder_.op("Cast", {x}, result);
    builder_.last().set_int("to", static_cast<int64_t>(to));
    graph_.values[y].info = graph_.values[x].info;
    graph_.values[y].info.type = to;
    return y;
  }

  // A user of a past that is narrower now: casts read it as it is, others through a cast back.
  void keep(Node n) {
    for (ValueId& v : n.in) {
      const auto it = was_.find(v);
      if (it == was_.end() || n.is("Cast") || n.is("Shape")) continue;
      builder_.start(n);
      v = cast(v, it->second);
    }
    builder_.keep(std::move(n));
  }

  // present = Concat(past, new rows), all in the state's type; readers of the wider one get a cast of it.
  void append(Node concat, StatePair& s) {
    const DType narrow = type(s.past), wide = type(concat.out[0]);
    builder_.start(concat);
    concat.in[0] = s.past;
    for (size_t i = 1; i < concat.in.size(); ++i)
      if (type(concat.in[i]) != narrow) concat.in[i] = cast(concat.in[i], narrow);
    const ValueId before = concat.out[0], present = narrow == wide ? before : graph_.add_value(graph_.values[s.present].name, narrow);
    graph_.values[present].info = graph_.values[before].info;
    graph_.values[present].info.type = narrow;
    concat.out[0] = present;
    builder_.keep(std::move(concat));
    if (present != before) cast(present, wide, before);
    for (ValueId& out : graph_.outputs)
      if (out == s.present) out = present;
    s.present = present;
  }

  PassContext& context_;
  Graph& graph_;
  Builder builder_;
  std::map<int, StatePair*> concats_;
  std::map<ValueId, DType> was_;
};

}  // namespace

Status narrow_states(PassContext& context) { return Narrower(context).run(); }

}  // namespace situ
