// Digests of graphs, to compare what two builds make of one file. Equal graphs have equal digests in every process: no
// address, no number of a value, no name but an input's, and no order of nodes or of maps counts.
//
//   digest(value) = its operator, attributes, output, type, shape, and the digests of its operands;
//                   of an input its name, type and shape; of a constant its type, shape and elements
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "base/word_sum.h"
#include "graph/graph.h"

namespace situ {

// Of a constant the first and the last 2 KiB are read, and nothing of one that is not computed yet (Tensor::deferred).
class GraphDigest {
 public:
  explicit GraphDigest(const Graph& graph) : GraphDigest(graph, {}) {}
  uint64_t whole() const { return whole_; }
  uint64_t of(ValueId v) const {
    return v < 0 || static_cast<size_t>(v) >= values_.size() ? 0 : values_[static_cast<size_t>(v)];
  }

 private:
  // `outside`: digests of the values of the enclosing graph that a subgraph captures.
  GraphDigest(const Graph& graph, const std::vector<uint64_t>& outside);
  void add_node(const Graph& graph, const Node& node);
  void add_attributes(WordSum& sum, const Node& node) const;

  std::vector<uint64_t> values_;
  uint64_t whole_ = 0;
};

// What is remembered of the nodes of a graph, to count edits: of each its operator, attributes, numbers of operands and
// outputs.
class NodeSignatures {
 public:
  explicit NodeSignatures(const Graph& graph);
  // Nodes by their outputs: those of one list alone, and those that both have and that differ.
  int64_t edits_since(const NodeSignatures& before) const;

 private:
  std::vector<std::pair<ValueId, uint64_t>> nodes_;  // (first output, signature), in this order
};

}  // namespace situ
