// Branches of If nodes.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "passes/context/builder.h"

namespace situ {

// Adds the branch's nodes to those of the enclosing graph; returns what its outputs became. `given`: values of the
// branch that values of the enclosing graph take the place of.
std::vector<ValueId> inline_branch(Graph& graph, const Graph& branch, const std::string& prefix, Builder& builder,
                                   const std::map<ValueId, ValueId>& given = {});

// Both branches of an If. Error: one is missing, or they have other numbers of outputs than the node.
struct Branches {
  const Graph *on_true = nullptr, *on_false = nullptr;
};
Result<Branches> branches_of(const Node& node);

}  // namespace situ
