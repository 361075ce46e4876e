// One NodeProto -> a Node, a constant value, or the body of a function.
#include "onnx/graph_builder.h"
#include "onnx/limits.h"

namespace situ::onnx {
namespace {

std::string first_output(const NodeProto& proto) {
  for (std::string_view name : proto.outputs)
    if (!name.empty()) return std::string(name);
  return "";
}

// Passes and the planner index axes by it.
void check_permutation(const Node& node) {
  const std::vector<int64_t> perm = node.attr_ints("perm");
  std::vector<bool> seen(perm.size(), false);
  for (const int64_t axis : perm) {
    if (axis < 0 || axis >= static_cast<int64_t>(perm.size()) || seen[static_cast<size_t>(axis)]) {
      std::string text;
      for (const int64_t a : perm) text += (text.empty() ? "" : ", ") + std::to_string(a);
      throw ImportError("perm [" + text + "] is not a permutation of the axes 0 to " + std::to_string(perm.size() - 1));
    }
    seen[static_cast<size_t>(axis)] = true;
  }
}

// In which opset behind kLastWholeOpset, and not behind `opset`, the operator changed first; 0: in none.
int changed_in(std::string_view op, int opset) {
  struct Change {
    std::string_view op;
    int opset;
  };
#define SITU_CHANGED(op, opset) {#op, opset},
  static constexpr Change kChanges[] = {
#include "onnx/changed_operators.inc"
  };
#undef SITU_CHANGED
  for (const Change& c : kChanges)
    if (c.op == op && c.opset <= opset) return c.opset;
  return 0;
}

}  // namespace

void GraphBuilder::note_changed(const Node& node, int opset) {
  const int since = opset > kLastWholeOpset ? changed_in(node.op, opset) : 0;
  if (since == 0) return;
  const auto [it, fresh] = changed_.try_emplace({node.op, opset}, ChangedOperator{since, 0, node.name});
  ++it->second.nodes;
}

Status GraphBuilder::refuse_changed() const {
  if (changed_.empty()) return Status::ok();
  std::string text;
  Reasons reasons;
  const std::string last = std::to_string(kLastWholeOpset), advice = "export with opset " + last + " or a lower one";
  for (const auto& [key, c] : changed_) {
    reasons.push_back({Reason::Kind::kOpset, key.first, "ai.onnx", key.second, c.nodes, c.first,
                       "changed in opset " + std::to_string(c.since), advice});
    text += (text.empty() ? "" : "; ") + key.first + " of opset " + std::to_string(key.second) + " (changed in " +
            std::to_string(c.since) + ", " + std::to_string(c.nodes) + (c.nodes == 1 ? " node" : " nodes") +
            ", first '" + c.first + "')";
  }
  return Status::error(Code::kUnsupportedModel, "operators of ai.onnx that changed behind opset " + last +
                                                    " are not supported: " + text + "; " + advice)
      .because(std::move(reasons));
}

void GraphBuilder::build_node(const NodeProto& proto, const Environment& environment) {
  charge_node();
  charge_inlined(environment.call, environment.prefix.size() + proto.name.size() + proto.op.size() +
                                       16 * (4 + proto.inputs.size() + proto.outputs.size()));
  Node node;
  node.op = proto.op;
  node.domain = proto.domain;
  node.name = proto.name.empty() ? node.op + ":" + first_output(proto) : std::string(proto.name);
  if (!environment.prefix.empty()) node.name = environment.prefix + "/" + node.name;
  const FunctionProto* function = find_function(proto);
  const bool is_constant = !function && node.is("Constant");
  if (!is_constant) node.name = environment.scope.target().node_names.take(node.name);
  const std::string label = node.label();
  Node here;  // for errors
  here.op = node.op;
  here.domain = node.domain;
  here.name = node.name;
  here.opset = imported_opset(node.domain, environment);
  const bool calls = function && !is_operator(*function, here);
  if (!calls && node.domain.empty()) note_changed(node, imported_opset("", environment));
  try {
    if (calls) {
      inline_call(*function, node, proto, environment);
    } else if (is_constant) {
      const std::vector<ValueId> out = results(proto, environment);
      if (out.size() != 1 || out[0] == kNoValue) throw ImportError("a Constant must have one output");
      set_constant(environment, out[0], constant_value(proto, environment));
    } else {
      build_operator(std::move(node), proto, environment, function);
    }
  } catch (const ImportError& e) {
    Reasons reasons = e.reasons();
    if (reasons.empty() && e.code() == Code::kUnsupportedModel)
      reasons.push_back(here.reason(Reason::Kind::kAttribute, e.message()));
    throw ImportError(label + ": " + e.message(), e.code(), std::move(reasons));
  }
}

// Operands that no version of an operator leaves out: what reads them later does not ask.
static void check_operands(const Node& node) {
  static const std::set<std::string> kAll{"Where", "ScatterElements", "ScatterND", "Scatter", "Range", "OneHot"};
  for (size_t i = 0; i < node.in.size(); ++i)
    if (node.in[i] == kNoValue && ((i == 0 && node.op != "Loop") || (node.domain.empty() && kAll.count(node.op))))
      throw ImportError("operand " + std::to_string(i) + " is left out, and " + node.op + " needs it");
}

void GraphBuilder::build_operator(Node node, const NodeProto& proto, const Environment& environment,
                                  const FunctionProto* function) {
  node.opset = opset_of(node.domain, environment);
  node.in = operands(proto, environment);
  while (!node.in.empty() && node.in.back() == kNoValue) node.in.pop_back();
  check_operands(node);
  node.out = results(proto, environment);
  for (size_t i = 0; i < proto.attributes.size(); ++i) {
    const AttributeSource source{proto.attributes[i], &environment, proto.index, static_cast<int64_t>(i)};
    const std::optional<ResolvedAttribute> attribute = resolve_attribute(source);
    if (!attribute) continue;
    const std::string name(attribute->proto.name);
    if (node.attrs.count(name)) throw ImportError("attribute '" + name + "' appears twice");
    node.attrs.emplace(name, build_attribute(*attribute, environment));
  }
  if (function) add_defaults(*function, environment, &node);
  if (node.is("Transpose")) check_permutation(node);
  if (node.is("Compress") && node.in.size() == 2 && node.out.size() == 1) return build_compress(node, environment);
  environment.scope.target().graph.add_node(std::move(node));
}

// Compress(x, which) -> Gather(x, Reshape(NonZero(which), [-1])), of x with one axis where none is named.
void GraphBuilder::build_compress(const Node& node, const Environment& environment) {
  Graph& graph = environment.scope.target().graph;
  const auto make = [&](const char* op, std::vector<ValueId> in, ValueId out) {
    Node made;
    made.op = op;
    made.name = environment.scope.target().node_names.take(node.name + "/" + op);
    made.opset = node.opset;
    made.in = std::move(in);
    made.out = {out != kNoValue ? out : add_value(environment, made.name)};
    graph.add_node(made);
    charge_node();
    return made.out[0];
  };
  const ValueId row = add_value(environment, node.name + "/row");
  graph.value(row).constant = Tensor::vector_i64({-1});
  graph.value(row).info = {DType::kI64, true, {Dim(1)}, std::vector<Dim>{Dim(-1)}};
  const bool flat = node.attr("axis") == nullptr;
  const ValueId x = flat ? make("Reshape", {node.in[0], row}, kNoValue) : node.in[0];
  const ValueId found = make("NonZero", {node.in[1]}, kNoValue);
  const ValueId places = make("Reshape", {found, row}, kNoValue);
  make("Gather", {x, places}, node.out[0]);
  graph.nodes.back().set_int("axis", flat ? 0 : node.attr_int("axis", 0));
}

std::vector<ValueId> GraphBuilder::operands(const NodeProto& proto, const Environment& environment) {
  std::vector<ValueId> in;
  in.reserve(proto.inputs.size());
  for (std::string_view name : proto.inputs) {
    const std::optional<ValueId> id = name.empty() ? kNoValue : environment.scope.resolve(name);
    if (!id)
      throw ImportError("operand " + std::to_string(in.size()) + " '" + std::string(name) +
                        "' is produced by no node, input or initialiser");
    in.push_back(*id);
  }
  return in;
}

std::vector<ValueId> GraphBuilder::results(const NodeProto& proto, const Environment& environment) {
  std::vector<ValueId> out;
  out.reserve(proto.outputs.size());
  for (std::string_view name : proto.outputs)
    out.push_back(name.empty() ? kNoValue : environment.scope.find_own(name).value());
  return out;
}

int GraphBuilder::imported_opset(const std::string& domain, const Environment& environment) const {
  if (auto it = environment.opsets.find(domain); it != environment.opsets.end()) return it->second;
  if (auto it = model_.opsets.find(domain); it != model_.opsets.end()) return it->second;
  return 0;
}

int GraphBuilder::opset_of(const std::string& domain, const Environment& environment) const {
  const int opset = imported_opset(domain, environment);
  if (opset == 0 && domain.empty())
    throw ImportError("an operator of ai.onnx, but the model imports no opset of that domain");
  return opset > 0 ? opset : 1;  // com.microsoft and others are often used without being imported
}

}  // namespace situ::onnx
