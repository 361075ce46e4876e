// Fixed windows: exports whose extents are all numbers. A step takes W tokens, the mask [1, T] has ones from the right,
// a past has T - W rows and a present has T, and the host moves rows from one to the other after each step:
//
//   input_ids [1, W], attention_mask [1, T], past [.., T - W, ..] -> logits [.., W, V], present [.., T, ..]
#pragma once

#include <optional>
#include <vector>

#include "base/status.h"
#include "eval/interpreter.h"
#include "graph/graph.h"
#include "passes/context/binding.h"

namespace situ {

struct FixedWindow {
  struct State {
    ValueId past = kNoValue, present = kNoValue;
    int axis = 0;  // T - W of the past, T of the present
  };
  ValueId ids = kNoValue, mask = kNoValue;
  std::vector<ValueId> positions;  // integer inputs with W as their last extent that are called positions
  std::vector<State> states;
  int64_t tokens = 0;  // W
  int64_t length = 0;  // T
  int64_t past() const { return length - tokens; }
};

// What the declared shapes of inputs and outputs say. Nothing where some of these extents are no numbers.
// Error: all of them are, and they fit no form that is known.
Result<std::optional<FixedWindow>> find_fixed_window(const Graph& graph, const InputNames& names);

// `fixed` and `lifted`: the graph before and after, with the same values, and all shapes inferred. Shows that a step of
// the fixed window with n ones in its mask computes for its real tokens what the lifted graph does at P = n - S:
//  - what depends on mask, positions and lengths alone is the same for real tokens and keys;
//  - attention hides every key that the mask hides, whatever its score;
//  - a part of tokens or keys is taken from the same place, counted from the last.
// That nothing else is computed across tokens is seen by token_order, after the passes.
// Error: where not, and how it differs.
Status prove_lifted(const FixedWindow& window, const Graph& fixed, const Graph& lifted, Evaluator& evaluator);

}  // namespace situ
