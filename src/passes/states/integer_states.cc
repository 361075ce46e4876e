// States of integers that QuantizeLinear fills and DequantizeLinear reads, in the form in which recognise_attention
// reads them where they lie. What is made floats apart from the new rows becomes floats as a whole:
//   Concat(DequantizeLinear(past), DequantizeLinear(x))  ->  DequantizeLinear(present)     present = Concat(past, x)
// and a state of uint8 becomes one of int8: all integers and their zero point are 128 less.
#include "ops/op.h"
#include "passes/context/pass_context.h"
#include "passes/states/passes.h"

namespace situ {
namespace {

class DequantizeJoiner {
 public:
  explicit DequantizeJoiner(Graph* graph) : graph_(*graph), users_(graph_.users()) {}

  Status run(const std::vector<StatePair>& states) {
    bool any = false;
    for (const StatePair& s : states)
      if (s.rule == StateRule::kAppend && s.past != kNoValue && s.present != kNoValue) any = join(s) || any;
    if (!any) return Status::ok();
    graph_.rebuild_links();
    SITU_RETURN_IF_ERROR(resolve_ops(graph_));
    graph_.remove_dead_nodes();
    return graph_.sort();
  }

 private:
  const Node* producer(ValueId v) const { return v == kNoValue ? nullptr : graph_.producer(v); }
  bool equal(const Node& a, const Node& b, size_t operand) const {
    if (a.has_input(operand) != b.has_input(operand)) return false;
    if (!a.has_input(operand) || a.in[operand] == b.in[operand]) return true;
    const Tensor &x = graph_.values[a.in[operand]].constant, &y = graph_.values[b.in[operand]].constant;
    return x.present() && y.present() && x.type() == y.type() && x.dims() == y.dims() && x.to_f64() == y.to_f64();
  }

  bool join(const StatePair& s) {
    const Node* concat = producer(s.present);
    if (!concat || !concat->is("Concat") || concat->in.size() != 2 || concat->in[0] != s.past) return false;
    const ValueId added = concat->in[1];
    const auto rank = static_cast<int64_t>(graph_.values[s.past].info.shape.size());
    const auto axis_of = [&](const Node& n, int64_t fallback) {
      const int64_t axis = n.attr_int("axis", fallback);
      return axis < 0 ? axis + rank : axis;
    };
    bool any = false;
    for (const auto& [u, operand] : users_[s.past]) {
      if (u < 0 || !graph_.nodes[static_cast<size_t>(u)].is("DequantizeLinear") || operand != 0) continue;
      const Node past = graph_.nodes[static_cast<size_t>(u)];
      for (const auto& [c, at] : users_[past.out[0]]) {
        if (c < 0) continue;
        Node& both = graph_.nodes[static_cast<size_t>(c)];
        const Node* of_new = both.is("Concat") && both.in.size() == 2 && at == 0 ? producer(both.in[1]) : nullptr;
        if (!of_new || !of_new->is("DequantizeLinear") || of_new->in[0] != added || !equal(past, *of_new, 1) ||
            !equal(past, *of_new, 2) || axis_of(both, 0) != axis_of(*concat, 0) ||
            axis_of(past, 1) != axis_of(*of_new, 1) || past.attr_int("block_size", 0) != 0 ||
            of_new->attr_int("block_size", 0) != 0)
          continue;
        const std::vector<ValueId> out = both.out;
        const std::string name = both.name;
        both = past;
        both.in[0] = s.present;
        both.out = out;
        both.name = name;
        any = true;
      }
    }
    return any;
  }

  Graph& graph_;
  std::vector<std::vector<std::pair<int, int>>> users_;
};

class StateSigner {
 public:
  explicit StateSigner(Graph* graph) : graph_(*graph), users_(graph_.users()) {}

  void run(const std::vector<StatePair>& states) {
    for (const StatePair& s : states) {
      values_.clear();
      nodes_.clear();
      if (s.rule == StateRule::kAppend && s.past != kNoValue && s.present != kNoValue && fits(s)) sign();
    }
  }

 private:
  bool zero_is_known(const Node& n) const {
    return graph_.values[n.in[1]].constant.present() && (!n.has_input(2) || graph_.values[n.in[2]].constant.present());
  }

  // present = Concat(past, QuantizeLinear(x)), read by DequantizeLinear through views alone.
  bool fits(const StatePair& s) {
    const int p = graph_.values[s.present].producer;
    if (graph_.values[s.past].info.type != DType::kU8 || graph_.is_output(s.past) || p < 0) return false;
    const Node& concat = graph_.nodes[static_cast<size_t>(p)];
    if (!concat.is("Concat") || concat.in.size() != 2 || concat.in[0] != s.past) return false;
    values_ = {s.past};
    int made = -1;
    for (ValueId v = concat.in[1];; v = graph_.nodes[static_cast<size_t>(made)].in[0]) {
      made = graph_.values[v].producer;
      if (made < 0 || users_[v].size() != 1) return false;
      values_.push_back(v);
      const Node& n = graph_.nodes[static_cast<size_t>(made)];
      if (n.is("QuantizeLinear")) break;
      if (!n.def || n.def->placement != Placement::kView || n.out.size() != 1) return false;
    }
    if (!zero_is_known(graph_.nodes[static_cast<size_t>(made)])) return false;
    for (const auto& [u, operand] : users_[s.past])
      if (u != p && !(u >= 0 && graph_.nodes[static_cast<size_t>(u)].is("Shape"))) return false;
    nodes_ = {made};
    return dequantised(s.present, s.present);
  }
  bool dequantised(ValueId v, ValueId present) {
    values_.push_back(v);
    if (v != present && graph_.is_output(v)) return false;
    for (const auto& [u, operand] : users_[v]) {
      if (u < 0) continue;  // the graph's output
      const Node& n = graph_.nodes[static_cast<size_t>(u)];
      if (n.is("Shape")) continue;
      if (n.is("DequantizeLinear") && operand == 0 && zero_is_known(n))
        nodes_.push_back(u);
      else if (!n.def || n.def->placement != Placement::kView || operand != 0 || n.out.size() != 1 ||
               !dequantised(n.out[0], present))
        return false;
    }
    return true;
  }

  void sign() {
    for (const ValueId v : values_) graph_.values[v].info.type = DType::kI8;
    for (const int i : nodes_) {
      Node& n = graph_.nodes[static_cast<size_t>(i)];
      const Tensor scale = graph_.values[n.in[1]].constant;
      std::vector<int64_t> zeros(static_cast<size_t>(scale.count()));  // 0: where there are none
      if (n.has_input(2)) zeros = graph_.values[n.in[2]].constant.to_i64();
      Tensor zero = Tensor::allocate(DType::kI8, scale.dims());
      for (size_t z = 0; z < zeros.size(); ++z) zero.view().as<int8_t>()[z] = static_cast<int8_t>(zeros[z] - 128);
      n.in.resize(3, kNoValue);
      n.in[2] = graph_.add_constant(n.name + "/signed zero", zero);
      n.attrs.erase("output_dtype");
    }
  }

  Graph& graph_;
  std::vector<std::vector<std::pair<int, int>>> users_;
  std::vector<ValueId> values_;
  std::vector<int> nodes_;
};

}  // namespace

Status integer_states(PassContext& context) {
  SITU_RETURN_IF_ERROR(DequantizeJoiner(&context.graph).run(context.binding.states));
  StateSigner(&context.graph).run(context.binding.states);
  return Status::ok();
}

}  // namespace situ
