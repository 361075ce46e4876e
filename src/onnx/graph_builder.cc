#include "onnx/graph_builder.h"

#include "onnx/limits.h"

namespace situ::onnx {
namespace {

std::string in_quotes(std::string_view name) { return "'" + std::string(name) + "'"; }

std::string node_text(const NodeProto& node) {
  return std::string(node.op) + " " + in_quotes(node.name) + " (node " + std::to_string(node.index) + ")";
}

// Both producers of a name that has two.
[[noreturn]] void fail_second_producer(const std::vector<NodeProto>& nodes, const NodeProto& second,
                                       std::string_view name) {
  for (const NodeProto& first : nodes)
    for (std::string_view output : first.outputs)
      if (output == name && (&first != &second))
        throw ImportError("value " + in_quotes(name) + " is produced by two nodes, " + node_text(first) + " and " +
                          node_text(second));
  size_t times = 0;
  for (std::string_view output : second.outputs) times += output == name;
  throw ImportError(
      "value " + in_quotes(name) +
      (times > 1 ? " is produced twice by node " : " is an input or initialiser and is produced by node ") +
      node_text(second));
}

bool is_sorted(const Graph& graph) {
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    const auto late = [&](ValueId v) { return v != kNoValue && graph.value(v).producer >= static_cast<int32_t>(n); };
    for (ValueId v : graph.nodes[n].in)
      if (late(v)) return false;
    for (const auto& [key, attribute] : graph.nodes[n].attrs)
      if (attribute.graph)
        for (const auto& [inner, outer] : attribute.graph->captures)
          if (late(outer)) return false;
  }
  return true;
}

}  // namespace

GraphBuilder::GraphBuilder(const ModelProto& model, TensorReader& tensors, bool (*is_operator)(const Node&))
    : model_(model), tensors_(tensors), is_operator_(is_operator) {}

Graph GraphBuilder::build() {
  for (const FunctionProto& f : model_.functions) {
    const std::string key = std::string(f.domain) + '\n' + std::string(f.name) + '\n' + std::string(f.overload);
    if (!functions_.emplace(key, &f).second)
      throw ImportError("function " + in_quotes(f.name) + " of domain " + in_quotes(f.domain) + " is defined twice");
  }
  Graph graph;
  root_ = &graph;
  GraphInMaking making{graph, {}, {}, 0};
  NameScope scope(making, nullptr);
  const WirePath path{"graph"};
  const Environment environment{scope, model_.opsets, nullptr, path, ""};
  build_graph(parse_graph(*model_.graph, path), environment);
  finish(graph);
  return graph;
}

void GraphBuilder::build_graph(const GraphProto& proto, const Environment& environment) {
  Graph& graph = environment.scope.target().graph;
  graph.name = proto.name;
  charge_inlined(environment.call, 32 * (proto.inputs.size() + proto.outputs.size() + proto.initializers.size() +
                                         proto.sparse_initializers.size()));
  declare_initializers(proto, environment);
  declare_inputs(proto, environment);
  declare_node_outputs(proto.nodes, environment, {});
  graph.nodes.reserve(proto.nodes.size());
  for (const NodeProto& node : proto.nodes) build_node(node, environment);
  set_outputs(proto, environment);
  if (is_sorted(graph)) return;
  if (Status s = graph.sort(); !s.is_ok()) throw ImportError(s.message());
}

void GraphBuilder::declare_initializers(const GraphProto& proto, const Environment& environment) {
  const auto declare = [&](const NamedTensor& tensor, const WirePath& path) {
    if (tensor.name.empty()) throw ImportError(path.str() + " has no name");
    const ValueId id = add_value(environment, tensor.name);
    if (!environment.scope.declare(tensor.name, id))
      throw ImportError("two initialisers are named " + in_quotes(tensor.name));
    set_constant(environment, id, tensor);
  };
  const bool repeated = environment.call != nullptr;
  for (size_t i = 0; i < proto.initializers.size(); ++i) {
    const WirePath path{"initializer", static_cast<int64_t>(i), &environment.path};
    declare(tensors_.read(proto.initializers[i], path, repeated, !repeated && environment.scope.target().depth == 0),
            path);
  }
  for (size_t i = 0; i < proto.sparse_initializers.size(); ++i) {
    const WirePath path{"sparse_initializer", static_cast<int64_t>(i), &environment.path};
    declare(tensors_.read_sparse(proto.sparse_initializers[i], path, repeated), path);
  }
}

void GraphBuilder::declare_inputs(const GraphProto& proto, const Environment& environment) {
  NameScope& scope = environment.scope;
  Graph& graph = scope.target().graph;
  const bool is_root = scope.target().depth == 0;
  std::unordered_set<std::string_view> seen;
  for (size_t i = 0; i < proto.inputs.size(); ++i) {
    const WirePath path{"input", static_cast<int64_t>(i), &environment.path};
    // An initialiser that is listed as an input too (as IR versions before 4 ask for) is a constant.
    DeclaredValue value = parse_value_info(proto.inputs[i], path, nullptr, true);
    if (!seen.insert(value.name).second) throw ImportError("two inputs are named " + in_quotes(value.name));
    if (scope.find_own(value.name)) continue;
    if (is_root) value = parse_value_info(proto.inputs[i], path, root_, true);
    if (is_root && value.info.type == DType::kNone)
      throw ImportError("input " + in_quotes(value.name) + " (" + path.str() + ") has no element type");
    const ValueId id = add_value(environment, value.name);
    scope.declare(value.name, id);
    graph.value(id).info = std::move(value.info);
    if (graph.inputs.size() == kMaxInputs)
      throw ImportError("input " + in_quotes(value.name) + " is one too many: at most " + std::to_string(kMaxInputs) +
                        " inputs are supported");
    graph.inputs.push_back(id);
  }
}

void GraphBuilder::declare_node_outputs(const std::vector<NodeProto>& nodes, const Environment& environment,
                                        const Targets& targets) {
  for (const NodeProto& node : nodes) {
    for (std::string_view name : node.outputs) {
      if (name.empty()) continue;
      if (environment.scope.find_own(name)) fail_second_producer(nodes, node, name);
      const auto target = targets.find(name);
      environment.scope.declare(name, target != targets.end() ? target->second : add_value(environment, name));
    }
  }
}

void GraphBuilder::set_outputs(const GraphProto& proto, const Environment& environment) {
  NameScope& scope = environment.scope;
  Graph& graph = scope.target().graph;
  const bool is_root = scope.target().depth == 0;
  std::unordered_set<std::string_view> seen;
  for (size_t i = 0; i < proto.outputs.size(); ++i) {
    const WirePath path{"output", static_cast<int64_t>(i), &environment.path};
    DeclaredValue value = parse_value_info(proto.outputs[i], path, is_root ? root_ : nullptr, false);
    if (is_root && !seen.insert(value.name).second) throw ImportError("two outputs are named " + in_quotes(value.name));
    const std::optional<ValueId> id = scope.resolve(value.name);
    if (!id || *id == kNoValue)
      throw ImportError("output " + in_quotes(value.name) + " (" + path.str() +
                        ") is produced by no node, input or initialiser");
    // What is known of inputs and constants is not overwritten by what the file says of its outputs.
    if (graph.value(*id).producer >= 0) graph.value(*id).info = std::move(value.info);
    graph.outputs.push_back(*id);
  }
}

ValueId GraphBuilder::add_value(const Environment& environment, std::string_view name) {
  charge_value();
  charge_inlined(environment.call, environment.prefix.size() + name.size());
  GraphInMaking& target = environment.scope.target();
  if (environment.prefix.empty()) return target.graph.add_value(target.value_names.take(name));
  return target.graph.add_value(target.value_names.take(environment.prefix + "/" + std::string(name)));
}

void GraphBuilder::set_constant(const Environment& environment, ValueId id, const NamedTensor& constant) {
  Graph& graph = environment.scope.target().graph;
  graph.value(id).info = constant_info(constant);
  graph.value(id).constant = constant.tensor;
  if (!constant.tensor.present()) strings_[&graph].insert(id);
}

// Once all graphs are complete: hands what is known of outer values to the subgraphs that capture them, and
// refuses strings where something reads them.
void GraphBuilder::finish(Graph& graph) {
  const std::unordered_set<ValueId>& strings = strings_[&graph];
  const auto check = [&](ValueId v, const std::string& user) {
    if (strings.count(v))
      throw ImportError(
          user + " uses the string constant " + in_quotes(graph.value(v).name) + "; strings are not supported",
          Code::kUnsupportedModel);
  };
  for (ValueId v : graph.outputs) check(v, "the graph's output");
  for (Node& node : graph.nodes) {
    for (ValueId v : node.in)
      if (!strings.empty()) check(v, node.label());
    for (auto& [key, attribute] : node.attrs) {
      if (!attribute.graph) continue;
      Graph& inner = *attribute.graph;
      inner.shared_symbol_names = graph.shared_symbol_names;
      for (const auto& [inside, outside] : inner.captures) {
        inner.value(inside).info = graph.value(outside).info;
        inner.value(inside).constant = graph.value(outside).constant;
        if (strings.count(outside)) strings_[&inner].insert(inside);
      }
      finish(inner);
    }
  }
}

void GraphBuilder::charge_node() {
  if (++nodes_ > kMaxNodes)
    throw ImportError("the model has more than " + std::to_string(kMaxNodes) +
                      " nodes, counting every call of its functions");
}

void GraphBuilder::charge_value() {
  if (++values_ > kMaxValues) throw ImportError("the model has more than " + std::to_string(kMaxValues) + " values");
}

void GraphBuilder::charge_inlined(const Call* call, size_t bytes) {
  if (!call) return;
  inlined_bytes_ += static_cast<int64_t>(bytes);
  if (inlined_bytes_ > kMaxInlinedBytes)
    throw ImportError("inlining the model's functions takes more than " + std::to_string(kMaxInlinedBytes >> 20) +
                      " MiB");
}

}  // namespace situ::onnx
