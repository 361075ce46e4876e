// Values of a graph at one step, where what they are made of is given: what index arithmetic does to rows is looked at.
#pragma once

#include <map>

#include "eval/interpreter.h"

namespace situ {

class RowSample {
 public:
  // Steps of `tokens` new tokens, in which NonZero finds `rows` elements.
  RowSample(const Graph& graph, Evaluator& evaluator, int64_t tokens, int64_t rows);

  void set(ValueId v, const Tensor& t) { values_[v] = t; }
  // Error: it depends on what was not set, or is too large.
  Result<Tensor> value(ValueId v, int depth = 0);
  std::vector<int64_t> dims(ValueId v) const { return shape_eval(graph_.values[v].info.shape, symbols_); }

 private:
  const Graph& graph_;
  Evaluator& evaluator_;
  SymbolValues symbols_;
  std::map<ValueId, Tensor> values_;
};

// Whether `v` is zeros: a constant of them, or what casts, views and products make of one.
bool is_zeros(const Graph& graph, ValueId v);

}  // namespace situ
