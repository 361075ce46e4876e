// Operators on constants: computed at once, or when the result is first looked at.
#pragma once

#include <cstdint>
#include <functional>
#include <stdexcept>
#include <vector>

#include "passes/context/pass_context.h"

namespace situ {

// Thrown where an operator on constants fails: at once, or when a constant that it makes is first looked at
// (Tensor::deferred). The engine catches it.
struct FoldingFailed : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// The results of an operator on constants, whose pages of the file are let go. Throws FoldingFailed.
std::vector<Tensor> computed_results(const PassContext& context, Evaluator& evaluator, const Node& node,
                                     const std::vector<Tensor>& operands);
// A constant of `dims` that is computed of others when it is first looked at, which nobody does where a model is only
// asked whether it can be run. What `compute` throws is thrown there. The context must live as long.
Tensor computed_later(PassContext& context, const std::vector<Tensor>& operands, DType type,
                      const std::vector<int64_t>& dims,
                      std::function<Tensor(const std::vector<Tensor>& operands)> compute);
// The same of one result of an operator: FoldingFailed is thrown.
Tensor deferred_result(PassContext& context, const Node& node, size_t output, const std::vector<Tensor>& operands,
                       DType type, const std::vector<int64_t>& dims);

}  // namespace situ
