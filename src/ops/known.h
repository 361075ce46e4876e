// What nodes may have: attributes and operands that Situ knows. Another one may mean anything.
#pragma once

#include <string>
#include <vector>

#include "base/reasons.h"
#include "graph/graph.h"

namespace situ {

// Adds a reason for each attribute and operand of the node that the operator does not have in its opset: of ai.onnx by
// known_operators.inc, of other domains by known_contrib.inc. Of an operator in neither nothing is said. What an older
// version of the operator has may stand in a newer one; names that begin with "__" are of the host that wrote them.
void check_known(const Node& node, ReasonList* unknown);

// Adds a reason for each number that nothing can be computed with: attributes that are not a number, constant scales of
// at most `most` numbers, of digits and of what is rounded, that are not finite.
void check_numbers(const Graph& graph, const Node& node, int64_t most, ReasonList* wrong);

// Operators of known_contrib.inc, and attributes that change nothing, as "domain.Operator": for tests.
bool has_known_attributes(const std::string& domain, const std::string& op);

}  // namespace situ
