// AttributeProto -> Attribute: values, tensors, subgraphs, and references to a function's attributes.
#include <cstring>

#include "onnx/graph_builder.h"
#include "onnx/limits.h"

namespace situ::onnx {
namespace {

NamedTensor named(Tensor tensor) {
  const DType type = tensor.type();
  const std::vector<int64_t> dims = tensor.dims();
  return {{}, type, dims, std::move(tensor)};
}

Tensor float_tensor(const std::vector<int64_t>& dims, const float* data, size_t count) {
  Tensor tensor = Tensor::allocate(DType::kF32, dims);
  if (count) std::memcpy(tensor.view().data, data, count * sizeof(float));
  return tensor;
}

}  // namespace

GraphBuilder::AttributePath::AttributePath(const AttributeSource& source)
    : node{"node", source.node, &source.environment->path},
      attribute{source.node < 0 ? "attribute_proto" : "attribute", source.index,
                source.node < 0 ? &source.environment->path : &node} {}

std::optional<GraphBuilder::ResolvedAttribute> GraphBuilder::resolve_attribute(AttributeSource source) {
  const Call* user = source.environment->call;
  std::optional<std::string_view> name;
  while (true) {  // every turn goes one call further out
    const AttributePath path(source);
    AttributeProto proto = parse_attribute(source.bytes, path.attribute);
    charge_inlined(user, source.bytes.size() - proto.tensor.size() - proto.graph.size());
    if (!name) name = proto.name;
    if (proto.ref.empty()) {
      proto.name = *name;
      return ResolvedAttribute{std::move(proto), source};
    }
    const std::string what =
        "attribute '" + std::string(proto.name) + "' refers to attribute '" + std::string(proto.ref) + "'";
    const Call* call = source.environment->call;
    if (!call) throw ImportError(what + " of a function, but stands in none");
    const auto it = call->attributes.find(proto.ref);
    if (it == call->attributes.end())
      throw ImportError(what + ", which function '" + std::string(call->function.name) + "' does not declare");
    if (!it->second.environment) return std::nullopt;
    source = it->second;
  }
}

Attribute GraphBuilder::build_attribute(const ResolvedAttribute& attribute, const Environment& user) {
  const AttributeProto& proto = attribute.proto;
  Attribute result;
  switch (proto.type) {
    case AttributeType::kFloat:
      result.kind = Attribute::Kind::kFloat;
      result.f = proto.f;
      break;
    case AttributeType::kInt:
      result.kind = Attribute::Kind::kInt;
      result.i = proto.i;
      break;
    case AttributeType::kString:
      result.kind = Attribute::Kind::kString;
      result.s = proto.s;
      break;
    case AttributeType::kFloats:
      result.kind = Attribute::Kind::kFloats;
      result.floats = proto.floats;
      break;
    case AttributeType::kInts:
      result.kind = Attribute::Kind::kInts;
      result.ints = proto.ints;
      break;
    case AttributeType::kStrings:
      result.kind = Attribute::Kind::kStrings;
      result.strings.assign(proto.strings.begin(), proto.strings.end());
      break;
    case AttributeType::kTensor: {
      const AttributePath path(attribute.source);
      const WirePath tensor_path{"t", -1, &path.attribute};
      result.kind = Attribute::Kind::kTensor;
      result.tensor = tensors_.read(proto.tensor, tensor_path, user.call != nullptr).tensor;
      if (!result.tensor.present())
        throw ImportError("attribute '" + std::string(proto.name) + "' is a tensor of strings, which are not supported",
                          Code::kUnsupportedModel);
      break;
    }
    case AttributeType::kGraph:
      result.kind = Attribute::Kind::kGraph;
      result.graph = build_subgraph(attribute, user);
      break;
    default:
      throw ImportError("attribute '" + std::string(proto.name) + "' of type " + attribute_type_name(proto.type) +
                            " is not supported",
                        Code::kUnsupportedModel);
  }
  return result;
}

std::shared_ptr<Graph> GraphBuilder::build_subgraph(const ResolvedAttribute& attribute, const Environment& user) {
  const Environment& environment = *attribute.source.environment;  // where the graph's text stands
  const std::string what = "attribute '" + std::string(attribute.proto.name) + "'";
  // Captures lead from a graph to the one around it; a graph handed through would skip levels.
  if (&environment.scope.target() != &user.scope.target())
    throw ImportError(
        what + " is a graph handed to a function that uses it inside another graph; that is not supported",
        Code::kUnsupportedModel);
  const int depth = user.scope.target().depth + 1;
  if (depth > kMaxGraphDepth)
    throw ImportError(what + " is a graph nested deeper than " + std::to_string(kMaxGraphDepth) + " levels");
  const AttributePath path(attribute.source);
  const WirePath graph_path{"g", -1, &path.attribute};
  auto graph = std::make_shared<Graph>();
  GraphInMaking making{*graph, {}, {}, depth};
  NameScope scope(making, &environment.scope);
  build_graph(parse_graph(attribute.proto.graph, graph_path),
              Environment{scope, environment.opsets, environment.call, graph_path, ""});
  return graph;
}

NamedTensor GraphBuilder::constant_value(const NodeProto& proto, const Environment& environment) {
  if (proto.attributes.size() != 1)
    throw ImportError("has " + std::to_string(proto.attributes.size()) + " attributes, a Constant has one");
  const std::optional<ResolvedAttribute> attribute =
      resolve_attribute({proto.attributes[0], &environment, proto.index, 0});
  if (!attribute) throw ImportError("its value is an attribute that the function's caller leaves out");
  const AttributeProto& a = attribute->proto;
  const AttributePath path(attribute->source);
  const bool repeated = environment.call != nullptr;
  switch (a.type) {
    case AttributeType::kTensor:
      return tensors_.read(a.tensor, {"t", -1, &path.attribute}, repeated,
                           !repeated && environment.scope.target().depth == 0);
    case AttributeType::kSparseTensor:
      return tensors_.read_sparse(a.sparse_tensor, {"sparse_tensor", -1, &path.attribute}, repeated);
    case AttributeType::kInt:
      return named(Tensor::scalar_i64(a.i));
    case AttributeType::kInts:
      return named(Tensor::vector_i64(a.ints));
    case AttributeType::kFloat:
      return named(float_tensor({}, &a.f, 1));
    case AttributeType::kFloats:
      return named(float_tensor({static_cast<int64_t>(a.floats.size())}, a.floats.data(), a.floats.size()));
    case AttributeType::kString:
      return {{}, DType::kString, {}, {}};
    case AttributeType::kStrings:
      return {{}, DType::kString, {static_cast<int64_t>(a.strings.size())}, {}};
    default:
      throw ImportError("attribute '" + std::string(a.name) + "' of type " + attribute_type_name(a.type) +
                        " is not a constant's value");
  }
}

}  // namespace situ::onnx
