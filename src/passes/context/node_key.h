// Nodes and numbers as text: equal where the same is computed, so that it is looked at once.
#pragma once

#include <functional>
#include <string>

#include "graph/graph.h"

namespace situ {

// Operator, version, attributes and operands, as `operand` calls these; numbers to the last bit.
std::string node_key(const Node& n, const std::function<std::string(ValueId)>& operand);

// What is known of the numbers of a value: its content, or a constant of at most kMaxContent floats, integers or bools;
// with type and shape. Empty: nothing, or too many.
std::string numbers_key(const Value& value);

// The nodes of a cone in order, with what they read; `leaf` is the value that they are made of, and `operand` calls the
// others.
std::string cone_key(const Graph& graph, const std::vector<int>& nodes, ValueId leaf,
                     const std::function<std::string(ValueId)>& operand);

}  // namespace situ
