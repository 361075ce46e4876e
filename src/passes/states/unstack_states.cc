// States that are stacked in one tensor, K and V of a layer (past [2, B, H, P, D], as onnxruntime's exporter of GPT-2
// writes them) or those of all layers, become states of their own:
//   present = Concat(Unsqueeze(x0), Unsqueeze(x1), ..)  ->  outputs x0, x1, ..
//   Gather(past, i), Squeeze(Slice(past, i)), ..        ->  input i
// where each xi appends to part i of the past and to no other. A tensor of several stacks is taken apart from the
// outside in.
#include <algorithm>
#include <map>
#include <set>

#include "ops/infer.h"
#include "passes/context/part.h"
#include "passes/context/pass_context.h"
#include "passes/states/passes.h"

namespace situ {
namespace {

using Parts = std::map<ValueId, int64_t>;  // values that are a part of a past each, and its number

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

  // The parts of `past` along `axis` that nodes read: values without that axis, each with its number. Nothing:
  // something reads it otherwise.
  std::optional<Parts> parts_read(ValueId past, int64_t axis) const {
    Parts read;
    for (const auto& [user, operand] : users_[past]) {
      if (user < 0 || operand != 0) return std::nullopt;
      const Node& n = graph_.nodes[static_cast<size_t>(user)];
      if (is_known_shape(n)) continue;
      for (size_t o = 0; o < n.out.size(); ++o)
        if (n.has_output(o) && !add_part(n, o, axis, &read)) return std::nullopt;
    }
    return read;
  }
  // Output `o` of a node that reads the past: Gather leaves the axis out, or what reads its one row does.
  bool add_part(const Node& n, size_t o, int64_t axis, Parts* read) const {
    const int64_t parts = info(n.in[0]).shape[static_cast<size_t>(axis)].value();
    const ValueId out = n.out[o];
    std::optional<int64_t> number;
    if (n.is("Gather") && axis_of(n, info(n.in[0]).shape.size()) == axis) {
      const std::optional<std::vector<int64_t>> index = integers(n.in[1]);
      if (index && index->size() == 1) number = (*index)[0] < 0 ? (*index)[0] + parts : (*index)[0];
    } else if (const std::optional<AxisPart> part = part_of(graph_, n, o);
               part && static_cast<int64_t>(part->axis) == axis && part->begin.is_const()) {
      number = part->begin.value();
    }
    if (!number || *number < 0 || *number >= parts) return false;
    const Shape without = without_axis(info(n.in[0]).shape, axis);
    if (info(out).shape == without) {
      read->emplace(out, *number);
      return true;
    }
    if (graph_.is_output(out) || info(out).shape.size() != without.size() + 1 ||
        info(out).shape[static_cast<size_t>(axis)] != Dim(1))
      return false;
    for (const auto& [user, operand] : users_[out]) {
      const Node* squeeze = user < 0 ? nullptr : &graph_.nodes[static_cast<size_t>(user)];
      if (!squeeze || operand != 0 || (!squeeze->is("Squeeze") && !squeeze->is("Reshape")) ||
          info(squeeze->out[0]).shape != without)
        return false;
      read->emplace(squeeze->out[0], *number);
    }
    return true;
  }
  static Shape without_axis(Shape shape, int64_t axis) {
    shape.erase(shape.begin() + axis);
    return shape;
  }

  // The part that `v` continues: back through what appends to it or writes into it, moves its axes or stacks it. -1:
  // another value.
  int64_t continued_part(ValueId v, const Parts& read) const {
    constexpr size_t kMostLookedAt = 256;
    std::set<ValueId> seen;
    for (std::vector<ValueId> open{v}; !open.empty() && seen.size() < kMostLookedAt;) {
      const ValueId x = open.back();
      open.pop_back();
      if (x == kNoValue || !seen.insert(x).second) continue;
      if (const auto part = read.find(x); part != read.end()) return part->second;
      const Node* n = graph_.producer(x);
      if (!n || !n->domain.empty()) continue;
      const auto is = [&](std::initializer_list<const char*> names) {
        return std::any_of(names.begin(), names.end(), [&](const char* name) { return n->op == name; });
      };
      if (is({"Concat", "Unsqueeze", "Squeeze", "Reshape", "Transpose", "Cast", "Identity", "Gather", "Slice", "Split",
              "ScatterND", "ScatterElements", "TensorScatter"}))
        open.push_back(n->in[0]);
      else if (is({"Add", "Mul", "Where"}))  // the first operand first, but for conditions
        open.insert(open.end(), n->in.rbegin(), n->in.rend() - (n->op == "Where" ? 1 : 0));
    }
    return -1;
  }

  bool unstack(ValueId past, size_t output) {
    ValueId present = graph_.outputs[output];
    const Node* stack = graph_.producer(present);
    for (; stack && stack->is("Identity"); stack = graph_.producer(present)) present = stack->in[0];
    const size_t rank = info(past).shape.size();
    if (stack == nullptr || !stack->is("Concat") || !info(past).ranked || info(present).shape.size() != rank ||
        info(past).type != info(present).type)
      return false;
    const int64_t axis = axis_of(*stack, rank);
    if (axis < 0 || axis >= static_cast<int64_t>(rank) ||
        info(past).shape[static_cast<size_t>(axis)] != Dim(static_cast<int64_t>(stack->in.size())))
      return false;
    const std::optional<Parts> read = parts_read(past, axis);
    if (!read || graph_.is_output(past)) return false;
    std::vector<ValueId> grown;
    for (size_t i = 0; i < stack->in.size(); ++i) {
      const Node* unsqueeze = graph_.producer(stack->in[i]);
      if (unsqueeze == nullptr || !unsqueeze->is("Unsqueeze") || info(stack->in[i]).shape.size() != rank ||
          info(stack->in[i]).shape[static_cast<size_t>(axis)] != Dim(1))
        return false;
      const Shape without = without_axis(info(stack->in[i]).shape, axis);
      // Where other dims are 1 too, it is not told by the shapes which of them is new.
      const std::vector<int64_t> axes = unsqueeze->attr("axes") != nullptr ? unsqueeze->attr_ints("axes")
                                        : unsqueeze->has_input(1)
                                            ? integers(unsqueeze->in[1]).value_or(std::vector<int64_t>{})
                                            : std::vector<int64_t>{};
      if (axes.size() != 1 || (axes[0] < 0 ? axes[0] + static_cast<int64_t>(rank) : axes[0]) != axis ||
          info(unsqueeze->in[0]).shape != without)
        return false;
      grown.push_back(unsqueeze->in[0]);
      if (continued_part(grown.back(), *read) != static_cast<int64_t>(i)) return false;
    }
    replace(past, axis, output, grown, *read);
    return true;
  }

  void replace(ValueId past, int64_t axis, size_t output, const std::vector<ValueId>& grown, const Parts& read) {
    const std::string past_name = graph_.values[past].name, present_name = graph_.values[graph_.outputs[output]].name;
    const Shape shape = without_axis(info(past).shape, axis);
    std::vector<ValueId> parts;
    for (size_t i = 0; i < grown.size(); ++i) {
      const ValueId part = graph_.add_value(past_name + "." + std::to_string(i), info(past).type);
      graph_.values[part].info.ranked = true;
      graph_.values[part].info.shape = shape;
      parts.push_back(part);
      if (!graph_.is_output(grown[i])) graph_.values[grown[i]].name = present_name + "." + std::to_string(i);
      context_.binding.inputs[part] = InputRole::kState;
    }
    for (const auto& [user, operand] : users_[past])
      if (const Node n = graph_.nodes[static_cast<size_t>(user)]; is_known_shape(n))
        graph_.replace_uses(n.out[0], graph_.add_shape(past_name + ".shape", *info(n.out[0]).content));
    for (const auto& [value, part] : read) graph_.replace_uses(value, parts[static_cast<size_t>(part)]);
    context_.binding.inputs.erase(past);
    auto swap = [](std::vector<ValueId>& list, size_t at, const std::vector<ValueId>& by) {
      list.erase(list.begin() + static_cast<ptrdiff_t>(at));
      list.insert(list.begin() + static_cast<ptrdiff_t>(at), by.begin(), by.end());
    };
    swap(graph_.inputs,
         static_cast<size_t>(std::find(graph_.inputs.begin(), graph_.inputs.end(), past) - graph_.inputs.begin()),
         parts);
    swap(graph_.outputs, output, grown);
    context_.note("stacked states", past_name, std::to_string(parts.size()) + " parts, each a state of its own");
  }

  PassContext& context_;
  Graph& graph_;
  std::vector<std::vector<std::pair<int, int>>> users_;
};

}  // namespace

Status unstack_states(PassContext& context) {
  const auto is_state = [&](ValueId v) {
    const auto role = context.binding.inputs.find(v);
    return role != context.binding.inputs.end() && role->second == InputRole::kState;
  };
  for (const Node& n : context.graph.nodes)
    if (n.is("Identity") && is_state(n.in[0]) && !context.graph.is_output(n.out[0]))
      context.graph.replace_uses(n.out[0], n.in[0]);
  context.graph.remove_dead_nodes();
  while (Unstacker(context).step()) {
    context.graph.remove_dead_nodes();
    SITU_RETURN_IF_ERROR(context.graph.sort());
  }
  return Status::ok();
}

}  // namespace situ
