// If on a predicate that is known at compile time becomes the taken branch. If on a predicate that is
// known on the host at each step, with branches that only hold constants, becomes situ.Select: a view
// of one constant or the other.
#include "ops/op.h"
#include "passes/control.h"
#include "passes/pass.h"

namespace situ {

std::vector<ValueId> inline_branch(Graph& graph, const Graph& branch, const std::string& prefix, Builder& builder) {
  std::vector<ValueId> map(branch.values.size(), kNoValue);
  for (const auto& [inner, outer] : branch.captures) map[inner] = outer;
  for (size_t v = 0; v < branch.values.size(); ++v) {
    if (map[v] != kNoValue) continue;
    map[v] = static_cast<ValueId>(graph.values.size());
    graph.values.push_back(branch.values[v]);
    graph.values.back().name = prefix + "/" + branch.values[v].name;
    graph.values.back().producer = -1;
  }
  for (const Node& n : branch.nodes) {
    Node copy = n;
    copy.name = prefix + "/" + n.name;
    for (ValueId& v : copy.in)
      if (v != kNoValue) v = map[v];
    for (ValueId& v : copy.out)
      if (v != kNoValue) v = map[v];
    for (auto& [key, a] : copy.attrs) {
      if (!a.graph) continue;
      a.graph = std::make_shared<Graph>(*a.graph);
      for (auto& [inner, outer] : a.graph->captures) outer = map[outer];
    }
    builder.keep(std::move(copy));
  }
  std::vector<ValueId> outputs;
  for (ValueId v : branch.outputs) outputs.push_back(map[v]);
  return outputs;
}

Result<Branches> branches_of(const Node& n) {
  const Attribute *then_branch = n.attr("then_branch"), *else_branch = n.attr("else_branch");
  if (n.in.empty() || n.in[0] == kNoValue || !then_branch || !then_branch->graph || !else_branch || !else_branch->graph)
    return Status::error(n.label() + ": the condition or a branch is missing");
  const Branches b{then_branch->graph.get(), else_branch->graph.get()};
  if (b.on_true->outputs.size() != n.out.size() || b.on_false->outputs.size() != n.out.size())
    return Status::error(n.label() + ": has " + std::to_string(n.out.size()) + " outputs, its branches " +
                         std::to_string(b.on_true->outputs.size()) + " and " +
                         std::to_string(b.on_false->outputs.size()));
  return b;
}

namespace {

bool only_constants(const Graph& branch) {
  if (!branch.nodes.empty()) return false;
  for (ValueId v : branch.outputs)
    if (!branch.values[v].constant.present()) return false;
  return true;
}

// Inlines the first If, whose predicate has been inferred.
Status inline_first(PassContext& context) {
  Graph& graph = context.graph;
  Builder builder(graph);
  std::vector<std::pair<ValueId, ValueId>> replaced;
  std::vector<Node> nodes = std::move(graph.nodes);
  graph.nodes.clear();
  bool done = false;
  for (Node& n : nodes) {
    if (done || !n.is("If")) {
      builder.keep(std::move(n));
      continue;
    }
    done = true;
    const Result<Branches> branches = branches_of(n);
    if (!branches.is_ok()) return branches.status();
    const Graph &on_true = *branches->on_true, &on_false = *branches->on_false;
    const Value& predicate = graph.values[n.in[0]];
    const auto content = predicate.constant.present() ? info_of(predicate.constant).content : predicate.info.content;
    if (!content || content->size() != 1)
      return Status::error(n.label() + ": the predicate '" + predicate.name +
                           "' is computed from data; only predicates known on the host run");
    if ((*content)[0].is_const()) {
      const bool taken = (*content)[0].value() != 0;
      const std::vector<ValueId> outs = inline_branch(graph, taken ? on_true : on_false, n.name, builder);
      for (size_t i = 0; i < outs.size(); ++i)
        if (n.has_output(i)) replaced.emplace_back(n.out[i], outs[i]);
      context.note("branch", n.name, taken ? "then branch taken" : "else branch taken");
      continue;
    }
    if (!only_constants(on_true) || !only_constants(on_false))
      return Status::error(n.label() + ": the predicate " + (*content)[0].str() +
                           " changes between steps and a branch computes values; not supported yet");
    builder.start(n);
    for (size_t i = 0; i < n.out.size(); ++i) {
      if (!n.has_output(i)) continue;
      const ValueId a = graph.add_constant(n.name + "/then", on_true.values[on_true.outputs[i]].constant);
      const ValueId b = graph.add_constant(n.name + "/else", on_false.values[on_false.outputs[i]].constant);
      builder.op("Select", {n.in[0], a, b}, n.out[i], "situ");
    }
    context.note("branch", n.name, "constants chosen by " + (*content)[0].str());
  }
  SITU_RETURN_IF_ERROR(builder.finish());
  for (const auto& [from, to] : replaced) {
    graph.replace_uses(from, to);
    if (context.binding.logits == from) context.binding.logits = to;
  }
  return graph.sort();
}

}  // namespace

Status inline_control(PassContext& context) {
  while (context.at_control) {
    SITU_RETURN_IF_ERROR(inline_first(context));
    SITU_RETURN_IF_ERROR(infer_shapes(context));
  }
  return Status::ok();
}

}  // namespace situ
