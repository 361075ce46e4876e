// Einsum as products of matrices, products of elements and sums.
#pragma once

#include "passes/context/builder.h"

namespace situ {

// Writes out `n`, an Einsum whose operands have known shapes. Operands are joined from the left: letters that both
// have, and nothing behind them, are summed by MatMul; where there are none, elements are multiplied.
Status expand_einsum(Graph& graph, Builder& builder, const Node& n);

}  // namespace situ
