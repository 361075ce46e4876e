// After the passes: what becomes of the tokens of one step.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "eval/interpreter.h"
#include "passes/context/binding.h"

namespace situ {

struct TokenOrder {
  std::string mixing;  // the first node whose result for a token depends on later tokens of the step (label); "": none
  // Whether the tokens may be of several sequences, in order: most nodes take them one by one; some want one sequence
  // at a time.
  std::vector<char> by_sequence;  // by node
  std::string one_sequence;       // why they may not; "": they may
  // The first node that may compute across the tokens of a step as a recurrence does, from states that are replaced and
  // from the step's own tokens: right for any parts of a prompt if what a prompt gives in parts says so
  // (same_in_parts). "": none.
  std::string recurrence = {};
  int64_t reach = 0;  // of `recurrence`: what it computes may be another in steps beyond so many tokens
};
TokenOrder token_order(const Graph& graph, const Binding& binding, Evaluator& evaluator, Phase phase, int64_t context);
// Of an encoder of whole texts: `mixing` tells a decoder, whose tokens see no later ones. Where one_sequence is empty
// several texts may share a step: what computes across tokens is called for one text after the other.
TokenOrder text_order(const Graph& graph, const Binding& binding, Evaluator& evaluator, int64_t context);

}  // namespace situ
