// The messages of onnx.proto as views into the mapped file: nothing here owns bytes or copies weights.
// Nested messages that are read later (or never) stay std::string_view.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "onnx/wire.h"

namespace situ::onnx {

// Domain ("" for ai.onnx) -> version.
using Opsets = std::map<std::string, int, std::less<>>;

struct NodeProto {
  std::string_view name, op, domain, overload;
  std::vector<std::string_view> inputs, outputs;
  std::vector<std::string_view> attributes;  // AttributeProto
  int64_t index = 0;                         // position in its graph or function
};

struct GraphProto {
  std::string_view name;
  std::vector<NodeProto> nodes;
  std::vector<std::string_view> initializers;         // TensorProto
  std::vector<std::string_view> sparse_initializers;  // SparseTensorProto
  std::vector<std::string_view> inputs, outputs;      // ValueInfoProto
};

struct FunctionProto {
  std::string_view name, domain, overload;
  std::vector<std::string_view> inputs, outputs;
  std::vector<std::string_view> attributes;          // names without a default
  std::vector<std::string_view> attribute_defaults;  // AttributeProto
  std::vector<NodeProto> nodes;
  Opsets opsets;
  WirePath path;
};

struct ModelProto {
  int64_t ir_version = 0;
  std::string_view producer_name, producer_version;
  std::optional<std::string_view> graph;  // GraphProto
  std::vector<FunctionProto> functions;
  Opsets opsets;
};

// AttributeProto.AttributeType.
enum class AttributeType : int32_t {
  kUndefined = 0,
  kFloat = 1,
  kInt = 2,
  kString = 3,
  kTensor = 4,
  kGraph = 5,
  kFloats = 6,
  kInts = 7,
  kStrings = 8,
  kTensors = 9,
  kGraphs = 10,
  kSparseTensor = 11,
  kSparseTensors = 12,
  kTypeProto = 13,
  kTypeProtos = 14,
};
const char* attribute_type_name(AttributeType type);

struct AttributeProto {
  std::string_view name, ref;                      // ref: the function's attribute whose value this one takes
  AttributeType type = AttributeType::kUndefined;  // found from the fields present where the file has none
  int64_t i = 0;
  float f = 0;
  std::string_view s, tensor, graph, sparse_tensor;
  std::vector<int64_t> ints;
  std::vector<float> floats;
  std::vector<std::string_view> strings;
};

// All throw ImportError for bytes that are not such a message. Domains come back with "" for "ai.onnx".
ModelProto parse_model(std::string_view bytes);
GraphProto parse_graph(std::string_view bytes, const WirePath& path);
AttributeProto parse_attribute(std::string_view bytes, const WirePath& path);

}  // namespace situ::onnx
