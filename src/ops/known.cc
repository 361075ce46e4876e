#include "ops/known.h"

#include <algorithm>
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

}  // namespace

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
