#include "passes/compile/legal.h"

#include "ops/op.h"

namespace situ {
namespace {

// `is`: whether a node breaks the rule.
struct NodeRule {
  Fact behind;
  const char* what;
  bool (*is)(const Node& node);
};

bool has_a_branch(const Node& node) {
  for (const auto& [name, attribute] : node.attrs)
    if (attribute.graph) return true;
  return node.def && node.def->placement == Placement::kControl;
}

// Neither a kernel computes it, nor does it move anything: expand_fused and expand_experts should have written it out.
bool has_no_kernel(const Node& node) {
  const bool moves = node.def && (node.def->placement == Placement::kView || node.def->placement == Placement::kConcat);
  return node.def && !node.def->prepare && !moves && node.def->placement != Placement::kControl;
}

constexpr NodeRule kNodes[] = {
    {Fact::kControlInlined, "branches on a condition", has_a_branch},
    {Fact::kExpertsExpanded, "is a fused operator, which no kernel computes", has_no_kernel},
};

// `is`: whether an input of the graph breaks the rule.
struct InputRule {
  Fact behind;
  const char* what;
  bool (*is)(const PassContext& context, ValueId input);
};

bool has_no_meaning(const PassContext& context, ValueId input) {
  return context.binding.inputs.count(input) == 0 && !context.graph.values[input].info.content;
}

bool is_read_as_a_state_alone(const PassContext& context, ValueId input) {
  const auto role = context.binding.inputs.find(input);
  if (role == context.binding.inputs.end() || role->second != InputRole::kState) return false;
  for (const StatePair& s : context.binding.states)
    if (s.past == input) return false;
  return true;
}

constexpr InputRule kInputs[] = {
    {Fact::kInputsBound, "is an input without a meaning", has_no_meaning},
    {Fact::kStatesFound, "is a state that is in no pair", is_read_as_a_state_alone},
};

}  // namespace

Status check_legal(const PassContext& context, const Facts& left) {
  for (const Node& node : context.graph.nodes)
    for (const NodeRule& rule : kNodes)
      if (left.has(rule.behind) && rule.is(node)) return node.error(rule.what);
  for (const ValueId input : context.graph.inputs)
    for (const InputRule& rule : kInputs)
      if (left.has(rule.behind) && rule.is(context, input))
        return Status::error("'" + context.graph.values[input].name + "' " + rule.what);
  return Status::ok();
}

}  // namespace situ
