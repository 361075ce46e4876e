// Rows of a cache that every step takes through products again, as the latent ones of multi-head latent attention, are
// cached as the products give them:
//   y = f(Concat(past, x))  ->  y = Concat(past', f(x))
// where f takes each token's rows for themselves. All that reads the states of a layer, and as many values as it has
// states, which take their places.
#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "ops/op.h"
#include "passes/context/builder.h"
#include "passes/context/part.h"
#include "passes/host/probe.h"
#include "passes/states/passes.h"

namespace situ {
namespace {

// A value with a row for each token, on `axis`, of the rows of these states.
struct Rows {
  size_t axis = 0;
  std::set<size_t> states;
  bool product = false;  // of some of them
};

// Values that are to be cached instead of states that nothing else reads.
struct Layer {
  std::set<size_t> states;
  std::set<ValueId> values;
};

class Deriver {
 public:
  explicit Deriver(PassContext& context)
      : context_(context),
        graph_(context.graph),
        prober_(graph_, context.binding, context.evaluator),
        users_(graph_.users()) {}

  Status run() {
    find_rows();
    std::vector<Layer> layers;
    std::set<size_t> taken;  // states that products are made of
    for (const ValueId v : read_)
      if (rows_.at(v).product) taken.insert(rows_.at(v).states.begin(), rows_.at(v).states.end());
    for (const ValueId v : read_) {
      if (std::none_of(rows_.at(v).states.begin(), rows_.at(v).states.end(), [&](size_t s) { return taken.count(s); }))
        continue;
      const ValueId y = stored(v);
      Layer layer{rows_.at(y).states, {y}};
      std::erase_if(layers, [&](const Layer& other) {
        if (std::none_of(other.states.begin(), other.states.end(), [&](size_t i) { return layer.states.count(i); }))
          return false;
        layer.states.insert(other.states.begin(), other.states.end());
        layer.values.insert(other.values.begin(), other.values.end());
        return true;
      });
      layers.push_back(std::move(layer));
    }
    std::erase_if(layers, [&](const Layer& layer) { return !serves(layer); });
    if (layers.empty()) return Status::ok();
    std::map<size_t, size_t> at;  // by node: the layer whose last state it appends to
    for (size_t l = 0; l < layers.size(); ++l) {
      size_t last = 0;
      for (const size_t s : layers[l].states) last = std::max(last, producer(state(s).present));
      at[last] = l;
    }
    nodes_ = graph_.nodes;
    Builder builder(graph_);
    std::vector<std::pair<ValueId, ValueId>> replaced;
    for (size_t i = 0; i < nodes_.size(); ++i) {
      builder.keep(nodes_[i]);
      if (const auto layer = at.find(i); layer != at.end()) {
        builder.start(nodes_[i]);
        derive(builder, layers[layer->second], &replaced);
      }
    }
    SITU_RETURN_IF_ERROR(builder.finish());
    for (const auto& [from, to] : replaced) graph_.replace_uses(from, to);
    graph_.remove_dead_nodes();
    return graph_.sort();
  }

 private:
  StatePair& state(size_t s) { return context_.binding.states[s]; }
  const ValueInfo& info(ValueId v) const { return graph_.values[static_cast<size_t>(v)].info; }
  const Shape& shape(ValueId v) const { return info(v).shape; }
  size_t producer(ValueId v) const { return static_cast<size_t>(graph_.values[static_cast<size_t>(v)].producer); }

  // What is made of the rows of states, and which of it something else reads.
  void find_rows() {
    for (size_t s = 0; s < context_.binding.states.size(); ++s) {
      const StatePair& pair = state(s);
      if (pair.rule != StateRule::kAppend || pair.past == kNoValue || pair.present == kNoValue) continue;
      const Node* const append = graph_.producer(pair.present);
      if (append && append->is("Concat") && append->in.size() == 2 && append->in[0] == pair.past &&
          users_[static_cast<size_t>(pair.past)].size() == 1)
        rows_[pair.present] = {static_cast<size_t>(pair.axis), {s}, false};
    }
    for (const Node& n : graph_.nodes) {
      if (std::none_of(n.in.begin(), n.in.end(), [&](ValueId v) { return rows_.count(v) != 0; })) continue;
      bool by_row = true;
      for (size_t o = 0; o < n.out.size() && by_row; ++o) {
        std::optional<Rows> made = n.has_output(o) ? rows_of(n, o) : std::nullopt;
        by_row = made.has_value();
        if (by_row) rows_[n.out[o]] = *made;
      }
      if (by_row) continue;
      for (const ValueId v : n.out) rows_.erase(v);
      for (const ValueId v : n.in)
        if (rows_.count(v)) read_.insert(v);
    }
  }

  // What output `o` has of rows, if the node takes each for itself: for every length of them, as it is told by the
  // operator and the axes alone.
  std::optional<Rows> rows_of(const Node& n, size_t o) const {
    Rows made;
    const Shape& out = shape(n.out[o]);
    const ValueId source = n.in[0];
    std::optional<size_t> from_end;  // of the axis, in the operands
    for (const ValueId v : n.in) {
      const auto rows = rows_.find(v);
      if (v == kNoValue || rows == rows_.end()) continue;
      const size_t behind = shape(v).size() - rows->second.axis;
      if (from_end && *from_end != behind) return std::nullopt;
      from_end = behind;
      made.states.insert(rows->second.states.begin(), rows->second.states.end());
      made.product = made.product || rows->second.product;
    }
    const size_t axis = out.size() - *from_end;  // where the axes of operands are aligned at their ends
    const auto others_fixed = [&](size_t of_axis) {
      return std::all_of(n.in.begin(), n.in.end(), [&](ValueId v) {
        if (v == kNoValue || rows_.count(v)) return true;
        const Shape& s = shape(v);
        return prober_.fixed(v) && (s.size() < of_axis || s[s.size() - of_axis] == Dim(1));
      });
    };
    made.axis = axis;
    const bool first = rows_.count(source) != 0, plain = n.domain.empty() && n.def != nullptr;
    const Dim length = first ? shape(source)[shape(source).size() - *from_end] : Dim(0);
    if (plain && (n.def->placement == Placement::kElementwise || n.is("Cast"))) {
      if (*from_end > out.size() || !others_fixed(*from_end)) return std::nullopt;
    } else if (n.is("MatMul")) {
      // Of x W: the rows of x; the matrices of W are the same for all.
      if (!first || *from_end < 2 || n.in.size() != 2 || rows_.count(n.in[1]) || !prober_.fixed(n.in[1]) ||
          shape(n.in[1]).size() < 2 || (*from_end > 2 && shape(n.in[1]).size() >= *from_end))
        return std::nullopt;
      made.product = true;
    } else if (n.is("Transpose")) {
      const std::vector<int64_t> perm = n.permutation(out.size());
      const size_t before = shape(source).size() - *from_end;
      made.axis = static_cast<size_t>(std::find(perm.begin(), perm.end(), static_cast<int64_t>(before)) - perm.begin());
    } else if (n.is("Reshape") || n.is("Unsqueeze") || n.is("Squeeze")) {
      const std::optional<size_t> kept = kept_axis(shape(source), shape(source).size() - *from_end, out);
      if (!first || !kept) return std::nullopt;
      made.axis = *kept;
    } else if (n.is("Expand")) {
      if (!first || *from_end > out.size()) return std::nullopt;
    } else if (n.is("Split") || n.is("Slice")) {
      const std::optional<AxisPart> part = part_of(graph_, n, o);
      if (!first || !part || part->axis == axis) return std::nullopt;
    } else if (n.is("RMSNormalization") || n.is("LayerNormalization")) {
      const int64_t over = n.attr_int("axis", -1);
      if (!first || axis + 1 >= out.size() || (over != -1 && over + 1 != static_cast<int64_t>(out.size())) ||
          n.out.size() != 1 || !others_fixed(*from_end))
        return std::nullopt;
    } else if (n.is("Concat")) {
      const int64_t joined = n.attr_int("axis", 0), rank = static_cast<int64_t>(out.size());
      if (static_cast<size_t>(joined < 0 ? joined + rank : joined) == axis ||
          !std::all_of(n.in.begin(), n.in.end(), [&](ValueId v) { return rows_.count(v) != 0; }))
        return std::nullopt;
    } else {
      return std::nullopt;
    }
    if (first && (made.axis >= out.size() || !(out[made.axis] == length))) return std::nullopt;
    return made;
  }

  // The axis of a Reshape's result that is `axis` of its operand: with as many places and as many numbers before it.
  static std::optional<size_t> kept_axis(const Shape& from, size_t axis, const Shape& to) {
    const auto count = [](const Shape& dims, size_t end) -> std::optional<int64_t> {
      int64_t n = 1;
      for (size_t i = 0; i < end; ++i)
        if (!dims[i].is_const())
          return std::nullopt;
        else
          n *= dims[i].value();
      return n;
    };
    for (size_t a = 0; a < to.size(); ++a)
      if (to[a] == from[axis] && count(from, axis) && count(from, axis) == count(to, a)) return a;
    return std::nullopt;
  }

  // What is cached where `v` is read: without what costs nothing to do again (views and scales), as heads of rows where
  // there are such.
  ValueId stored(ValueId v) const {
    const auto heads = [&](ValueId x) {
      return shape(x).size() == 4 && shape(x)[0] == Dim(1) && rows_.at(x).axis == 2;
    };
    static const std::set<std::string> kFree{"Transpose", "Reshape", "Unsqueeze", "Squeeze", "Mul"};
    ValueId best = v;
    while (users_[static_cast<size_t>(v)].size() == 1 || v == best) {
      const Node* const n = graph_.producer(v);
      if (!n || n->out.size() != 1 || kFree.count(n->op) == 0) break;
      const auto x = std::find_if(n->in.begin(), n->in.end(), [&](ValueId i) { return rows_.count(i) != 0; });
      if (!rows_.at(*x).product) break;
      v = *x;
      if (heads(v) || !heads(best)) best = v;
    }
    return best;
  }

  bool serves(const Layer& layer) const {
    const auto& [states, values] = layer;
    return states.size() == values.size() &&
           std::any_of(values.begin(), values.end(), [&](ValueId v) { return rows_.at(v).product; }) &&
           std::all_of(states.begin(), states.end(),
                       [&](size_t s) { return info(context_.binding.states[s].past).type == DType::kF32; }) &&
           std::all_of(values.begin(), values.end(), [&](ValueId v) {
             const Shape& s = shape(v);
             return !graph_.is_output(v) && info(v).type == DType::kF32 && s.size() > 1 && s[0] == Dim(1) &&
                    rows_.at(v).axis > 0 &&
                    std::count_if(s.begin(), s.end(), [](const Dim& d) { return !d.is_const(); }) == 1;
           });
  }

  void derive(Builder& builder, const Layer& layer, std::vector<std::pair<ValueId, ValueId>>* replaced) {
    const auto& [states, values] = layer;
    std::map<ValueId, ValueId> of_new;  // what rows of the step alone become
    std::set<size_t> needed;            // nodes
    for (const size_t s : states) of_new[state(s).present] = graph_.producer(state(s).present)->in[1];
    std::vector<ValueId> open(values.begin(), values.end());
    while (!open.empty()) {
      const ValueId v = open.back();
      open.pop_back();
      if (!rows_.count(v) || of_new.count(v) || !needed.insert(producer(v)).second) continue;
      const Node& n = nodes_[producer(v)];
      open.insert(open.end(), n.in.begin(), n.in.end());
    }
    const StatePair& any = state(*states.begin());
    const Dim tokens = shape(of_new.at(any.present))[static_cast<size_t>(any.axis)],
              past = shape(any.past)[static_cast<size_t>(any.axis)];
    const auto resized = [&](ValueId v, const Dim& length) {
      ValueInfo info = graph_.values[static_cast<size_t>(v)].info;
      info.shape[rows_.at(v).axis] = length;
      info.content.reset();
      return info;
    };
    for (const size_t i : needed) {
      Node n = nodes_[i];
      n.name += "/rows";
      for (ValueId& v : n.in)
        if (const auto made = of_new.find(v); made != of_new.end()) v = made->second;
      for (ValueId& v : n.out) {
        if (v == kNoValue) continue;
        const ValueId made = graph_.add_value(graph_.values[static_cast<size_t>(v)].name + "/rows", DType::kF32);
        graph_.values[static_cast<size_t>(made)].info = resized(v, tokens);
        of_new[v] = made;
        v = made;
      }
      if (n.is("Reshape") || n.is("Expand")) n.in[1] = graph_.add_shape(n.name + "/dims", shape(n.out[0]));
      builder.keep(std::move(n));
    }
    auto s = states.begin();
    for (const ValueId y : values) {
      StatePair& pair = state(*s++);
      graph_.values[static_cast<size_t>(pair.past)].info = resized(y, past);
      pair.axis = static_cast<int>(rows_.at(y).axis);
      const ValueId present = builder.op("Concat", {pair.past, of_new.at(y)});
      builder.last().set_int("axis", pair.axis);
      graph_.values[static_cast<size_t>(present)].info = graph_.values[static_cast<size_t>(y)].info;
      std::replace(graph_.outputs.begin(), graph_.outputs.end(), pair.present, present);
      pair.present = present;
      replaced->emplace_back(y, present);
      context_.note("derived state", graph_.values[static_cast<size_t>(y)].name,
                    shape_str(shape(y), &graph_.symbol_names()) + " is cached");
    }
  }

  PassContext& context_;
  Graph& graph_;
  Prober prober_;
  const std::vector<std::vector<std::pair<int, int>>> users_;
  std::map<ValueId, Rows> rows_;
  std::set<ValueId> read_;
  std::vector<Node> nodes_;  // before the pass
};

}  // namespace

Status derive_states(PassContext& context) { return Deriver(context).run(); }

}  // namespace situ
