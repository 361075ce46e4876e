#include "ops/known.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <sstream>

#include "ops/op.h"

namespace situ {
namespace {

using Names = std::set<std::string>;

struct Version {
  int since;
  int inputs, outputs;  // at most; -1: any number
  Names attributes;
};
using Key = std::pair<std::string, std::string>;  // domain, operator

Names words(const char* text) {
  std::istringstream stream(text);
  Names names;
  for (std::string word; stream >> word;) names.insert(word);
  return names;
}

// Oldest first.
const std::map<Key, std::vector<Version>>& known() {
  static const auto* const table = [] {
    auto* m = new std::map<Key, std::vector<Version>>;
#define SITU_KNOWN(name, since, inputs, outputs, attributes) \
  (*m)[{"", #name}].push_back({since, inputs, outputs, words(attributes)});
#include "ops/known_operators.inc"
#undef SITU_KNOWN
#define SITU_CONTRIB(domain, name, inputs, outputs, attributes, no_effect) \
  (*m)[{domain, #name}].push_back({1, inputs, outputs, words(attributes " " no_effect)});
#include "ops/known_contrib.inc"
#undef SITU_CONTRIB
    for (auto& [key, versions] : *m)
      std::sort(versions.begin(), versions.end(), [](const Version& a, const Version& b) { return a.since < b.since; });
    return m;
  }();
  return *table;
}

// Of `count` operands ("operand", "output"), with the names that values have in the file.
void check_count(const Node& node, const char* what, const std::vector<ValueId>& values, int most,
                 ReasonList* unknown) {
  for (size_t i = static_cast<size_t>(std::max(most, 0)); most >= 0 && i < values.size(); ++i)
    if (values[i] != kNoValue)
      unknown->add(node.reason(Reason::Kind::kAttribute, std::string(what) + " " + std::to_string(i) +
                                                             " is not supported: there are " + std::to_string(most)));
}

// Operands that are scales.
const std::map<Key, std::vector<size_t>>& scales() {
  static const auto* const table = new std::map<Key, std::vector<size_t>>{
      {{"", "QuantizeLinear"}, {1}},
      {{"", "DequantizeLinear"}, {1}},
      {{"", "QLinearConv"}, {1, 4, 6}},
      {{"", "QLinearMatMul"}, {1, 4, 6}},
      {{"com.microsoft", "QuantizeLinear"}, {1}},
      {{"com.microsoft", "DequantizeLinear"}, {1}},
      {{"com.microsoft", "MatMulNBits"}, {2}},
      {{"com.microsoft", "MatMulBnb4"}, {2}},
      {{"com.microsoft", "GatherBlockQuantized"}, {2}},
      {{"com.microsoft", "GroupQueryAttention"}, {12, 13}},
      {{"com.microsoft", "QMoE"}, {3, 6, 9}},
      {{"com.microsoft", "DynamicQuantizeMatMul"}, {2}},
      {{"com.microsoft", "MatMulIntegerToFloat"}, {2, 3}},
      {{"com.microsoft", "QGemm"}, {1, 4, 7}},
      {{"com.microsoft", "QLinearAdd"}, {1, 4, 6}},
      {{"com.microsoft", "QLinearMul"}, {1, 4, 6}},
      {{"com.microsoft", "QLinearSigmoid"}, {1, 3}},
      {{"com.microsoft", "QLinearLeakyRelu"}, {1, 3}},
      {{"com.microsoft", "QLinearSoftmax"}, {1, 3}},
  };
  return *table;
}

// An initialiser, or what a Constant has.
const Tensor* constant_of(const Graph& graph, ValueId v) {
  if (v == kNoValue) return nullptr;
  if (graph.values[v].constant.present()) return &graph.values[v].constant;
  const Node* n = graph.producer(v, "Constant");
  const Attribute* value = n != nullptr ? n->attr_of_kind("value", Attribute::Kind::kTensor) : nullptr;
  return value != nullptr ? &value->tensor : nullptr;
}

}  // namespace

void check_numbers(const Graph& graph, const Node& node, int64_t most, ReasonList* wrong) {
  for (const auto& [name, a] : node.attrs)
    if (node.op != "Constant" && ((a.kind == Attribute::Kind::kFloat && std::isnan(a.f)) ||
                                  std::any_of(a.floats.begin(), a.floats.end(), [](float f) { return std::isnan(f); })))
      wrong->add(node.reason(Reason::Kind::kAttribute, "attribute " + name + " is not a number"));
  const auto operands = scales().find({node.domain, node.op});
  if (operands == scales().end()) return;
  for (const size_t i : operands->second) {
    const Tensor* scale = node.has_input(i) ? constant_of(graph, node.in[i]) : nullptr;
    if (scale == nullptr || !dtype_is_float(scale->type()) || dtype_bytes(scale->type()) < 2 || scale->count() > most)
      continue;
    const std::vector<double> numbers = scale->to_f64();
    const auto bad = std::find_if(numbers.begin(), numbers.end(), [](double x) { return !std::isfinite(x); });
    if (bad != numbers.end())
      wrong->add(node.reason(Reason::Kind::kAttribute, "operand " + std::to_string(i) + " (scales) has " +
                                                           std::to_string(*bad) + " at element " +
                                                           std::to_string(bad - numbers.begin())));
  }
}

void check_known(const Node& node, ReasonList* unknown) {
  const auto found = known().find({node.domain, node.op});
  if (found == known().end()) return;
  // From the one on that Situ's first version of the operator is of.
  const std::vector<Version>& versions = found->second;
  size_t first = 0, end = 0;
  while (end < versions.size() && versions[end].since <= node.opset) ++end;
  while (node.def && first + 1 < end && versions[first + 1].since <= node.def->since) ++first;
  if (end == 0) return;
  const Version& newest = versions[end - 1];
  const auto has = [&](const std::string& name) {
    return std::any_of(versions.begin() + static_cast<ptrdiff_t>(first), versions.begin() + static_cast<ptrdiff_t>(end),
                       [&](const Version& v) { return v.attributes.count(name) != 0; });
  };
  for (const auto& [name, attribute] : node.attrs)
    if (!name.starts_with("__") && !has(name))
      unknown->add(node.reason(Reason::Kind::kAttribute, "attribute " + name + " is not supported"));
  check_count(node, "operand", node.in, newest.inputs, unknown);
  check_count(node, "output", node.out, newest.outputs, unknown);
}

bool has_known_attributes(const std::string& domain, const std::string& op) { return known().count({domain, op}) != 0; }

}  // namespace situ
