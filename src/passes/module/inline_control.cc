// If on a predicate that is known at compile time becomes the taken branch. If on a predicate that is known on the host
// at each step becomes one branch, where both compute alike but for their constants, which situ.Select chooses: a view
// of one or the other. Else it becomes both branches, and Where chooses between what they compute.
#include <map>

#include "ops/op.h"
#include "passes/context/pass_context.h"
#include "passes/host/by_length.h"
#include "passes/host/infer.h"
#include "passes/module/control.h"
#include "passes/module/passes.h"

namespace situ {

std::vector<ValueId> inline_branch(Graph& graph, const Graph& branch, const std::string& prefix, Builder& builder,
                                   const std::map<ValueId, ValueId>& given) {
  std::vector<ValueId> map(branch.values.size(), kNoValue);
  for (const auto& [inner, outer] : given) map[inner] = outer;
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
    return n.error("the condition or a branch is missing", Reason::Kind::kOperator);
  const Branches b{then_branch->graph.get(), else_branch->graph.get()};
  if (b.on_true->outputs.size() != n.out.size() || b.on_false->outputs.size() != n.out.size())
    return n.error("has " + std::to_string(n.out.size()) + " outputs, its branches " +
                       std::to_string(b.on_true->outputs.size()) + " and " + std::to_string(b.on_false->outputs.size()),
                   Reason::Kind::kOperator);
  return b;
}

namespace {

bool equal(const Tensor& a, const Tensor& b) {
  return a.type() == b.type() && a.dims() == b.dims() && a.contiguous() && b.contiguous() &&
         std::equal(a.view().data, a.view().data + a.bytes(), b.view().data);
}

bool equal(const Attribute& a, const Attribute& b) {
  if (a.graph || b.graph || a.tensor.present() != b.tensor.present()) return false;
  return a.kind == b.kind && a.i == b.i && a.f == b.f && a.s == b.s && a.ints == b.ints && a.floats == b.floats &&
         a.strings == b.strings && (!a.tensor.present() || equal(a.tensor, b.tensor));
}

// Whether two branches are one graph, but for constants of floats.
class Alike {
 public:
  Alike(const Graph& a, const Graph& b) : a_(a), b_(b) {}

  bool compare() {
    if (a_.nodes.size() != b_.nodes.size() || a_.outputs.size() != b_.outputs.size()) return false;
    for (const auto& [inner, outer] : a_.captures) captured_[inner] = outer;
    for (const auto& [inner, outer] : b_.captures) captured_of_b_[inner] = outer;
    for (size_t n = 0; n < a_.nodes.size(); ++n)
      if (!same_node(a_.nodes[n], b_.nodes[n])) return false;
    return same_values(a_.outputs, b_.outputs);
  }
  // Constants of the first graph, and what the other one has in their place.
  const std::map<ValueId, ValueId>& constants() const { return constants_; }

 private:
  bool same_node(const Node& a, const Node& b) {
    if (a.op != b.op || a.domain != b.domain || a.opset != b.opset || a.out.size() != b.out.size() ||
        a.attrs.size() != b.attrs.size() || !same_values(a.in, b.in))
      return false;
    for (const auto& [key, attribute] : a.attrs) {
      const Attribute* other = b.attr(key);
      if (!other || !equal(attribute, *other)) return false;
    }
    for (size_t i = 0; i < a.out.size(); ++i) {
      if ((a.out[i] == kNoValue) != (b.out[i] == kNoValue)) return false;
      made_[a.out[i]] = b.out[i];
    }
    return true;
  }

  bool same_values(const std::vector<ValueId>& a, const std::vector<ValueId>& b) {
    if (a.size() != b.size()) return false;
    for (size_t i = 0; i < a.size(); ++i)
      if (!same_value(a[i], b[i])) return false;
    return true;
  }

  bool same_value(ValueId a, ValueId b) {
    if (a == kNoValue || b == kNoValue) return a == b;
    if (const auto made = made_.find(a); made != made_.end()) return made->second == b;
    const auto outer = captured_.find(a), outer_of_b = captured_of_b_.find(b);
    if (outer != captured_.end() || outer_of_b != captured_of_b_.end())
      return outer != captured_.end() && outer_of_b != captured_of_b_.end() && outer->second == outer_of_b->second;
    const Tensor &x = a_.values[a].constant, &y = b_.values[b].constant;
    if (!x.present() || !y.present() || x.type() != y.type() || x.rank() != y.rank()) return false;
    if (equal(x, y)) return true;
    const auto [other, fresh] = constants_.try_emplace(a, b);
    return dtype_is_float(x.type()) && other->second == b;
  }

  const Graph &a_, &b_;
  std::map<ValueId, ValueId> captured_, captured_of_b_, made_, constants_;
};

// What both branches gave for one output of an If: to be as large as each other.
struct Both {
  std::string where;
  ValueId on_true, on_false;
};

// If, whose predicate the host knows at each step.
void choose_at_each_step(PassContext& context, const Node& n, const Branches& branches, Builder& builder,
                         std::vector<Both>* both) {
  Graph& graph = context.graph;
  const Graph &on_true = *branches.on_true, &on_false = *branches.on_false;
  const auto select = [&](const Tensor& a, const Tensor& b, ValueId result) {
    const ValueId x = graph.add_constant(n.name + "/then", a), y = graph.add_constant(n.name + "/else", b);
    return builder.op("Select", {n.in[0], x, y}, result, "situ");
  };
  builder.start(n);
  Alike alike(on_true, on_false);
  if (!on_true.nodes.empty() && alike.compare()) {
    std::map<ValueId, ValueId> given;
    for (const auto& [a, b] : alike.constants())
      given[a] = select(on_true.values[a].constant, on_false.values[b].constant, kNoValue);
    const std::vector<ValueId> outs = inline_branch(graph, on_true, n.name, builder, given);
    for (size_t i = 0; i < n.out.size(); ++i)
      if (n.has_output(i)) builder.op("Identity", {outs[i]}, n.out[i]);
    return;
  }
  const std::vector<ValueId> then_outs = inline_branch(graph, on_true, n.name + "/then", builder),
                             else_outs = inline_branch(graph, on_false, n.name + "/else", builder);
  for (size_t i = 0; i < n.out.size(); ++i) {
    if (!n.has_output(i)) continue;
    const Tensor a = graph.values[then_outs[i]].constant, b = graph.values[else_outs[i]].constant;
    if (a.present() && b.present()) {
      select(a, b, n.out[i]);
      continue;
    }
    builder.op("Where", {n.in[0], then_outs[i], else_outs[i]}, n.out[i]);
    both->push_back({n.label(), then_outs[i], else_outs[i]});
  }
}

// A predicate of the length of the sequence alone, told by probing: a value that the host computes of lengths takes its
// place.
void know_predicate(PassContext& context, ValueId predicate) {
  Graph& graph = context.graph;
  Prober prober(graph, context.binding, context.evaluator);
  if (graph.values[predicate].info.type != DType::kBool || shape_count(graph.values[predicate].info.shape) != Dim(1))
    return;
  LengthValues lengths(graph, prober, context.evaluator, context.phase, context.length);
  const ByLength* truth = lengths.few(predicate);
  if (!truth) return;
  const Dim length = Dim::symbol(kSymP) + (context.phase == Phase::kDecode ? Dim(1) : Dim::symbol(kSymS));
  const ValueId known = graph.add_value(graph.values[predicate].name + "/known", DType::kBool);
  graph.values[known].info = {DType::kBool, true, {}, std::vector<Dim>{truth->of(length)}};
  graph.inputs.push_back(known);
  for (Node& n : graph.nodes)
    if (n.is("If") && n.in[0] == predicate) n.in[0] = known;
}

// Inlines the first If, whose predicate has been inferred.
Status inline_first(PassContext& context, std::vector<Both>* both) {
  Graph& graph = context.graph;
  for (const Node& n : graph.nodes) {
    if (!n.is("If")) continue;
    const bool known = n.in.empty() || n.in[0] == kNoValue || graph.values[n.in[0]].constant.present() ||
                       graph.values[n.in[0]].info.content;
    if (!known) know_predicate(context, n.in[0]);
    break;
  }
  Builder builder(graph);
  std::vector<std::pair<ValueId, ValueId>> replaced;
  std::vector<Node> nodes = std::exchange(graph.nodes, {});
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
      return n.error(
          "the predicate '" + predicate.name + "' is computed from data; only predicates known on the host run",
          Reason::Kind::kOperator);
    if ((*content)[0].is_const()) {
      const bool taken = (*content)[0].value() != 0;
      const std::vector<ValueId> outs = inline_branch(graph, taken ? on_true : on_false, n.name, builder);
      for (size_t i = 0; i < outs.size(); ++i)
        if (n.has_output(i)) replaced.emplace_back(n.out[i], outs[i]);
      context.note("branch", n.name, taken ? "then branch taken" : "else branch taken");
      continue;
    }
    choose_at_each_step(context, n, *branches, builder, both);
    context.note("branch", n.name,
                 std::string(on_true.nodes.empty() && on_false.nodes.empty() ? "constants " : "") + "chosen by " +
                     (*content)[0].str());
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
  std::vector<Both> both;
  while (context.at_control) {
    SITU_RETURN_IF_ERROR(inline_first(context, &both));
    SITU_RETURN_IF_ERROR(infer_shapes(context));
  }
  for (const auto& [where, a, b] : both) {
    const ValueInfo &x = context.graph.values[a].info, &y = context.graph.values[b].info;
    if (!(x.shape == y.shape))
      return Status::error(where + ": its branches give " + context.graph.describe(a) + " and " +
                           context.graph.describe(b) + ", and steps choose between them");
  }
  return Status::ok();
}

}  // namespace situ
