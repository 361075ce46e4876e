#include "passes/host/row_sample.h"

#include <algorithm>
#include <set>

#include "ops/op.h"

namespace situ {

constexpr int kDeepest = 200;  // nodes above a value
constexpr int64_t kPastOfSample = 5;

RowSample::RowSample(const Graph& graph, Evaluator& evaluator, int64_t tokens, int64_t rows)
    : graph_(graph), evaluator_(evaluator) {
  symbols_[kSymS] = tokens;
  symbols_[kSymP] = symbols_[kSymW] = kPastOfSample;
  symbols_[kSymT] = tokens + kPastOfSample;
  symbols_[kSymN] = rows;
}

Result<Tensor> RowSample::value(ValueId v, int depth) {
  if (const auto known = values_.find(v); known != values_.end()) return known->second;
  const Value& value = graph_.values[v];
  if (value.constant.present()) return value.constant;
  if (value.info.content && value.info.type == DType::kI64) {
    const Tensor t = Tensor::vector_i64(shape_eval(*value.info.content, symbols_));
    return values_[v] = value.info.shape.empty() ? t.reshaped({}) : t;
  }
  if (value.producer < 0 || depth > kDeepest) return Status::error("'" + value.name + "' is not known");
  const Node& n = graph_.nodes[static_cast<size_t>(value.producer)];
  std::vector<Tensor> operands;
  for (const ValueId x : n.in) {
    if (x == kNoValue) {
      operands.emplace_back();
      continue;
    }
    Result<Tensor> t = this->value(x, depth + 1);
    if (!t.is_ok()) return t;
    operands.push_back(*t);
  }
  Result<std::vector<Tensor>> results = evaluator_.node(n, operands);
  if (!results.is_ok()) return results.status();
  for (size_t i = 0; i < n.out.size(); ++i)
    if (n.has_output(i)) values_[n.out[i]] = (*results)[i];
  return values_[v];
}

bool is_zeros(const Graph& graph, ValueId v) {
  constexpr size_t kMostValues = 256;  // that are followed
  std::set<ValueId> seen{v};
  for (std::vector<ValueId> open{v}; !open.empty() && seen.size() <= kMostValues;) {
    const Value& value = graph.values[open.back()];
    const Node* n = graph.producer(open.back());
    open.pop_back();
    if (value.constant.present()) {
      if (value.constant.count() > kMaxContent || !dtype_is_float(value.info.type)) continue;
      const std::vector<double> numbers = value.constant.to_f64();
      if (std::all_of(numbers.begin(), numbers.end(), [](double x) { return x == 0; })) return true;
      continue;
    }
    if (!n) continue;
    if (n->is("ConstantOfShape")) {
      const Attribute* number = n->attr_of_kind("value", Attribute::Kind::kTensor);
      if (!number || number->tensor.to_f64()[0] == 0) return true;
    }
    const bool moves = n->is("Expand") || n->is("Reshape") || n->is("Cast") || n->is("Identity");
    for (size_t i = 0; i < n->in.size() && (moves || n->is("Mul")); ++i)
      if ((i == 0 || !moves) && n->in[i] != kNoValue && seen.insert(n->in[i]).second) open.push_back(n->in[i]);
  }
  return false;
}

}  // namespace situ
