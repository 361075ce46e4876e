// The context: what passes share while one graph is compiled.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "eval/interpreter.h"
#include "graph/graph.h"
#include "passes/context/binding.h"

namespace situ {

class PackStore;

struct PassContext {
  Graph& graph;
  Evaluator& evaluator;
  Binding& binding;
  InputNames names;
  int64_t context_length = 0;  // tokens that the model is declared for; bounds window probes
  int64_t length = 0;          // tokens that there is room for,
  bool endless = false;        // or of which any number may pass through a window
  std::vector<Finding> found;
  Phase phase = Phase::kAny;
  // -- in a module with an encoder
  bool literal = false;                    // for the naive mode
  bool float_activations = false;          // half precision becomes float, literally too, and so do states
  bool encoder = false;                    // the graph writes the sources; it has no past and no logits
  std::vector<SourceRows> sources;         // that the graph writes (as outputs) or reads (as inputs)
  std::set<std::string> fed;               // inputs of an encoder that the caller gives as tensors
  bool texts = false;                      // an encoder of whole texts, with types of tokens, and without a past
  Dim source_length = Dim::symbol(kSymE);  // of the mask that a decoder takes of its source
  // Set by infer_shapes when it stopped at an If, whose outputs are not known before it is inlined.
  bool at_control = false;
  std::vector<std::pair<ValueId, DType>> declared_outputs;  // as the file has them
  DType kv_type = DType::kNone;  // of appended states that attention alone reads; kNone: the pass decides
  PackStore* packs = nullptr;    // where packed weights go; null: none are packed
  // Casts of stored weights are not folded yet: passes may still find that they are read as they are stored.
  bool weights_as_stored = false;
  int64_t stored_bytes = 0,
          folded_bytes = 0;           // of the file's constants, and of those that infer_shapes made and that are read
  std::map<ValueId, int64_t> folded;  // bytes of all that it made
  // Of a graph in which infer_shapes, when it was last called, found nothing to change: a pass that leaves the graph as
  // it is need not have it called again.
  std::optional<uint64_t> settled;
  bool half_values = false;  // set by widen_half: the file computes in half precision, somewhere
  // Set by widen_half: constants, and what is made of constants alone, that the file has in half precision, and in
  // which.
  std::map<ValueId, DType> rounded;
  // Called by infer_shapes for each node before its shapes are inferred: may replace operands. Empty: nothing is.
  std::function<void(Node&)> before_infer;
  // Contexts, shorter than this one, that the graph may hold, and what would bound them: for who compiles again.
  std::map<int64_t, std::string> holds = {};
  // Set by bind_inputs: inputs whose number only their readers tell (the place of a cache that a step writes to).
  std::vector<ValueId> told_by_use = {};
  int64_t lifted = 0;  // set by lift_extents: tokens of the file's steps, whose extents were numbers; 0: they were not
  // A step that subgraphs are probed at: S, P and T = P + S all differ where the phase lets them.
  int64_t probe_tokens() const { return phase == Phase::kDecode ? 1 : 2; }
  int64_t probe_past() const { return phase == Phase::kFirst ? 0 : 3; }

  void note(std::string kind, std::string where, std::string what) {
    found.push_back({std::move(kind), std::move(where), std::move(what)});
  }
};

// SITU_DISABLE_PASSES names `name` or all.
bool pass_disabled(const std::string& name);

}  // namespace situ
