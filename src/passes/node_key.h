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

}  // namespace situ
