// States that are rounded to integers and back whenever a step hands them on, as static quantisation writes it around
// what graphs append to, are appended rows that are rounded once: what was rounded stays what it is by the same
// numbers.
//   present = DequantizeLinear(QuantizeLinear(Concat(past, x)))
//     ->  present = Concat(past, DequantizeLinear(QuantizeLinear(x)))
#include <algorithm>

#include "passes/context/builder.h"
#include "passes/context/pass_context.h"
#include "passes/states/passes.h"

namespace situ {
namespace {

constexpr double kLeastScale = 1e-30;  // quotients by a smaller one are not what they were multiplied from

class StateRounder {
 public:
  explicit StateRounder(PassContext& context) : context_(context), graph_(context.graph), users_(graph_.users()) {}

  Status run() {
    int count = 0;
    for (const ValueId out : graph_.outputs)
      if (out != context_.binding.logits && round_once(out)) ++count;
    if (count == 0) return Status::ok();
    for (Node& n : added_) graph_.nodes.push_back(std::move(n));
    context_.note("states", "", std::to_string(count) + " whose rows are rounded to integers and back once");
    graph_.rebuild_links();
    SITU_RETURN_IF_ERROR(resolve_ops(graph_));
    SITU_RETURN_IF_ERROR(graph_.sort());
    graph_.remove_dead_nodes();
    return Status::ok();
  }

 private:
  // DequantizeLinear(QuantizeLinear(x)) by one constant scale and zero point.
  struct Rounding {
    const Node *there = nullptr, *back = nullptr;
  };
  std::optional<Rounding> rounding_of(ValueId v) const {
    const Node* back = graph_.producer(v, "DequantizeLinear");
    const Node* there = back ? graph_.producer(back->in[0], "QuantizeLinear") : nullptr;
    if (!there || !same_numbers(*there, *back) || graph_.values[there->in[0]].info.type != DType::kF32 ||
        graph_.values[v].info.type != DType::kF32)
      return std::nullopt;
    const double scale = graph_.values[back->in[1]].constant.to_f64()[0];
    if (!(scale >= kLeastScale)) return std::nullopt;
    return Rounding{there, back};
  }
  bool same_numbers(const Node& a, const Node& b) const {
    for (const size_t i : {1, 2}) {
      if (a.has_input(i) != b.has_input(i)) return false;
      if (!a.has_input(i)) continue;
      const Tensor &x = graph_.values[a.in[i]].constant, &y = graph_.values[b.in[i]].constant;
      if (!x.present() || !y.present() || x.type() != y.type() || x.count() != 1 || y.count() != 1 ||
          x.to_f64() != y.to_f64())
        return false;
    }
    return a.has_input(1);
  }

  bool round_once(ValueId out) {
    const std::optional<Rounding> rounding = rounding_of(out);
    const Node* concat = rounding ? graph_.producer(rounding->there->in[0], "Concat") : nullptr;
    if (!concat || concat->in.size() != 2) return false;
    ValueId past = concat->in[0], rows = concat->in[1];
    if (const auto own = rounding_of(past); own && same_numbers(*own->back, *rounding->back)) past = own->there->in[0];
    const auto role = context_.binding.inputs.find(past);
    if (role == context_.binding.inputs.end() || role->second != InputRole::kState) return false;
    const Node there = *rounding->there, joins = *concat;
    const ValueId digits = there.out[0];
    if (const auto own = rounding_of(rows); !own || !same_numbers(*own->back, there)) rows = rounded(there, rows, out);
    // Others that make floats of all rows read the state.
    for (const auto& [user, operand] : users_[static_cast<size_t>(digits)]) {
      Node& n = graph_.nodes[static_cast<size_t>(user)];
      if (operand != 0 || !n.is("DequantizeLinear") || !same_numbers(n, there)) continue;
      if (n.out[0] != out) {
        if (!graph_.is_output(n.out[0])) graph_.replace_uses(n.out[0], out);
        continue;
      }
      const std::string name = n.name;
      n = joins;
      n.name = name;
      n.in = {past, rows};
      n.out = {out};
    }
    return true;
  }

  ValueId rounded(const Node& there, ValueId x, ValueId state) {
    Node q = there, back = there;
    q.name = graph_.values[state].name + "/rows";
    back.name = q.name + "/rounded";
    q.in[0] = x;
    q.out = {graph_.add_value(q.name, graph_.values[there.out[0]].info.type)};
    back.op = "DequantizeLinear";
    back.attrs.clear();
    back.in[0] = q.out[0];
    back.out = {graph_.add_value(back.name, DType::kF32)};
    added_.push_back(std::move(q));
    added_.push_back(back);
    return back.out[0];
  }

  PassContext& context_;
  Graph& graph_;
  std::vector<std::vector<std::pair<int, int>>> users_;
  std::vector<Node> added_;
};

}  // namespace

Status round_states(PassContext& context) { return context.encoder ? Status::ok() : StateRounder(context).run(); }

}  // namespace situ
