// The same model with activations that are not rounded to 8 bits on their way: what is left tells programs apart.
#pragma once

#include "graph/graph.h"

namespace situ {

// Rewrites a graph as it was imported:
//   MatMulNBits, QMoE at accuracy_level 4                  -> the same in float
//   DynamicQuantizeLinear(x), MatMulInteger, ConvInteger   -> MatMul, Conv of x and the weights' digits
//   DequantizeLinear(QuantizeLinear(x))                    -> x
// Returns how many nodes it changed. What is read in another way is left as it is.
int float_activations(Graph* graph);

}  // namespace situ
