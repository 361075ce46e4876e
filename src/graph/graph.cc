#include "graph/graph.h"

#include <algorithm>

namespace situ {

const Attribute* Node::attr(const std::string& key) const {
  auto it = attrs.find(key);
  return it == attrs.end() ? nullptr : &it->second;
}

const Attribute* Node::attr_of_kind(const std::string& key, Attribute::Kind kind) const {
  const Attribute* a = attr(key);
  if (!a || a->kind == kind) return a;
  static const char* const kNames[] = {"an int",  "a float", "a string", "a tensor",
                                       "a graph", "ints",    "floats",   "strings"};
  attribute_error =
      "attribute " + key + " should be " + kNames[static_cast<int>(kind)] + ", is " + kNames[static_cast<int>(a->kind)];
  return nullptr;
}

int64_t Node::attr_int(const std::string& key, int64_t fallback) const {
  const Attribute* a = attr_of_kind(key, Attribute::Kind::kInt);
  return a ? a->i : fallback;
}

float Node::attr_float(const std::string& key, float fallback) const {
  const Attribute* a = attr_of_kind(key, Attribute::Kind::kFloat);
  return a ? a->f : fallback;
}

std::string Node::attr_string(const std::string& key, const std::string& fallback) const {
  const Attribute* a = attr_of_kind(key, Attribute::Kind::kString);
  return a ? a->s : fallback;
}

std::vector<int64_t> Node::attr_ints(const std::string& key) const {
  const Attribute* a = attr_of_kind(key, Attribute::Kind::kInts);
  return a ? a->ints : std::vector<int64_t>{};
}

std::vector<int64_t> Node::permutation(size_t rank) const {
  std::vector<int64_t> perm = attr_ints("perm");
  if (perm.empty())
    for (size_t i = rank; i > 0; --i) perm.push_back(static_cast<int64_t>(i) - 1);
  return perm;
}

void Node::set_int(const std::string& key, int64_t value) {
  Attribute a;
  a.kind = Attribute::Kind::kInt;
  a.i = value;
  attrs[key] = std::move(a);
}

void Node::set_float(const std::string& key, float value) {
  Attribute a;
  a.kind = Attribute::Kind::kFloat;
  a.f = value;
  attrs[key] = std::move(a);
}

void Node::set_ints(const std::string& key, std::vector<int64_t> value) {
  Attribute a;
  a.kind = Attribute::Kind::kInts;
  a.ints = std::move(value);
  attrs[key] = std::move(a);
}

void Node::set_string(const std::string& key, std::string value) {
  Attribute a;
  a.kind = Attribute::Kind::kString;
  a.s = std::move(value);
  attrs[key] = std::move(a);
}

std::string Node::label() const { return (domain.empty() ? op : domain + "." + op) + " '" + name + "'"; }

std::string Graph::describe(ValueId id) const {
  const Value& v = value(id);
  return "'" + v.name + "' " + dtype_name(v.info.type) + shape_str(v.info.shape, &symbol_names());
}

Reason Node::reason(Reason::Kind kind, const std::string& detail) const {
  return {kind, op, domain.empty() ? "ai.onnx" : domain, opset, 1, name, detail};
}

Status Node::check_attribute_kinds() const {
  return attribute_error.empty() ? Status::ok() : error(attribute_error, Reason::Kind::kAttribute);
}

Status Node::error(const std::string& what, Reason::Kind kind) const {
  return Status::error(label() + ": " + what).because({reason(kind, what)});
}

ValueId Graph::add_value(std::string value_name, DType type) {
  Value v;
  v.name = std::move(value_name);
  v.info.type = type;
  values.push_back(std::move(v));
  return static_cast<ValueId>(values.size() - 1);
}

ValueId Graph::add_constant(std::string value_name, Tensor tensor) {
  const ValueId id = add_value(std::move(value_name), tensor.type());
  Value& v = values[id];
  v.info.ranked = true;
  for (int64_t d : tensor.dims()) v.info.shape.push_back(d);
  v.constant = std::move(tensor);
  return id;
}

ValueId Graph::add_shape(std::string value_name, Shape dims) {
  const ValueId id = add_value(std::move(value_name), DType::kI64);
  values[id].info = {DType::kI64, true, {Dim(static_cast<int64_t>(dims.size()))}, dims};
  if (shape_is_const(dims)) values[id].constant = Tensor::vector_i64(shape_values(dims));
  return id;
}

int Graph::add_node(Node node) {
  const int index = static_cast<int>(nodes.size());
  for (ValueId v : node.out)
    if (v != kNoValue) values[v].producer = index;
  nodes.push_back(std::move(node));
  return index;
}

const std::vector<std::string>& Graph::symbol_names() const {
  static const std::vector<std::string> none(kFirstFileSymbol);
  return shared_symbol_names ? *shared_symbol_names : none;
}

int Graph::symbol(const std::string& dim_param) {
  const std::vector<std::string>& known = symbol_names();
  const auto found = std::find(known.begin() + kFirstFileSymbol, known.end(), dim_param);
  if (found != known.end()) return static_cast<int>(found - known.begin());
  if (known.size() >= kFirstFileSymbol + kMostFileSymbols) return -1;
  if (!shared_symbol_names || shared_symbol_names.use_count() > 1)
    shared_symbol_names = std::make_shared<std::vector<std::string>>(known);
  shared_symbol_names->push_back(dim_param);
  return static_cast<int>(shared_symbol_names->size() - 1);
}

ValueId Graph::find(std::string_view value_name) const {
  for (size_t i = 0; i < values.size(); ++i)
    if (values[i].name == value_name) return static_cast<ValueId>(i);
  return kNoValue;
}

void Graph::rebuild_links() {
  for (Value& v : values) v.producer = -1;
  for (size_t n = 0; n < nodes.size(); ++n)
    for (ValueId v : nodes[n].out)
      if (v != kNoValue) values[v].producer = static_cast<int32_t>(n);
}

std::vector<std::vector<std::pair<int, int>>> Graph::users() const {
  std::vector<std::vector<std::pair<int, int>>> result(values.size());
  for (size_t n = 0; n < nodes.size(); ++n) {
    for (size_t i = 0; i < nodes[n].in.size(); ++i)
      if (nodes[n].in[i] != kNoValue) result[nodes[n].in[i]].emplace_back(n, i);
    for (const auto& [key, a] : nodes[n].attrs)
      if (a.graph)
        for (const auto& [inner, outer] : a.graph->captures) result[outer].emplace_back(n, -1);
  }
  return result;
}

ValueId Graph::behind(ValueId v, std::initializer_list<const char*> ops) const {
  for (const Node* n = producer(v); n; n = producer(v)) {
    const bool through = std::any_of(ops.begin(), ops.end(), [&](const char* op) { return n->op == op; });
    if (!through || !n->has_input(0)) break;
    v = n->in[0];
  }
  return v;
}

bool Graph::is_output(ValueId id) const { return std::find(outputs.begin(), outputs.end(), id) != outputs.end(); }

void Graph::replace_uses(ValueId from, ValueId to) {
  for (Node& n : nodes) {
    for (ValueId& v : n.in)
      if (v == from) v = to;
    for (auto& [key, a] : n.attrs)
      if (a.graph)
        for (auto& [inner, outer] : a.graph->captures)
          if (outer == from) outer = to;
  }
  for (ValueId& v : outputs)
    if (v == from) v = to;
}

void Graph::drop_constant(ValueId v) {
  values[v].constant = Tensor();
  values[v].info.content.reset();  // else the host would feed it
}

void Graph::drop_unread_constants() {
  const auto readers = users();
  for (size_t v = 0; v < values.size(); ++v)
    if (values[v].constant.present() && readers[v].empty() && !is_output(static_cast<ValueId>(v)))
      drop_constant(static_cast<ValueId>(v));
}

int Graph::remove_dead_nodes() {
  std::vector<char> needed(values.size(), 0);
  for (ValueId v : outputs) needed[v] = 1;
  std::vector<char> keep(nodes.size(), 0);
  for (int n = static_cast<int>(nodes.size()) - 1; n >= 0; --n) {
    for (ValueId v : nodes[n].out)
      if (v != kNoValue && needed[v]) keep[n] = 1;
    if (!keep[n]) continue;
    for (ValueId v : nodes[n].in)
      if (v != kNoValue) needed[v] = 1;
    for (const auto& [key, a] : nodes[n].attrs)
      if (a.graph)
        for (const auto& [inner, outer] : a.graph->captures) needed[outer] = 1;
  }
  std::vector<Node> kept;
  for (size_t n = 0; n < nodes.size(); ++n)
    if (keep[n]) kept.push_back(std::move(nodes[n]));
  const int removed = static_cast<int>(nodes.size() - kept.size());
  nodes = std::move(kept);
  rebuild_links();
  return removed;
}

Status Graph::sort() {
  rebuild_links();
  // Producers of each node's operands and captures, once: a node of many operands is visited many times.
  std::vector<std::vector<int>> producers(nodes.size());
  auto depend = [&](size_t n, ValueId v) {
    if (v != kNoValue && values[v].producer >= 0) producers[n].push_back(values[v].producer);
  };
  for (size_t n = 0; n < nodes.size(); ++n) {
    for (ValueId v : nodes[n].in) depend(n, v);
    for (const auto& [key, a] : nodes[n].attrs)
      if (a.graph)
        for (const auto& [inner, outer] : a.graph->captures) depend(n, outer);
  }
  enum class Mark : char { kNew, kOpen, kDone };
  std::vector<Mark> marks(nodes.size(), Mark::kNew);
  std::vector<int> order;
  // Iterative depth-first search: a hostile file may chain a million nodes.
  for (size_t root = 0; root < nodes.size(); ++root) {
    if (marks[root] != Mark::kNew) continue;
    std::vector<std::pair<int, size_t>> stack{{static_cast<int>(root), 0}};
    marks[root] = Mark::kOpen;
    while (!stack.empty()) {
      auto& [n, next] = stack.back();
      if (next == producers[n].size()) {
        marks[n] = Mark::kDone;
        order.push_back(n);
        stack.pop_back();
        continue;
      }
      const int p = producers[n][next++];
      if (marks[p] == Mark::kOpen) return Status::error("the graph has a cycle through node " + nodes[p].label());
      if (marks[p] == Mark::kDone) continue;
      marks[p] = Mark::kOpen;
      stack.emplace_back(p, 0);
    }
  }
  std::vector<Node> sorted;
  sorted.reserve(nodes.size());
  for (int n : order) sorted.push_back(std::move(nodes[n]));
  nodes = std::move(sorted);
  rebuild_links();
  return Status::ok();
}

}  // namespace situ
