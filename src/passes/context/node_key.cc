#include "passes/context/node_key.h"

#include <bit>
#include <map>

namespace situ {
namespace {

// What is in a text cannot be taken for what stands behind it.
std::string quoted(const std::string& s) { return std::to_string(s.size()) + "'" + s; }

std::string attribute_key(const Attribute& a) {
  const auto bits = [](float f) { return std::to_string(std::bit_cast<uint32_t>(f)); };
  std::string key =
      std::to_string(static_cast<int>(a.kind)) + ":" + std::to_string(a.i) + "," + bits(a.f) + quoted(a.s);
  for (const int64_t i : a.ints) key += "," + std::to_string(i);
  key += "/";
  for (const float f : a.floats) key += "," + bits(f);
  for (const std::string& s : a.strings) key += quoted(s);
  if (a.tensor.present()) key += "@" + std::to_string(reinterpret_cast<uintptr_t>(a.tensor.view().data));
  if (a.graph) key += "g" + std::to_string(reinterpret_cast<uintptr_t>(a.graph.get()));
  return key;
}

}  // namespace

std::string node_key(const Node& n, const std::function<std::string(ValueId)>& operand) {
  std::string key = n.domain + "." + n.op + std::to_string(n.opset);
  for (const auto& [name, a] : n.attrs) key += ";" + name + "=" + attribute_key(a);
  for (const ValueId v : n.in) key += "|" + (v == kNoValue ? std::string() : operand(v));
  return key;
}

std::string cone_key(const Graph& graph, const std::vector<int>& nodes, ValueId leaf,
                     const std::function<std::string(ValueId)>& operand) {
  std::map<ValueId, size_t> place{{leaf, 0}};
  std::string key = shape_str(graph.values[static_cast<size_t>(leaf)].info.shape);
  for (const int i : nodes) {
    const Node& n = graph.nodes[static_cast<size_t>(i)];
    key += "\n" + node_key(n, [&](ValueId v) {
             const auto inside = place.find(v);
             return inside != place.end() ? "<" + std::to_string(inside->second) : operand(v);
           });
    for (const ValueId v : n.out) place.emplace(v, place.size());
  }
  return key;
}

std::string numbers_key(const Value& value) {
  std::string key = std::string(dtype_name(value.info.type)) + shape_str(value.info.shape);
  const Tensor& t = value.constant;
  if (!t.present()) {
    if (!value.info.content) return "";
    for (const Dim& d : *value.info.content) key += "," + d.str();
    return key;
  }
  if (t.count() > kMaxContent) return "";
  if (dtype_is_float(t.type())) {
    for (const double d : t.to_f64()) key += "," + std::to_string(std::bit_cast<uint64_t>(d));
    return key;
  }
  if (t.type() != DType::kI64 && t.type() != DType::kI32 && t.type() != DType::kBool) return "";
  for (const int64_t i : t.to_i64()) key += "," + std::to_string(i);
  return key;
}

}  // namespace situ
