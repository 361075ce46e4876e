// States that are stacked in one tensor, K and V of a layer (past [2, B, H, P, D], as onnxruntime's exporter of GPT-2 writes them) or
// those of all layers, become states of their own:
//   present = Concat(Unsqueeze(x0), Unsqueeze(x1), ..)  ->  outputs x0, x1, ..
//   Gather(past, i)                                     ->  input i
// where each xi appends to part i of the past and to no other. A tensor of several stacks is taken apart from the outside in.
#include <algorithm>

#include "ops/infer.h"
#include "passes/pass.h"

namespace situ {
namespace {

class Unstacker {
 public:
  explicit Unstacker(PassContext& context) : context_(context), graph_(context.graph), users_(graph_.users()) {}

  // Takes one state apart; false: there is none.
  bool step() {
    const std::map<ValueId, InputRole> inputs = context_.binding.inputs;
    for (const auto& [past, role] : inputs)
      for (size_t o = 0; role == InputRole::kState && o < graph_.outputs.size(); ++o)
        if (unstack(past, o)) return true;
    return false;
  }

 private:
  const ValueInfo& info(ValueId v) const { return graph_.values[v].info; }
  std::optional<std::vector<int64_t>> integers(ValueId v) const {
    const Value& value = graph_.values[v];
    return known_i64(&value.info, value.constant.present() ? &value.constant : nullptr);
  }
  static int64_t axis_of(const Node& n, size_t rank) {
    const int64_t axis = n.attr_int("axis", 0);
    return axis < 0 ? axis + static_cast<int64_t>(rank) : axis;
  }

  bool is_known_shape(const Node& n) const { return n.is("Shape") && info(n.out[0]).content.has_value(); }

  // The number of the part of `past` along `axis` that a Gather takes; -1: it takes none, or several.
  int64_t part_of(const Node& n, ValueId past, int64_t axis) const {
    if (!n.is("Gather") || n.in[0] != past || axis_of(n, info(past).shape.size()) != axis || !info(n.in[1]).ranked || !info(n.in[1]).shape.empty()) return -1;
    const std::optional<std::vector<int64_t>> index = integers(n.in[1]);
    const int64_t parts = info(past).shape[static_cast<size_t>(axis)].value();
    if (!index || index->size() != 1 || (*index)[0] < -parts || (*index)[0] >= parts) return -1;
    return (*index)[0] < 0 ? (*index)[0] + parts : (*index)[0];
  }

  // The part of `past` that `v` begins with: back through what appends to it, moves its axes or stacks it. -1: another value.
  int64_t continued_part(ValueId v, ValueId past, int64_t axis) const {
    for (const Node* n = graph_.producer(v); n != nullptr; n = graph_.producer(v)) {
      const int64_t part = part_of(*n, past, axis);
      if (part >= 0) return part;
      const bool passes = n->domain.empty() && (n->op == "Concat" || n->op == "Unsqueeze" || n->op == "Squeeze" || n->op == "Reshape" || n->op == "Transpose" || n->op == "Cast" || n->op == "Identity" || n->op == "Gather");
      if (!passes) return -1;
      v = n->in[0];
    }
    return -1;
  }

  bool unstack(ValueId past, size_t output) {
    const ValueId present = graph_.outputs[output];
    const Node* stack = graph_.producer(present);
    const size_t rank = info(past).shape.size();
    if (stack == nullptr || !stack->is("Concat") || !info(past).ranked || info(present).shape.size() != rank || info(past).type != info(present).type) return false;
    const int64_t axis = axis_of(*stack, rank);
    if (axis < 0 || axis >= static_cast<int64_t>(rank) || info(past).shape[static_cast<size_t>(axis)] != Dim(static_cast<int64_t>(stack->in.size())) || stack->in.size() < 2) return false;
    std::vector<ValueId> grown;
    for (size_t i = 0; i < stack->in.size(); ++i) {
      const Node* unsqueeze = graph_.producer(stack->in[i]);
      if (unsqueeze == nullptr || !unsqueeze->is("Unsqueeze") || info(stack->in[i]).shape.size() != rank || info(stack->in[i]).shape[static_cast<size_t>(axis)] != Dim(1)) return false;
      Shape without = info(stack->in[i]).shape;
      without.erase(without.begin() + axis);
      // Where other dims are 1 too, it is not told by the shapes which of them is new.
      const std::vector<int64_t> axes = unsqueeze->attr("axes") != nullptr ? unsqueeze->attr_ints("axes") : unsqueeze->has_input(1) ? integers(unsqueeze->in[1]).value_or(std::vector<int64_t>{}) : std::vector<int64_t>{};
      if (axes.size() != 1 || (axes[0] < 0 ? axes[0] + static_cast<int64_t>(rank) : axes[0]) != axis || info(unsqueeze->in[0]).shape != without) return false;
      grown.push_back(unsqueeze->in[0]);
      if (continued_part(grown.back(), past, axis) != static_cast<int64_t>(i)) return false;
    }
    for (const auto& [user, operand] : users_[past]) {
      const Node& n = graph_.nodes[static_cast<size_t>(user)];
      if (!is_known_shape(n) && part_of(n, past, axis) < 0) return false;
    }
    if (graph_.is_output(past)) return false;
    replace(past, axis, output, grown);
    return true;
  }

  void replace(ValueId past, int64_t axis, size_t output, const std::vector<ValueId>& grown) {
    const std::string past_name = graph_.values[past].name, present_name = graph_.values[graph_.outputs[output]].name;
    Shape shape = info(past).shape;
    shape.erase(shape.begin() + axis);
    std::vector<ValueId> parts;
    for (size_t i = 0; i < grown.size(); ++i) {
      const ValueId part = graph_.add_value(past_name + "." + std::to_string(i), info(past).type);
      graph_.values[part].info.ranked = true;
      graph_.values[part].info.shape = shape;
      parts.push_back(part);
      if (!graph_.is_output(grown[i])) graph_.values[grown[i]].name = present_name + "." + std::to_string(i);
      context_.binding.inputs[part] = InputRole::kState;
    }
    for (const auto& [user, operand] : users_[past]) {
      const Node n = graph_.nodes[static_cast<size_t>(user)];
      graph_.replace_uses(n.out[0], is_known_shape(n) ? graph_.add_shape(past_name + ".shape", *info(n.out[0]).content) : parts[static_cast<size_t>(part_of(n, past, axis))]);
    }
    context_.binding.inputs.erase(past);
    auto swap = [](std::vector<ValueId>& list, size_t at, const std::vector<ValueId>& by) {
      list.erase(list.begin() + static_cast<ptrdiff_t>(at));
      list.insert(list.begin() + static_cast<ptrdiff_t>(at), by.begin(), by.end());
    };
    swap(graph_.inputs, static_cast<size_t>(std::find(graph_.inputs.begin(), graph_.inputs.end(), past) - graph_.inputs.begin()), parts);
    swap(graph_.outputs, output, grown);
    context_.note("stacked states", past_name, std::to_string(parts.size()) + " parts, each a state of its own");
  }

  PassContext& context_;
  Graph& graph_;
  std::vector<std::vector<std::pair<int, int>>> users_;
};

}  // namespace

Status unstack_states(PassContext& context) {
  while (Unstacker(context).step()) {
    context.graph.remove_dead_nodes();
    SITU_RETURN_IF_ERROR(context.graph.sort());
  }
  return Status::ok();
}

}  // namespace situ
