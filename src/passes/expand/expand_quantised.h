// Operators on quantised activations and weights, as quantisers and onnxruntime's optimiser write them, as plainer
// ones.
#pragma once

#include "passes/context/builder.h"

namespace situ {

// Writes out `n` if it is one of:
//   com.microsoft QuantizeLinear, DequantizeLinear               those of ai.onnx
//   DynamicQuantizeMatMul, MatMulIntegerToFloat, QLinearMatMul   MatMulInteger, and what scales its sums
//   QGemm, QLinearAdd, QLinearMul, QLinearSigmoid, QLinearLeakyRelu, QLinearSoftmax, QLinearConcat, QLinearWhere
//                                                                the operator on floats between DequantizeLinear and
//                                                                QuantizeLinear
//   MatMulBnb4                                                   MatMulNBits with a table of digits
// else sets *expanded to false. Operands have known shapes. Errors name the node and what of it is not supported.
Status expand_quantised(Graph& graph, Builder& builder, const Node& n, bool* expanded);

}  // namespace situ
