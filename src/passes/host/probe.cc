#include "passes/host/probe.h"

#include <algorithm>
#include <set>

#include "passes/context/binding.h"

namespace situ {
namespace {

constexpr int kMaxDepth = 4000;  // of a host subgraph; deeper is not a mask
constexpr int64_t kMostHeld =
    1 << 30;  // bytes of values that wait for a reader: masks of 131,072 keys for every head, one after the other

// `whole`: of the sequence; 0: it ends with the step.
SymbolValues bind_symbols(const Graph& graph, int64_t tokens, int64_t past, int64_t whole) {
  SymbolValues s;
  s[kSymS] = tokens;
  s[kSymP] = past;
  s[kSymW] = past;
  s[kSymT] = whole > 0 ? whole : tokens + past;
  // Other lengths are none of S, P and P + S at the probed step, and each its own. They are the same at all steps, so
  // that steps can be compared.
  s[kSymE] = 11;
  for (int id = static_cast<int>(graph.symbol_names().size()) - 1; id >= kFirstFileSymbol; --id)
    s[id] = 13 + 4 * (id - kFirstFileSymbol);
  return s;
}

}  // namespace

std::vector<float> floats(const Tensor& t) {
  if (t.type() == DType::kF32 && t.contiguous()) {
    const float* first = t.view().as<const float>();
    return {first, first + t.count()};
  }
  const std::vector<double> wide = t.to_f64();
  return {wide.begin(), wide.end()};
}

Prober::Prober(const Graph& graph, const Binding& binding, Evaluator& evaluator)
    : graph_(&graph),
      binding_(&binding),
      evaluator_(&evaluator),
      host_(graph.values.size(), 0),
      fixed_(graph.values.size(), 0),
      readers_(graph.values.size(), 0) {
  for (size_t v = 0; v < graph.values.size(); ++v) {
    host_[v] = graph.values[v].info.content.has_value();
    fixed_[v] = graph.values[v].constant.present() || (host_[v] && shape_is_const(*graph.values[v].info.content));
  }
  for (const auto& [v, role] : binding.inputs)
    if (role == InputRole::kPositions || role == InputRole::kWindowMask) host_[v] = 1;
  for (const Node& n : graph.nodes) {
    for (ValueId v : n.in)
      if (v != kNoValue) ++readers_[v];
    const bool fixed = !n.in.empty() && n.def && n.def->placement != Placement::kControl &&
                       std::all_of(n.in.begin(), n.in.end(), [&](ValueId v) { return v == kNoValue || fixed_[v]; });
    for (ValueId v : n.out)
      if (fixed && v != kNoValue) fixed_[v] = 1;
    const bool all = std::all_of(n.in.begin(), n.in.end(), [&](ValueId v) {
      return v == kNoValue || host_[v] || graph.values[v].constant.present();
    });
    // A node over constants alone (a view of a weight) is not a function of the step.
    const bool any = std::any_of(n.in.begin(), n.in.end(), [&](ValueId v) { return v != kNoValue && host_[v]; });
    if (all && any && n.def && n.def->placement != Placement::kControl)
      for (ValueId v : n.out)
        if (v != kNoValue) host_[v] = 1;
  }
}

bool Prober::zeros_and_ones(ValueId v) const {
  const auto it = binding_->inputs.find(v);
  return it != binding_->inputs.end() && it->second == InputRole::kWindowMask;
}

std::vector<int64_t> Prober::wholes() const {
  if (binding_->switches.empty()) return {0};
  std::vector<int64_t> lengths{binding_->switches[0] - 1};
  lengths.insert(lengths.end(), binding_->switches.begin(), binding_->switches.end());
  return lengths;
}

std::vector<int64_t> Prober::dims(ValueId v, int64_t tokens, int64_t past) const {
  return shape_eval(graph_->values[v].info.shape, bind_symbols(*graph_, tokens, past, whole_));
}

Tensor Prober::random(const std::vector<int64_t>& dims, uint32_t seed, DType type) const {
  Tensor t = Tensor::allocate(type, dims);
  uint32_t x = seed * 2654435761u + 12345u;
  for (int64_t i = 0; i < t.count(); ++i) {
    x = x * 1664525u + 1013904223u;
    const float f = static_cast<float>(x >> 8) / 8388608.0f - 1.0f;
    if (type == DType::kF32)
      t.view().as<float>()[i] = f;
    else if (type == DType::kF64)
      t.view().as<double>()[i] = f;
  }
  return t;
}

Result<Tensor> Prober::demand(ValueId v, std::map<ValueId, Tensor>& memo, const SymbolValues& symbols,
                              int depth) const {
  if (auto it = memo.find(v); it != memo.end()) return it->second;
  const Value& value = graph_->values[v];
  if (value.constant.present()) return value.constant;
  if (value.info.content) {
    Tensor t = Tensor::vector_i64(shape_eval(*value.info.content, symbols));
    if (value.info.shape.empty()) t = t.reshaped({});
    if (value.info.type != DType::kI64) {
      Node cast;
      cast.op = "Cast";
      cast.opset = 13;
      cast.name = value.name;
      cast.in = {0};
      cast.out = {0};
      cast.set_int("to", static_cast<int64_t>(value.info.type));
      cast.def = find_op("", "Cast", 13);
      Result<std::vector<Tensor>> r = evaluator_->node(cast, {t});
      if (!r.is_ok()) return r.status();
      t = (*r)[0];
    }
    memo[v] = t;
    return t;
  }
  if (auto role = binding_->inputs.find(v); role != binding_->inputs.end()) {
    if (role->second != InputRole::kPositions) return Status::error("'" + value.name + "' is not known on the host");
    Tensor t = Tensor::allocate(value.info.type, shape_eval(value.info.shape, symbols));
    // Rows of [3, 1, S] are the same for text alone: other ones for pictures, so that nobody takes one for another.
    const int64_t tokens = symbols[kSymS];
    for (int64_t i = 0; i < t.count(); ++i) {
      const int64_t row = i / tokens, of_text = symbols[kSymP] + i % tokens;
      const int64_t p = row == 0 ? of_text : of_text / (row + 1) + row - 1;
      if (value.info.type == DType::kI32)
        t.view().as<int32_t>()[i] = static_cast<int32_t>(p);
      else
        t.view().as<int64_t>()[i] = p;
    }
    memo[v] = t;
    return t;
  }
  if (value.producer < 0 || depth > kMaxDepth) return Status::error("'" + value.name + "' cannot be probed");
  const Node& n = graph_->nodes[value.producer];
  std::vector<Tensor> operands;
  for (ValueId x : n.in) {
    if (x == kNoValue) {
      operands.emplace_back();
      continue;
    }
    Result<Tensor> t = demand(x, memo, symbols, depth + 1);
    if (!t.is_ok()) return t;
    operands.push_back(*t);
  }
  Result<std::vector<Tensor>> results = evaluator_->node(n, operands);
  if (!results.is_ok()) return results.status();
  for (ValueId x : n.in) {
    const auto once = x != kNoValue && readers_[x] == 1 ? memo.find(x) : memo.end();
    if (once == memo.end()) continue;
    held_ -= once->second.bytes();
    memo.erase(once);
  }
  for (size_t i = 0; i < n.out.size(); ++i) {
    if (!n.has_output(i)) continue;
    memo[n.out[i]] = (*results)[i];
    held_ += (*results)[i].bytes();
  }
  if (held_ > kMostHeld)
    return Status::error("'" + value.name + "' takes more than " + std::to_string(kMostHeld) + " bytes to probe");
  return memo[v];
}

Result<Tensor> Prober::host_value(ValueId v, int64_t tokens, int64_t past) const {
  std::map<ValueId, Tensor> memo;
  held_ = 0;
  return demand(v, memo, bind_symbols(*graph_, tokens, past, whole_), 0);
}

Result<Tensor> Prober::evaluate(ValueId root, const std::map<ValueId, Tensor>& leaves, int64_t tokens, int64_t past) {
  Result<std::vector<Tensor>> results = evaluate(std::vector<ValueId>{root}, leaves, tokens, past);
  if (!results.is_ok()) return results.status();
  return results->front();
}

Result<std::vector<Tensor>> Prober::evaluate(const std::vector<ValueId>& roots, const std::map<ValueId, Tensor>& leaves,
                                             int64_t tokens, int64_t past) {
  std::map<ValueId, Tensor> memo = leaves;
  held_ = 0;
  std::vector<Tensor> results;
  for (const ValueId root : roots) {
    Result<Tensor> t = demand(root, memo, bind_symbols(*graph_, tokens, past, whole_), 0);
    if (!t.is_ok()) return t.status();
    if (t->count() == 0)
      return Status::error(graph_->describe(root) + ": a step of " + std::to_string(tokens) +
                           " tokens has none of it, which tells nothing");
    results.push_back(*t);
    memo.insert(leaves.begin(), leaves.end());  // those that had no other reader are gone
  }
  return results;
}

std::optional<Cone> Prober::cone(ValueId root, ValueId leaf, int max_nodes) const {
  Cone cone;
  std::set<int> seen;
  std::vector<ValueId> open{root};
  while (!open.empty()) {
    const ValueId v = open.back();
    open.pop_back();
    if (v == kNoValue || v == leaf || known(v)) continue;
    const int p = graph_->values[v].producer;
    if (p < 0) return std::nullopt;
    if (!seen.insert(p).second) continue;
    if (static_cast<int>(seen.size()) > max_nodes) return std::nullopt;
    for (ValueId x : graph_->nodes[p].in) open.push_back(x);
  }
  cone.nodes.assign(seen.begin(), seen.end());
  return cone;
}

ValueId Prober::scores(const Node& softmax, int max_nodes) const {
  std::vector<ValueId> candidates = dominators(softmax.in[0], max_nodes);
  candidates.insert(candidates.begin(), softmax.in[0]);
  for (ValueId c : candidates) {
    const int p = graph_->values[c].producer;
    if (p >= 0 && graph_->nodes[p].is("MatMul") && !known(graph_->nodes[p].in[0]) && !known(graph_->nodes[p].in[1]))
      return graph_->nodes[p].out[0];
  }
  return kNoValue;
}

std::vector<ValueId> Prober::dominators(ValueId root, int max_nodes) const {
  // Walk back in reverse topological order, keeping the set of data values still needed: whenever that
  // set has one element, everything passes through it.
  std::vector<ValueId> result;
  std::set<std::pair<int, ValueId>> open;  // by producer, latest last
  auto push = [&](ValueId v) {
    if (v != kNoValue && !known(v)) open.insert({graph_->values[v].producer, v});
  };
  push(root);
  for (int visited = 0; visited < max_nodes && !open.empty(); ++visited) {
    const auto [p, v] = *open.rbegin();
    if (open.size() == 1 && v != root) result.push_back(v);
    if (p < 0) break;
    // All outputs of one node leave together.
    while (!open.empty() && open.rbegin()->first == p) open.erase(std::prev(open.end()));
    for (ValueId x : graph_->nodes[p].in) push(x);
  }
  return result;
}

}  // namespace situ
