// Appends nodes while a pass rewrites a graph. New nodes go to a list that replaces the old one, so
// that order is kept; names are derived from the node being replaced.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "graph/graph.h"

namespace situ {

class Builder {
 public:
  explicit Builder(Graph& graph) : graph_(graph) { done_.reserve(graph.nodes.size()); }

  // The node whose replacement is being built; gives names and opset to what follows.
  void start(const Node& origin) {
    origin_name_ = origin.name;
    counter_ = 0;
  }
  void keep(Node node) { done_.push_back(std::move(node)); }

  // Adds a node of one output and returns that output (a new value, or `result` if given).
  ValueId op(const std::string& name, std::vector<ValueId> in, ValueId result = kNoValue,
             const std::string& domain = "");
  // The operator of `like`, with its attributes, on other operands.
  ValueId again(const Node& like, std::vector<ValueId> in, ValueId result = kNoValue);
  // The node added last, for its attributes.
  Node& last() { return done_.back(); }
  ValueId new_value(const std::string& suffix);
  ValueId constant_i64(const std::vector<int64_t>& values);

  ValueId reshape(ValueId x, const std::vector<int64_t>& target, ValueId result = kNoValue);
  // x as another element type; what is known of x but for its type holds for the result.
  ValueId cast(ValueId x, DType to, ValueId result = kNoValue);
  ValueId transpose(ValueId x, std::vector<int64_t> perm, ValueId result = kNoValue);
  // [B, S, H*D] -> [B, H, S, D], and back.
  ValueId split_heads(ValueId x, int64_t heads, int64_t head_size);
  ValueId merge_heads(ValueId x, int64_t width, ValueId result);

  // All nodes so far.
  std::vector<Node>& nodes() { return done_; }

  // Installs the new node list, resolves operator definitions and sorts.
  Status finish();

 private:
  Graph& graph_;
  std::vector<Node> done_;
  std::string origin_name_;
  int counter_ = 0;
};

}  // namespace situ
