// Lengths of sequences beside which a graph may compute something else: what is compared there tells all others.
#pragma once

#include <cstdint>
#include <vector>

#include "eval/interpreter.h"
#include "passes/context/binding.h"

namespace situ {

// Of all that nodes on data read of positions and lengths, ascending, from 1 to `context`: as telling_steps has them.
std::vector<int64_t> telling_lengths(const Graph& graph, const Binding& binding, Evaluator& evaluator, Phase phase,
                                     int64_t context);

}  // namespace situ
