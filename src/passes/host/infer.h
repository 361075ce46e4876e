// What is known of values before a step: types, shapes, small integer contents.
#pragma once

#include <vector>

#include "passes/context/pass_context.h"

namespace situ {

// Types, shapes and small integer contents of every value; folds nodes whose operands are constants.
// Errors name the node. Called after every pass.
Status infer_shapes(PassContext&);
// Elements of the outputs of `node` on symbols, where the node is integer arithmetic or movement.
// Sets infos[i].content for the outputs it can tell. `context`: of a graph whose inputs are bound.
void infer_content(const Graph& graph, const Node& node, Evaluator& evaluator, std::vector<ValueInfo>& infos,
                   const PassContext* context = nullptr);

}  // namespace situ
