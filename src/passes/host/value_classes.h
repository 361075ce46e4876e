// Equal numbers for values that the same operators make of the same constants and inputs: what is told of one of them
// holds for the others.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "graph/graph.h"

namespace situ {

class ValueClasses {
 public:
  explicit ValueClasses(const Graph& graph);
  // -1 for an operand that is left out.
  int of(ValueId v) const { return v == kNoValue ? -1 : class_[static_cast<size_t>(v)]; }

 private:
  int number(const std::string& key) { return known_.try_emplace(key, static_cast<int>(known_.size())).first->second; }

  std::vector<int> class_;
  std::map<std::string, int> known_;
};

}  // namespace situ
