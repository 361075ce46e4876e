// Operators on constants: computed at once, or when the result is first looked at.
#include <algorithm>

#include "passes/context/pass_context.h"
#include "passes/host/constants.h"
#include "passes/pack/pack_store.h"

namespace situ {

constexpr int kMostDeferred = 64;  // of deferred constants made of deferred ones: calls inside one another

std::vector<Tensor> computed_results(const PassContext& context, Evaluator& evaluator, const Node& node,
                                     const std::vector<Tensor>& operands) {
  Result<std::vector<Tensor>> results = evaluator.node(node, operands);
  if (!results.is_ok()) throw FoldingFailed(results.status().message());
  if (context.packs)
    for (const Tensor& t : operands)
      if (t.present()) context.packs->release(t);
  return std::move(*results);
}

Tensor computed_later(PassContext& context, const std::vector<Tensor>& operands, DType type,
                      const std::vector<int64_t>& dims,
                      std::function<Tensor(const std::vector<Tensor>& operands)> compute) {
  int depth = 1;
  for (const Tensor& t : operands) depth = std::max(depth, t.depth() + 1);
  const Tensor t = Tensor::deferred(type, dims, depth, [context = &context, operands, compute = std::move(compute)] {
    // What takes most steps first: its steps' operands are gone before the others are there.
    std::vector<const Tensor*> order;
    for (const Tensor& t : operands) order.push_back(&t);
    std::stable_sort(order.begin(), order.end(),
                     [](const Tensor* a, const Tensor* b) { return a->depth() > b->depth(); });
    for (const Tensor* t : order) t->view();
    const Tensor made = compute(operands);
    for (const Tensor* t : order)
      if (context->packs && t->present()) context->packs->release(*t);
    return made;
  });
  if (depth > kMostDeferred) t.view();
  return t;
}

Tensor deferred_result(PassContext& context, const Node& node, size_t output, const std::vector<Tensor>& operands,
                       DType type, const std::vector<int64_t>& dims) {
  return computed_later(context, operands, type, dims,
                        [context = &context, node, output](const std::vector<Tensor>& numbers) {
                          // A table of embeddings is more than a probe may ask for.
                          Evaluator large(context->evaluator.pool());
                          return computed_results(*context, large, node, numbers)[output];
                        });
}

}  // namespace situ
