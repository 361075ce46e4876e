// Whether host values are made of how many tokens precede a step.
#pragma once

#include <map>

#include "graph/graph.h"

namespace situ {

class FollowsPast {
 public:
  explicit FollowsPast(const Graph& graph) : graph_(graph) {}
  // Of a host value: its numbers, or how many of them there are. False is shown for every step.
  bool operator()(ValueId v);

 private:
  const Graph& graph_;
  std::map<ValueId, bool> known_;
};

}  // namespace situ
