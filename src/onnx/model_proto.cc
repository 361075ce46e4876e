#include "onnx/model_proto.h"

#include <limits>

#include "onnx/limits.h"

namespace situ::onnx {
namespace {

std::string_view normalize_domain(std::string_view domain) { return domain == "ai.onnx" ? std::string_view() : domain; }

// A singular message field; protobuf would merge a second one, which no exporter writes.
void set_once(std::optional<std::string_view>& field, const char* name, WireReader& r) {
  if (field) r.fail(std::string("field '") + name + "' appears twice");
  field = r.bytes();
}

NodeProto parse_node(std::string_view bytes, int64_t index, const WirePath& parent) {
  const WirePath path{"node", index, &parent};
  WireReader r(bytes, path);
  NodeProto node;
  node.index = index;
  while (r.next()) switch (r.tag()) {
      case 1:
        node.inputs.push_back(r.bytes());
        break;
      case 2:
        node.outputs.push_back(r.bytes());
        break;
      case 3:
        node.name = r.bytes();
        break;
      case 4:
        node.op = r.bytes();
        break;
      case 5:
        node.attributes.push_back(r.bytes());
        break;
      case 7:
        node.domain = normalize_domain(r.bytes());
        break;
      case 8:
        node.overload = r.bytes();
        break;
      default:
        r.skip();
    }
  if (node.op.empty()) r.fail("a node without op_type");
  return node;
}

void append_node(std::vector<NodeProto>& nodes, WireReader& r) {
  if (static_cast<int64_t>(nodes.size()) >= kMaxNodes) r.fail("more than " + std::to_string(kMaxNodes) + " nodes");
  nodes.push_back(parse_node(r.bytes(), static_cast<int64_t>(nodes.size()), r.path()));
}

// OperatorSetIdProto.
void append_opset(Opsets& opsets, WireReader& model) {
  const WirePath path{"opset_import", static_cast<int64_t>(opsets.size()), &model.path()};
  WireReader r(model.bytes(), path);
  std::string_view domain;
  int64_t version = 0;
  while (r.next()) switch (r.tag()) {
      case 1:
        domain = normalize_domain(r.bytes());
        break;
      case 2:
        version = r.integer();
        break;
      default:
        r.skip();
    }
  const std::string name(domain.empty() ? "ai.onnx" : domain);
  if (version < 1 || version > std::numeric_limits<int>::max())
    r.fail("opset " + std::to_string(version) + " of domain '" + name + "' is out of range");
  const auto [it, fresh] = opsets.emplace(domain, static_cast<int>(version));
  if (!fresh && it->second != version)
    r.fail("domain '" + name + "' is imported twice, as opset " + std::to_string(it->second) + " and " +
           std::to_string(version));
}

FunctionProto parse_function(std::string_view bytes, int64_t index) {
  FunctionProto f;
  f.path = {"functions", index, nullptr};
  WireReader r(bytes, f.path);
  while (r.next()) switch (r.tag()) {
      case 1:
        f.name = r.bytes();
        break;
      case 4:
        f.inputs.push_back(r.bytes());
        break;
      case 5:
        f.outputs.push_back(r.bytes());
        break;
      case 6:
        f.attributes.push_back(r.bytes());
        break;
      case 7:
        append_node(f.nodes, r);
        break;
      case 9:
        append_opset(f.opsets, r);
        break;
      case 10:
        f.domain = normalize_domain(r.bytes());
        break;
      case 11:
        f.attribute_defaults.push_back(r.bytes());
        break;
      case 13:
        f.overload = r.bytes();
        break;
      default:
        r.skip();
    }
  if (f.name.empty()) r.fail("a function without a name");
  return f;
}

using Type = AttributeType;

// `type` says which field counts; files older than that field have exactly one. A type whose own field is absent
// while another is there cannot be trusted; absent alone is fine, proto3 writers leave out zeros and empty lists.
void check_attribute_type(AttributeProto& a, uint32_t present, WireReader& r) {
  const auto bit = [](Type t) { return 1u << static_cast<int>(t); };
  if (a.type == Type::kUndefined && a.ref.empty()) {
    for (int t = 1; t <= static_cast<int>(Type::kTypeProtos); ++t)
      if (present == (1u << t)) a.type = static_cast<Type>(t);
    if (a.type == Type::kUndefined)
      r.fail("attribute '" + std::string(a.name) + "' has no type and " + (present ? "several values" : "no value"));
  }
  if (present && !(present & bit(a.type)) && a.ref.empty())
    r.fail("attribute '" + std::string(a.name) + "' of type " + attribute_type_name(a.type) +
           " holds only a value of another type");
  if (!a.ref.empty()) return;
  if ((a.type == Type::kTensor || a.type == Type::kGraph || a.type == Type::kSparseTensor) && !(present & bit(a.type)))
    r.fail("attribute '" + std::string(a.name) + "' of type " + attribute_type_name(a.type) + " has no value");
}

}  // namespace

const char* attribute_type_name(AttributeType type) {
  static const char* const kNames[] = {
      "UNDEFINED", "FLOAT",   "INT",    "STRING",        "TENSOR",         "GRAPH",      "FLOATS",     "INTS",
      "STRINGS",   "TENSORS", "GRAPHS", "SPARSE_TENSOR", "SPARSE_TENSORS", "TYPE_PROTO", "TYPE_PROTOS"};
  const int i = static_cast<int>(type);
  return i >= 0 && i <= static_cast<int>(Type::kTypeProtos) ? kNames[i] : "unknown";
}

ModelProto parse_model(std::string_view bytes) {
  const WirePath path{"model"};
  WireReader r(bytes, path);
  ModelProto model;
  while (r.next()) switch (r.tag()) {
      case 1:
        model.ir_version = r.integer();
        break;
      case 2:
        model.producer_name = r.bytes();
        break;
      case 3:
        model.producer_version = r.bytes();
        break;
      case 7:
        set_once(model.graph, "graph", r);
        break;
      case 8:
        append_opset(model.opsets, r);
        break;
      case 25:
        model.functions.push_back(parse_function(r.bytes(), static_cast<int64_t>(model.functions.size())));
        break;
      default:
        r.skip();
    }
  return model;
}

GraphProto parse_graph(std::string_view bytes, const WirePath& path) {
  WireReader r(bytes, path);
  GraphProto graph;
  while (r.next()) switch (r.tag()) {
      case 1:
        append_node(graph.nodes, r);
        break;
      case 2:
        graph.name = r.bytes();
        break;
      case 5:
        graph.initializers.push_back(r.bytes());
        break;
      case 11:
        graph.inputs.push_back(r.bytes());
        break;
      case 12:
        graph.outputs.push_back(r.bytes());
        break;
      case 15:
        graph.sparse_initializers.push_back(r.bytes());
        break;
      default:
        r.skip();
    }
  return graph;
}

AttributeProto parse_attribute(std::string_view bytes, const WirePath& path) {
  WireReader r(bytes, path);
  AttributeProto a;
  std::optional<std::string_view> tensor, graph, sparse_tensor;
  uint32_t present = 0;
  const auto seen = [&present](Type t) { present |= 1u << static_cast<int>(t); };
  while (r.next()) switch (r.tag()) {
      case 1:
        a.name = r.bytes();
        break;
      case 2:
        a.f = r.float32();
        seen(Type::kFloat);
        break;
      case 3:
        a.i = r.integer();
        seen(Type::kInt);
        break;
      case 4:
        a.s = r.bytes();
        seen(Type::kString);
        break;
      case 5:
        set_once(tensor, "t", r);
        seen(Type::kTensor);
        break;
      case 6:
        set_once(graph, "g", r);
        seen(Type::kGraph);
        break;
      case 7:
        r.floats([&](float v) { a.floats.push_back(v); });
        seen(Type::kFloats);
        break;
      case 8:
        r.integers([&](uint64_t v) { a.ints.push_back(static_cast<int64_t>(v)); });
        seen(Type::kInts);
        break;
      case 9:
        a.strings.push_back(r.bytes());
        seen(Type::kStrings);
        break;
      case 10:
        r.skip();
        seen(Type::kTensors);
        break;
      case 11:
        r.skip();
        seen(Type::kGraphs);
        break;
      case 14:
        r.skip();
        seen(Type::kTypeProto);
        break;
      case 15:
        r.skip();
        seen(Type::kTypeProtos);
        break;
      case 20:
        a.type = static_cast<Type>(r.integer32());
        break;
      case 21:
        a.ref = r.bytes();
        break;
      case 22:
        set_once(sparse_tensor, "sparse_tensor", r);
        seen(Type::kSparseTensor);
        break;
      case 23:
        r.skip();
        seen(Type::kSparseTensors);
        break;
      default:
        r.skip();
    }
  if (a.name.empty()) r.fail("an attribute without a name");
  const int type = static_cast<int>(a.type);
  if (type < 0 || type > static_cast<int>(Type::kTypeProtos))
    r.fail("attribute '" + std::string(a.name) + "' has unknown type " + std::to_string(type));
  check_attribute_type(a, present, r);
  a.tensor = tensor.value_or(std::string_view());
  a.graph = graph.value_or(std::string_view());
  a.sparse_tensor = sparse_tensor.value_or(std::string_view());
  return a;
}

}  // namespace situ::onnx
