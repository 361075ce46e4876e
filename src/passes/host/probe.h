// Probing: evaluating a small subgraph on concrete inputs, to recognise it by what it computes.
#pragma once

#include <map>
#include <optional>
#include <vector>

#include "eval/interpreter.h"
#include "passes/context/binding.h"

namespace situ {

// A piece of the graph between one root and its leaves.
struct Cone {
  std::vector<int> nodes;  // topological order
};

class Prober {
 public:
  Prober(const Graph& graph, const Binding& binding, Evaluator& evaluator);

  // True for values that depend on S and P only (masks, positions, rotary tables): neither on token
  // ids nor on state.
  bool host(ValueId v) const { return host_[v]; }
  // True for values that no step changes: constants and what is computed from them, of whatever length the step is.
  bool fixed(ValueId v) const { return fixed_[v]; }
  // A host value that is not fixed: what it is at one step says nothing of the others.
  bool changes(ValueId v) const { return v != kNoValue && host_[v] && !fixed_[v]; }
  // True for host values and constants.
  bool known(ValueId v) const { return host_[v] || graph_->values[v].constant.present(); }

  // Of an input: 0 or 1 for each place.
  bool zeros_and_ones(ValueId v) const;

  // What follows is of steps of a sequence that will have so many tokens; 0: that ends with the step.
  void set_whole(int64_t tokens) { whole_ = tokens; }
  // One length on each side of each of the binding's switches; 0: there are none.
  std::vector<int64_t> wholes() const;

  // A host value at S = tokens, P = past.
  Result<Tensor> host_value(ValueId v, int64_t tokens, int64_t past) const;
  // `root` with the given leaves, at S = tokens, P = past. Error: it has no elements then, and would be like anything.
  Result<Tensor> evaluate(ValueId root, const std::map<ValueId, Tensor>& leaves, int64_t tokens, int64_t past);

  // Several roots at once: what they share is computed once.
  Result<std::vector<Tensor>> evaluate(const std::vector<ValueId>& roots, const std::map<ValueId, Tensor>& leaves,
                                       int64_t tokens, int64_t past);

  // Everything between `root` and `leaf` (exclusive), provided that all paths from data to root go
  // through `leaf`; nothing if they do not or if there are more than `max_nodes`.
  std::optional<Cone> cone(ValueId root, ValueId leaf, int max_nodes) const;
  // Data values through which all of root's data passes, nearest first, at most `max_nodes` nodes away.
  std::vector<ValueId> dominators(ValueId root, int max_nodes) const;

  // The product of two data values that all data of an attention's `softmax` passes through, at most `max_nodes` nodes
  // away.
  ValueId scores(const Node& softmax, int max_nodes) const;

  std::vector<int64_t> dims(ValueId v, int64_t tokens, int64_t past) const;
  // Uniform in [-1, 1), repeatable.
  Tensor random(const std::vector<int64_t>& dims, uint32_t seed, DType type = DType::kF32) const;

 private:
  Result<Tensor> demand(ValueId v, std::map<ValueId, Tensor>& memo, const SymbolValues& symbols, int depth) const;

  const Graph* graph_;
  const Binding* binding_;
  Evaluator* evaluator_;
  std::vector<char> host_, fixed_;
  std::vector<int> readers_;  // of each value
  int64_t whole_ = 0;
  mutable int64_t held_ = 0;  // bytes of what demand() has computed and keeps
};

// The elements of a float tensor as float, of any float type.
std::vector<float> floats(const Tensor& t);

}  // namespace situ
