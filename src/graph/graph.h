// The graph: SSA values, nodes in topological order, attributes. Plain data; passes edit it freely.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"
#include "base/tensor.h"
#include "graph/dim.h"

namespace situ {

struct Graph;
struct OpDef;

using ValueId = int32_t;
constexpr ValueId kNoValue = -1;  // an omitted optional operand ("" in ONNX)

// What is known of a value before it is computed.
struct ValueInfo {
  DType type = DType::kNone;
  bool ranked = false;  // false: not even the rank is known (a file's output without a shape)
  Shape shape;
  // For small integer tensors (rank 0 or 1, at most kMaxContent elements): the elements themselves, so
  // that shape arithmetic runs on symbols. Bool tensors hold 0 / 1.
  std::optional<std::vector<Dim>> content;
};
constexpr int64_t kMaxContent = 256;

struct Value {
  std::string name;
  ValueInfo info;
  Tensor constant;  // present(): an initialiser or a folded value
  // Where an attribute, an initialiser or an input came from is told by `producer` (-1: none).
  int32_t producer = -1;  // index into Graph::nodes, kept by Graph::rebuild_links
};

struct Attribute {
  enum class Kind { kInt, kFloat, kString, kTensor, kGraph, kInts, kFloats, kStrings };
  Kind kind = Kind::kInt;
  int64_t i = 0;
  float f = 0;
  std::string s;
  std::vector<int64_t> ints;
  std::vector<float> floats;
  std::vector<std::string> strings;
  Tensor tensor;
  std::shared_ptr<Graph> graph;
};

struct Node {
  std::string name;    // from the file; made up from op and outputs when empty
  std::string domain;  // "" for ai.onnx, "com.microsoft", "situ" for internal ops
  std::string op;
  int opset = 0;  // version of `domain` that the file (or function) imports
  std::vector<ValueId> in;
  std::vector<ValueId> out;
  std::map<std::string, Attribute> attrs;
  const OpDef* def = nullptr;  // set by resolve_ops
  // Operands may be floats of different widths: weights and states stay half where activations were widened
  // (passes/lower/widen_half.cc). Never set by a file.
  bool mixed_floats = false;
  // Of constants, but its result is a part of a Concat: computed there at each step. Folded, it would have to be copied
  // (passes/move/distribute_concat.cc). Never set by a file.
  bool computed_in_place = false;
  // Set when an attribute was asked for as another kind than the file gives it; checked after inference,
  // so that a malformed attribute is never taken for an absent one.
  mutable std::string attribute_error;

  bool is(std::string_view op_name, std::string_view op_domain = "") const {
    return op == op_name && domain == op_domain;
  }
  bool has_input(size_t i) const { return i < in.size() && in[i] != kNoValue; }
  bool has_output(size_t i) const { return i < out.size() && out[i] != kNoValue; }
  const Attribute* attr(const std::string& key) const;
  const Attribute* attr_of_kind(const std::string& key, Attribute::Kind kind) const;
  int64_t attr_int(const std::string& key, int64_t fallback) const;
  float attr_float(const std::string& key, float fallback) const;
  std::string attr_string(const std::string& key, const std::string& fallback) const;
  std::vector<int64_t> attr_ints(const std::string& key) const;
  // A Transpose's order of axes: attribute perm, or all axes reversed.
  std::vector<int64_t> permutation(size_t rank) const;
  void set_int(const std::string& key, int64_t value);
  void set_float(const std::string& key, float value);
  void set_ints(const std::string& key, std::vector<int64_t> value);
  void set_string(const std::string& key, std::string value);
  // "MatMul '/model/layers.0/q_proj/MatMul'" for messages; "com.microsoft.X 'n'" outside ai.onnx.
  std::string label() const;
  // What an error about this node has beside its message.
  Reason reason(Reason::Kind kind, const std::string& detail) const;
  // "LABEL: what", with that reason.
  Status error(const std::string& what, Reason::Kind kind = Reason::Kind::kShape) const;
  Status check_attribute_kinds() const;  // the error of attribute_error
};

// A list of nodes that counts how often the nodes are looked at: once for each access to a node, once for each node
// where a loop over the list begins, where the list is copied and where it is taken (moved from). visits() is of the
// calling thread, and only grows.
class NodeList : public std::vector<Node> {
 public:
  using List = std::vector<Node>;
  NodeList() = default;
  NodeList(List&& nodes) : List(std::move(nodes)) {}  // NOLINT: implicit on purpose
  NodeList(const NodeList& other) : List(counted(other)) {}
  NodeList(NodeList&& other) : List(std::move(counted(other))) {}
  NodeList& operator=(const NodeList& other) {
    List::operator=(counted(other));
    return *this;
  }
  NodeList& operator=(NodeList&& other) {
    List::operator=(std::move(counted(other)));
    return *this;
  }
  ~NodeList() = default;

  iterator begin() { return counted(*this).List::begin(); }
  const_iterator begin() const { return counted(*this).List::begin(); }
  Node& operator[](size_t i) { return ++visits_, List::operator[](i); }
  const Node& operator[](size_t i) const { return ++visits_, List::operator[](i); }

  static int64_t visits() { return visits_; }

 private:
  template <typename Nodes>
  static Nodes& counted(Nodes& nodes) {
    visits_ += static_cast<int64_t>(nodes.size());
    return nodes;
  }
  static inline constinit thread_local int64_t visits_ = 0;
};

struct Graph {
  std::string name;
  std::vector<Value> values;
  NodeList nodes;  // topological order
  std::vector<ValueId> inputs;
  std::vector<ValueId> outputs;
  // Subgraphs of If/Loop/Scan: inner value -> value of the enclosing graph that it captures.
  std::vector<std::pair<ValueId, ValueId>> captures;
  // Null: the file names none. Shared with copies and subgraphs until one of them gets another name: 4,096 names times
  // 10,000 branches were 6 GiB.
  std::shared_ptr<std::vector<std::string>> shared_symbol_names;

  ValueId add_value(std::string value_name, DType type = DType::kNone);
  ValueId add_constant(std::string value_name, Tensor tensor);
  // A shape operand: int64 with these dims as its content, a constant where all of them are known.
  ValueId add_shape(std::string value_name, Shape dims);  // by value: they may be those of a value, which moves
  // Appends a node; the caller keeps (or restores by sort) the order. Returns its index.
  int add_node(Node node);
  // Symbol id of a dim_param name, made at first use; -1 when the table is full.
  int symbol(const std::string& dim_param);
  const std::vector<std::string>& symbol_names() const;  // index = symbol id; "" for the built-in ones

  const Value& value(ValueId id) const { return values[id]; }
  Value& value(ValueId id) { return values[id]; }
  ValueId find(std::string_view value_name) const;  // kNoValue when there is none; linear
  // For errors: 'input_ids' int64 [batch, tokens].
  std::string describe(ValueId id) const;

  // Recomputes Value::producer.
  void rebuild_links();
  // The node that makes v; null: none does (an input, a constant, kNoValue), or, with an operator of onnx's domain,
  // another one.
  const Node* producer(ValueId v) const {
    return v == kNoValue || values[v].producer < 0 ? nullptr : &nodes[static_cast<size_t>(values[v].producer)];
  }
  const Node* producer(ValueId v, const char* op) const {
    const Node* n = producer(v);
    return n && n->is(op) ? n : nullptr;
  }
  // Where v comes from through first operands of operators of these names.
  ValueId behind(ValueId v, std::initializer_list<const char*> ops) const;
  // Users of each value as (node, operand) pairs; graph outputs are not users.
  std::vector<std::vector<std::pair<int, int>>> users() const;
  bool is_output(ValueId id) const;
  // Replaces every use of `from` (operands and graph outputs) by `to`.
  void replace_uses(ValueId from, ValueId to);
  // Drops nodes whose outputs nobody needs. Returns how many.
  int remove_dead_nodes();
  // Lets go of a constant: nothing is known of the value any more.
  void drop_constant(ValueId v);
  // Constants that nobody reads (any more): heap memory that passes made of them goes.
  void drop_unread_constants();
  // Stable topological order. Error: a cycle (names a node in it).
  Status sort();
};

}  // namespace situ
