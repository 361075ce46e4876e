// Functions of a file that have the name of an operator.
#pragma once

#include "graph/graph.h"

namespace situ {

// Whether Situ has an operator of the node's name that has all its attributes, operands and outputs: a call of a
// function of that name is the operator then, as in ONNX Runtime.
bool is_operator(const Node& node);

}  // namespace situ
