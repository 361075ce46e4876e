// What an element of a host value is as a function of its indices: a proof for every step, where probing sees some.
// Known of values that are made of positions (Range, position inputs, CumSum of ones), numbers and tables by
// elementwise operators, Gather and operators that move; the position in the result of all else is not known.
#pragma once

#include <map>
#include <optional>
#include <vector>

#include "passes/context/binding.h"
#include "passes/host/probe.h"

namespace situ {

// Element [i0, i1, ..] is
//   line     offset + steps[0] * i0 + steps[1] * i1 + ..          without a table: integers
//   table    table[line - first, f0, f1, ..]                      fk = ik where the table has more than one number
//   along
//                                                                 axis k, else 0
struct IndexForm {
  std::vector<int64_t> steps;  // by axis; 0 where the axis has one element
  Dim offset;
  Tensor table;  // [lines or 1, one for each axis]; of one line: the same number on every line
  bool has_table() const { return table.present(); }
  // All elements are this one number, whatever the step.
  bool uniform() const { return has_table() && table.count() == 1; }
};

class IndexForms {
 public:
  // Tables are of the lines from `first` to `last`.
  IndexForms(const Graph& graph, const Binding& binding, const Prober& prober, Evaluator& evaluator, int64_t first,
             int64_t last)
      : graph_(graph), binding_(binding), prober_(prober), evaluator_(evaluator), first_(first), last_(last) {}

  // Of a host value or a constant; nothing where it is not known. A line comes as it is.
  std::optional<IndexForm> find(ValueId v);
  int64_t first() const { return first_; }
  int64_t last() const { return last_; }

 private:
  std::optional<IndexForm> derive(ValueId v);
  std::optional<IndexForm> of_content(const Value& value) const;
  std::optional<IndexForm> of_node(const Node& n, ValueId v);
  std::optional<IndexForm> generated(const Node& n, ValueId v);
  std::optional<IndexForm> moved(const Node& n, ValueId v);
  std::optional<IndexForm> sliced(const Node& n, ValueId v, IndexForm x);
  std::optional<IndexForm> gathered(const Node& n, ValueId v);
  std::optional<IndexForm> elementwise(const Node& n, ValueId v);
  std::optional<IndexForm> line_of_lines(const Node& n, const std::vector<std::optional<IndexForm>>& x, size_t rank);
  std::optional<IndexForm> tabulated(IndexForm line) const;
  std::optional<IndexForm> rearranged(const IndexForm& x, const std::vector<int>& from) const;
  const Shape& shape(ValueId v) const { return graph_.values[v].info.shape; }
  IndexForm without_single_axes(IndexForm x, ValueId v) const;

  const Graph& graph_;
  const Binding& binding_;
  const Prober& prober_;
  Evaluator& evaluator_;
  const int64_t first_, last_;
  int depth_ = 0;
  std::map<ValueId, std::optional<IndexForm>> known_;
};

}  // namespace situ
