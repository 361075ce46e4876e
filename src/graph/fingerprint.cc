#include "graph/fingerprint.h"

#include <bit>

namespace situ {
namespace {

uint64_t address(const void* p) { return reinterpret_cast<uintptr_t>(p); }

// A list is told from another one by its length too.
template <typename List, typename Each>
void add_all(Fingerprint& sum, const List& list, const Each& each) {
  sum.add(list.size());
  for (const auto& x : list) each(x);
}

void add_ids(Fingerprint& sum, const std::vector<ValueId>& ids) {
  add_all(sum, ids, [&](ValueId v) { sum.add(static_cast<uint64_t>(v)); });
}

void add_dims(Fingerprint& sum, const std::vector<Dim>& dims) {
  add_all(sum, dims, [&](const Dim& d) { sum.add(d); });
}

// All members by name, so that a new one does not compile before it is thought of here.
void add_attribute(Fingerprint& sum, const Attribute& attribute) {
  const auto& [kind, i, f, s, ints, floats, strings, tensor, graph] = attribute;
  sum.add(static_cast<uint64_t>(kind));
  sum.add(static_cast<uint64_t>(i));
  sum.add(std::bit_cast<uint32_t>(f));
  sum.add(s);
  add_all(sum, ints, [&](int64_t x) { sum.add(static_cast<uint64_t>(x)); });
  add_all(sum, floats, [&](float x) { sum.add(std::bit_cast<uint32_t>(x)); });
  add_all(sum, strings, [&](const std::string& x) { sum.add(x); });
  sum.add(tensor);
  sum.add(address(graph.get()));
  if (graph) sum.add(fingerprint(*graph));
}

void add_node(Fingerprint& sum, const Node& node) {
  const auto& [name, domain, op, opset, in, out, attrs, def, mixed_floats, computed_in_place, attribute_error] = node;
  sum.add(domain);
  sum.add(op);
  sum.add(static_cast<uint64_t>(opset));
  add_ids(sum, in);
  add_ids(sum, out);
  add_all(sum, attrs, [&](const auto& entry) {
    sum.add(entry.first);
    add_attribute(sum, entry.second);
  });
  sum.add(address(def));
  sum.add(mixed_floats + 2u * computed_in_place);
  sum.add(attribute_error);
}

void add_value(Fingerprint& sum, const Value& value) {
  const auto& [name, info, constant, producer] = value;
  const auto& [type, ranked, shape, content] = info;
  sum.add(static_cast<uint64_t>(type) * 4 + 2u * ranked + content.has_value());
  add_dims(sum, shape);
  if (content) add_dims(sum, *content);
  sum.add(constant);
  sum.add(static_cast<uint64_t>(producer));
}

}  // namespace

void Fingerprint::add(const Dim& d) { add(d.is_const() ? static_cast<uint64_t>(d.value()) : d.fingerprint()); }

void Fingerprint::add(const Tensor& t) {
  add(static_cast<uint64_t>(t.type()));
  if (!t.present()) return;
  add(address(t.place()));
  add(static_cast<uint64_t>(t.rank()));
  for (int i = 0; i < t.rank(); ++i) add(static_cast<uint64_t>(t.dim(i)));
}

uint64_t fingerprint(const Graph& graph) {
  const auto& [name, values, nodes, inputs, outputs, captures, shared_symbol_names] = graph;
  Fingerprint sum;
  add_all(sum, values, [&](const Value& v) { add_value(sum, v); });
  add_all(sum, nodes, [&](const Node& n) { add_node(sum, n); });
  add_ids(sum, inputs);
  add_ids(sum, outputs);
  add_all(sum, captures, [&](const auto& capture) {
    sum.add(static_cast<uint64_t>(capture.first));
    sum.add(static_cast<uint64_t>(capture.second));
  });
  return sum.sum();
}

}  // namespace situ
