// Calls of model-local functions become the nodes of their bodies, with fresh value names.
#include <algorithm>

#include "onnx/graph_builder.h"
#include "onnx/limits.h"

namespace situ::onnx {
namespace {

std::string function_text(const FunctionProto& f) {
  return "function '" + std::string(f.name) + "' of domain '" + std::string(f.domain) + "'";
}

std::string numbers(const char* what, size_t got, size_t declared) {
  return std::to_string(got) + " " + what + ", it has " + std::to_string(declared);
}

// Counts calls for as long as one is being inlined.
class Depth {
 public:
  explicit Depth(int& depth) : depth_(depth) { ++depth_; }
  ~Depth() { --depth_; }
  Depth(const Depth&) = delete;
  Depth& operator=(const Depth&) = delete;

 private:
  int& depth_;
};

}  // namespace

const FunctionProto* GraphBuilder::find_function(const NodeProto& proto) const {
  if (functions_.empty()) return nullptr;
  const auto it =
      functions_.find(std::string(proto.domain) + '\n' + std::string(proto.op) + '\n' + std::string(proto.overload));
  return it == functions_.end() ? nullptr : it->second;
}

bool GraphBuilder::is_operator(const FunctionProto& function, Node node) const {
  if (!is_operator_) return false;
  node.opset = std::max(node.opset, 1);
  node.in.assign(function.inputs.size(), 0);
  node.out.assign(function.outputs.size(), 0);
  for (const std::string_view name : function.attributes) node.attrs[std::string(name)];
  for (size_t i = 0; i < function.attribute_defaults.size(); ++i) {
    const WirePath path{"attribute_proto", static_cast<int64_t>(i), &function.path};
    node.attrs[std::string(parse_attribute(function.attribute_defaults[i], path).name)];
  }
  return is_operator_(node);
}

// Attributes that a call leaves out are those of the function, whatever the operator takes them for.
void GraphBuilder::add_defaults(const FunctionProto& function, const Environment& environment, Node* node) {
  const Environment defaults{environment.scope, function.opsets, nullptr, function.path, node->name};
  for (size_t i = 0; i < function.attribute_defaults.size(); ++i) {
    const AttributeSource source{function.attribute_defaults[i], &defaults, -1, static_cast<int64_t>(i)};
    const std::optional<ResolvedAttribute> attribute = resolve_attribute(source);
    if (attribute && !node->attrs.count(std::string(attribute->proto.name)))
      node->attrs.emplace(attribute->proto.name, build_attribute(*attribute, defaults));
  }
}

void GraphBuilder::inline_call(const FunctionProto& function, const Node& node, const NodeProto& proto,
                               const Environment& environment) {
  for (const Call* c = environment.call; c; c = c->outer)
    if (&c->function == &function) throw ImportError(function_text(function) + " calls itself");
  const Depth depth(call_depth_);
  if (call_depth_ > kMaxCallDepth)
    throw ImportError("functions call functions more than " + std::to_string(kMaxCallDepth) + " levels deep");
  if (proto.inputs.size() > function.inputs.size())
    throw ImportError(function_text(function) + " is called with " +
                      numbers("inputs", proto.inputs.size(), function.inputs.size()));
  if (proto.outputs.size() > function.outputs.size())
    throw ImportError(function_text(function) + " is called for " +
                      numbers("outputs", proto.outputs.size(), function.outputs.size()));

  NameScope scope(environment.scope.target(), nullptr);
  const Environment defaults{scope, function.opsets, nullptr, function.path, node.name};
  const Call call{function, environment.call, call_attributes(function, proto, environment, defaults)};
  const Environment body{scope, function.opsets, &call, function.path, node.name};
  charge_inlined(&call, 32 * (function.inputs.size() + function.outputs.size() + call.attributes.size()));

  const std::vector<ValueId> in = operands(proto, environment);
  for (size_t i = 0; i < function.inputs.size(); ++i)
    if (!scope.declare(function.inputs[i], i < in.size() ? in[i] : kNoValue))
      throw ImportError(function_text(function) + " has two inputs named '" + std::string(function.inputs[i]) + "'");

  Node outer = node;
  outer.out = results(proto, environment);
  Targets targets;
  for (size_t i = 0; i < outer.out.size(); ++i)
    if (outer.out[i] != kNoValue) targets.emplace(function.outputs[i], outer.out[i]);
  declare_node_outputs(function.nodes, body, targets);
  for (const NodeProto& inner : function.nodes) build_node(inner, body);
  forward_outputs(function, outer, body);
}

std::unordered_map<std::string_view, GraphBuilder::AttributeSource> GraphBuilder::call_attributes(
    const FunctionProto& function, const NodeProto& proto, const Environment& environment,
    const Environment& defaults) const {
  std::unordered_map<std::string_view, AttributeSource> result;
  for (std::string_view name : function.attributes) result[name] = {};
  const auto add = [&result](const AttributeSource& source) {
    const AttributePath path(source);
    result[parse_attribute(source.bytes, path.attribute).name] = source;
  };
  for (size_t i = 0; i < function.attribute_defaults.size(); ++i)
    add({function.attribute_defaults[i], &defaults, -1, static_cast<int64_t>(i)});
  for (size_t i = 0; i < proto.attributes.size(); ++i)
    add({proto.attributes[i], &environment, proto.index, static_cast<int64_t>(i)});
  return result;
}

// Outputs that no node of the body writes straight into the caller's value: a function may return one of its
// inputs, or one value twice.
void GraphBuilder::forward_outputs(const FunctionProto& function, const Node& call, const Environment& body) {
  Graph& graph = body.scope.target().graph;
  for (size_t i = 0; i < call.out.size(); ++i) {
    const std::string_view name = function.outputs[i];
    const ValueId wanted = call.out[i];
    if (wanted == kNoValue) continue;
    const std::optional<ValueId> made = body.scope.find_own(name);
    if (!made || *made == kNoValue)
      throw ImportError(function_text(function) + ": output '" + std::string(name) +
                        "' is produced by none of its nodes");
    if (*made == wanted) continue;
    charge_node();
    Node identity;
    identity.op = "Identity";
    identity.name = body.scope.target().node_names.take(call.name + "/Identity:" + std::string(name));
    identity.opset = model_.opsets.count("") || function.opsets.count("") ? opset_of("", body) : 1;
    identity.in = {*made};
    identity.out = {wanted};
    graph.add_node(std::move(identity));
  }
}

}  // namespace situ::onnx
