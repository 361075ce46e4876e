#include "passes/module/specialise.h"

#include <algorithm>
#include <set>

#include "ops/op.h"
#include "passes/host/infer.h"
#include "passes/module/control.h"

namespace situ {
namespace {

bool integer_or_bool(DType t) { return t == DType::kI64 || t == DType::kI32 || t == DType::kBool; }

// [] or [1], or one dim whose extent the file leaves open.
bool one_element(const ValueInfo& info) {
  return info.ranked && info.shape.size() <= 1 &&
         (info.shape.empty() || !info.shape[0].is_const() || info.shape[0] == Dim(1));
}

void substitute(Graph& graph, const std::map<int, Dim>& symbols) {
  const auto put = [&](Dim& d) {
    for (const auto& [id, by] : symbols) d = d.substitute(id, by);
  };
  for (Value& v : graph.values) {
    for (Dim& d : v.info.shape) put(d);
    if (v.info.content)
      for (Dim& d : *v.info.content) put(d);
  }
}

Status set_flag(Graph& graph, const std::string& name, int64_t value) {
  const auto at =
      std::find_if(graph.inputs.begin(), graph.inputs.end(), [&](ValueId v) { return graph.values[v].name == name; });
  if (at == graph.inputs.end()) return Status::error("no input is called '" + name + "'");
  Value& v = graph.values[*at];
  if (!integer_or_bool(v.info.type) || !one_element(v.info))
    return Status::error("input " + graph.describe(*at) + " is not a flag of one element");
  Tensor t = Tensor::allocate(v.info.type, v.info.shape.empty() ? std::vector<int64_t>{} : std::vector<int64_t>{1});
  std::byte* data = t.view().data;
  if (v.info.type == DType::kI64)
    *reinterpret_cast<int64_t*>(data) = value;
  else if (v.info.type == DType::kI32)
    *reinterpret_cast<int32_t*>(data) = static_cast<int32_t>(value);
  else
    *reinterpret_cast<uint8_t*>(data) = value != 0;
  v.constant = t;
  v.info = info_of(t);
  graph.inputs.erase(at);
  return Status::ok();
}

// Nodes that `v` is made by, in their order.
std::set<int> cone_of(const Graph& graph, ValueId v) {
  std::set<int> nodes;
  std::vector<ValueId> open{v};
  while (!open.empty()) {
    const ValueId x = open.back();
    open.pop_back();
    const int p = x == kNoValue ? -1 : graph.values[x].producer;
    if (p < 0 || !nodes.insert(p).second) continue;
    const Node& n = graph.nodes[static_cast<size_t>(p)];
    // An extent says nothing of what the value is made of.
    if (n.is("Shape") || n.is("Size")) continue;
    open.insert(open.end(), n.in.begin(), n.in.end());
  }
  return nodes;
}

// The value of a predicate, where constants and extents tell it.
std::optional<bool> decided(Graph& graph, ValueId predicate, const std::map<int, Dim>& extents, Evaluator& evaluator) {
  const auto known = [&]() -> std::optional<bool> {
    const Value& v = graph.values[predicate];
    const auto content = v.constant.present() ? info_of(v.constant).content : v.info.content;
    if (!content || content->size() != 1) return std::nullopt;
    Dim value = (*content)[0];
    for (const auto& [id, by] : extents) value = value.substitute(id, by);
    if (!value.is_const()) return std::nullopt;
    return value.value() != 0;
  };
  if (const auto now = known()) return now;
  for (const int index : cone_of(graph, predicate)) {
    const Node& n = graph.nodes[static_cast<size_t>(index)];
    if (!n.def || n.def->placement == Placement::kControl) return std::nullopt;
    std::vector<ValueInfo> infos(n.out.size());
    InferContext infer{n, {}, {}, infos};
    for (const ValueId v : n.in) {
      infer.in.push_back(v == kNoValue ? nullptr : &graph.values[v].info);
      infer.constants.push_back(v == kNoValue || !graph.values[v].constant.present() ? nullptr
                                                                                     : &graph.values[v].constant);
    }
    try {
      if (!n.def->infer(infer).is_ok()) return std::nullopt;
      infer_content(graph, n, evaluator, infos);
    } catch (const DimTooLong&) {
      return std::nullopt;
    }
    for (size_t i = 0; i < n.out.size(); ++i)
      if (n.has_output(i)) graph.values[n.out[i]].info = infos[i];
  }
  return known();
}

// Inlines the first If that is decided. False: there is none.
Result<bool> inline_decided(Graph& graph, const std::map<int, Dim>& extents, Evaluator& evaluator) {
  size_t found = graph.nodes.size();
  bool taken = false;
  for (size_t i = 0; i < graph.nodes.size() && found == graph.nodes.size(); ++i) {
    const Node& n = graph.nodes[i];
    if (!n.is("If") || n.in.empty() || n.in[0] == kNoValue) continue;
    if (const auto value = decided(graph, n.in[0], extents, evaluator)) {
      found = i;
      taken = *value;
    }
  }
  if (found == graph.nodes.size()) return false;
  const Node chosen = graph.nodes[found];
  const Result<Branches> branches = branches_of(chosen);
  if (!branches.is_ok()) return branches.status();
  std::vector<Node> nodes = std::exchange(graph.nodes, {});
  Builder builder(graph);
  std::vector<ValueId> outs;
  for (size_t i = 0; i < nodes.size(); ++i) {
    if (i == found)
      outs = inline_branch(graph, taken ? *branches->on_true : *branches->on_false, chosen.name, builder);
    else
      builder.keep(std::move(nodes[i]));
  }
  SITU_RETURN_IF_ERROR(builder.finish());
  for (size_t i = 0; i < outs.size(); ++i) {
    if (!chosen.has_output(i)) continue;
    const std::string name = graph.values[chosen.out[i]].name;
    const bool output = graph.is_output(chosen.out[i]);
    graph.replace_uses(chosen.out[i], outs[i]);
    // Outputs are known by their names. An input that is passed on keeps its own.
    if (output && graph.values[outs[i]].producer >= 0) graph.values[outs[i]].name = name;
  }
  SITU_RETURN_IF_ERROR(graph.sort());
  return true;
}

}  // namespace

Result<Graph> specialise(const Graph& imported, const Assignment& assignment, Evaluator& evaluator) {
  Graph graph = imported;
  substitute(graph, assignment.symbols);
  for (const auto& [name, value] : assignment.flags) SITU_RETURN_IF_ERROR(set_flag(graph, name, value));
  const bool branches = std::any_of(graph.nodes.begin(), graph.nodes.end(), [](const Node& n) { return n.is("If"); });
  if (!branches) return graph;
  SITU_RETURN_IF_ERROR(resolve_ops(graph));
  graph.rebuild_links();
  for (;;) {
    const Result<bool> more = inline_decided(graph, assignment.in_predicates, evaluator);
    if (!more.is_ok()) return more.status();
    if (!*more) return graph;
  }
}

std::vector<ValueId> find_flags(const Graph& graph) {
  std::vector<ValueId> flags;
  for (const Node& n : graph.nodes) {
    if (!n.is("If") || n.in.empty() || n.in[0] == kNoValue) continue;
    std::set<ValueId> roots{n.in[0]};
    for (const int index : cone_of(graph, n.in[0])) {
      const Node& made = graph.nodes[static_cast<size_t>(index)];
      roots.insert(made.in.begin(), made.in.end());
    }
    for (const ValueId v : graph.inputs)
      if (roots.count(v) && integer_or_bool(graph.values[v].info.type) && one_element(graph.values[v].info) &&
          std::find(flags.begin(), flags.end(), v) == flags.end())
        flags.push_back(v);
  }
  return flags;
}

bool told_apart(const Graph& imported, const Assignment& a, const Assignment& b, Evaluator& evaluator) {
  Graph graph = imported;
  if (!resolve_ops(graph).is_ok()) return false;
  graph.rebuild_links();
  return std::any_of(graph.nodes.begin(), graph.nodes.end(), [&](const Node& n) {
    if (!n.is("If") || n.in.empty() || n.in[0] == kNoValue) return false;
    const auto one = decided(graph, n.in[0], a.in_predicates, evaluator),
               other = decided(graph, n.in[0], b.in_predicates, evaluator);
    return one && other && *one != *other;
  });
}

void slice(Graph& graph, std::vector<ValueId> outputs) {
  graph.outputs = std::move(outputs);
  graph.remove_dead_nodes();
  std::set<ValueId> read(graph.outputs.begin(), graph.outputs.end());
  for (const Node& n : graph.nodes) {
    read.insert(n.in.begin(), n.in.end());
    for (const auto& [key, a] : n.attrs)
      if (a.graph)
        for (const auto& [inner, outer] : a.graph->captures) read.insert(outer);
  }
  std::erase_if(graph.inputs, [&](ValueId v) { return read.count(v) == 0; });
}

std::vector<ValueId> link(Graph& to, const Graph& from, const std::map<ValueId, ValueId>& joined,
                          const std::string& prefix) {
  std::vector<ValueId> map(from.values.size(), kNoValue);
  std::set<ValueId> used(from.outputs.begin(), from.outputs.end());
  for (const Node& n : from.nodes) {
    used.insert(n.in.begin(), n.in.end());
    used.insert(n.out.begin(), n.out.end());
    for (const auto& [key, a] : n.attrs)
      if (a.graph)
        for (const auto& [inner, outer] : a.graph->captures) used.insert(outer);
  }
  for (const ValueId v : used) {
    if (v == kNoValue) continue;
    if (const auto at = joined.find(v); at != joined.end()) {
      map[static_cast<size_t>(v)] = at->second;
      continue;
    }
    const Value& value = from.values[v];
    map[static_cast<size_t>(v)] = static_cast<ValueId>(to.values.size());
    Value copy;
    copy.name = prefix + value.name;
    copy.constant = value.constant;
    if (value.constant.present())
      copy.info = value.info;
    else
      copy.info.type = value.info.type;
    to.values.push_back(std::move(copy));
  }
  for (const Node& n : from.nodes) {
    Node copy = n;
    copy.name = prefix + n.name;
    for (std::vector<ValueId>* list : {&copy.in, &copy.out})
      for (ValueId& v : *list)
        if (v != kNoValue) v = map[static_cast<size_t>(v)];
    for (auto& [key, a] : copy.attrs) {
      if (!a.graph) continue;
      a.graph = std::make_shared<Graph>(*a.graph);
      for (auto& [inner, outer] : a.graph->captures) outer = map[static_cast<size_t>(outer)];
    }
    to.nodes.push_back(std::move(copy));
  }
  to.rebuild_links();
  std::vector<ValueId> outputs;
  for (const ValueId v : from.outputs) outputs.push_back(map[static_cast<size_t>(v)]);
  return outputs;
}

}  // namespace situ
