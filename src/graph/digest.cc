#include "graph/digest.h"

#include <algorithm>
#include <bit>

namespace situ {
namespace {

constexpr int64_t kRead = 2048;  // bytes at each end of a constant

void mix_bytes(WordSum& sum, const std::byte* bytes, int64_t count) {
  sum.add(std::string_view(reinterpret_cast<const char*>(bytes), static_cast<size_t>(count)));
}

void mix_tensor(WordSum& sum, const Tensor& t) {
  sum.add(static_cast<uint64_t>(t.type()));
  if (!t.present()) return;
  for (const int64_t d : t.dims()) sum.add(static_cast<uint64_t>(d));
  if (t.depth() > 0 || !t.contiguous()) return;
  const std::byte* data = t.view().as<const std::byte>();
  const int64_t bytes = t.bytes();
  mix_bytes(sum, data, std::min(bytes, kRead));
  if (bytes > kRead) mix_bytes(sum, data + std::max(kRead, bytes - kRead), std::min(kRead, bytes - kRead));
}

void mix_dims(WordSum& sum, const std::vector<Dim>& dims) {
  sum.add(dims.size());
  for (const Dim& d : dims) sum.add(d.is_const() ? static_cast<uint64_t>(d.value()) : d.fingerprint());
}

void mix_info(WordSum& sum, const ValueInfo& info) {
  sum.add(static_cast<uint64_t>(info.type) * 2 + info.ranked);
  mix_dims(sum, info.shape);
}

// All but a graph.
void mix_attribute(WordSum& sum, const Attribute& a) {
  sum.add(static_cast<uint64_t>(a.kind));
  sum.add(static_cast<uint64_t>(a.i));
  sum.add(std::bit_cast<uint32_t>(a.f));
  sum.add(a.s);
  sum.add(a.ints.size());
  for (const int64_t x : a.ints) sum.add(static_cast<uint64_t>(x));
  sum.add(a.floats.size());
  for (const float x : a.floats) sum.add(std::bit_cast<uint32_t>(x));
  sum.add(a.strings.size());
  for (const std::string& x : a.strings) sum.add(x);
  mix_tensor(sum, a.tensor);
}

void mix_operator(WordSum& sum, const Node& node) {
  sum.add(node.domain);
  sum.add(node.op);
  sum.add(static_cast<uint64_t>(node.opset));
  sum.add(node.mixed_floats + 2u * node.computed_in_place);
}

}  // namespace

GraphDigest::GraphDigest(const Graph& graph, const std::vector<uint64_t>& outside) {
  values_.resize(graph.values.size());
  for (size_t v = 0; v < graph.values.size(); ++v) {  // what a node makes is told below
    const Value& value = graph.values[v];
    WordSum sum;
    mix_info(sum, value.info);
    if (value.info.content) mix_dims(sum, *value.info.content);
    mix_tensor(sum, value.constant);
    values_[v] = sum.sum();
  }
  for (const ValueId v : graph.inputs) {
    WordSum sum;
    sum.add(values_[static_cast<size_t>(v)]);
    sum.add(graph.values[static_cast<size_t>(v)].name);
    values_[static_cast<size_t>(v)] = sum.sum();
  }
  for (size_t c = 0; c < graph.captures.size() && c < outside.size(); ++c)
    values_[static_cast<size_t>(graph.captures[c].first)] = outside[c];
  for (const Node& node : graph.nodes) add_node(graph, node);
  WordSum ends;
  ends.add(whole_);
  for (const auto* list : {&graph.inputs, &graph.outputs})
    for (const ValueId v : *list) ends.add(of(v));
  whole_ = ends.sum();
}

void GraphDigest::add_node(const Graph& graph, const Node& node) {
  WordSum sum;
  mix_operator(sum, node);
  add_attributes(sum, node);
  for (const ValueId v : node.in) sum.add(of(v));
  sum.add(node.out.size());
  whole_ += sum.sum();
  for (size_t o = 0; o < node.out.size(); ++o) {
    if (!node.has_output(o)) continue;
    WordSum output = sum;
    output.add(o);
    mix_info(output, graph.values[static_cast<size_t>(node.out[o])].info);
    values_[static_cast<size_t>(node.out[o])] = output.sum();
    whole_ += output.sum();
  }
}

void GraphDigest::add_attributes(WordSum& sum, const Node& node) const {
  for (const auto& [name, attribute] : node.attrs) {
    sum.add(name);
    mix_attribute(sum, attribute);
    if (!attribute.graph) continue;
    std::vector<uint64_t> outside;
    for (const auto& [inner, outer] : attribute.graph->captures) outside.push_back(of(outer));
    sum.add(GraphDigest(*attribute.graph, outside).whole());
  }
}

static uint64_t signature(const Node& node) {
  WordSum sum;
  mix_operator(sum, node);
  for (const auto& [name, attribute] : node.attrs) {
    sum.add(name);
    mix_attribute(sum, attribute);
    if (attribute.graph) sum.add(GraphDigest(*attribute.graph).whole());
  }
  for (const auto* list : {&node.in, &node.out}) {
    sum.add(list->size());
    for (const ValueId v : *list) sum.add(static_cast<uint64_t>(v));
  }
  return sum.sum();
}

NodeSignatures::NodeSignatures(const Graph& graph) {
  nodes_.reserve(graph.nodes.size());
  for (const Node& node : graph.nodes) {
    ValueId first = kNoValue;
    for (const ValueId v : node.out)
      if (first == kNoValue) first = v;
    nodes_.emplace_back(first, signature(node));
  }
  std::sort(nodes_.begin(), nodes_.end());
}

int64_t NodeSignatures::edits_since(const NodeSignatures& before) const {
  const auto& a = before.nodes_;
  const auto& b = nodes_;
  int64_t edits = 0;
  for (size_t i = 0, j = 0; i < a.size() || j < b.size();) {
    const bool gone = j == b.size() || (i < a.size() && a[i].first < b[j].first);
    const bool added = i == a.size() || (j < b.size() && b[j].first < a[i].first);
    edits += gone || added || a[i].second != b[j].second;
    i += !added;
    j += !gone;
  }
  return edits;
}

}  // namespace situ
