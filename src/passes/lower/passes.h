// Passes for the kernels: element types, packed weights, products with what stands behind them.
#pragma once

#include "passes/context/pass_context.h"

namespace situ {

Status widen_half(PassContext&);       // half-precision activations in float; weights and states stay half
Status fuse_dequantize(PassContext&);  // DequantizeLinear of a weight into its MatMul
Status fuse_integer(PassContext&);     // DynamicQuantizeLinear and MatMulInteger: rounded rows and their products
Status fuse_rounding(PassContext&);    // QuantizeLinear and DequantizeLinear behind it: one elementwise operator
Status pack_weights(PassContext&);     // quantised weights in the order in which they are read
Status pack_integer(PassContext&);     // weights of integer products, and what stands behind these
Status pack_dense(PassContext&);       // float weights in panels of columns
Status pack_experts(PassContext&);     // weights of experts, as one matrix
Status fuse_matmuls(PassContext&);     // gates, norms and residuals into packed products
Status store_states(PassContext&);     // the element type of attention states
Status fuse_casts(PassContext&);       // casts to half precision into the kernels that write for them
Status join_products(PassContext&);    // packed products of the same rows into one call

}  // namespace situ
