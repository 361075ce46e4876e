// A step of a graph that was compiled literally: values are tensors, the host hands states over.
#pragma once

#include <map>
#include <span>
#include <string>

#include "eval/interpreter.h"
#include "runtime/compile.h"

namespace situ {

struct LiteralStep {
  std::span<const int64_t> tokens;
  int64_t past = 0;
  int64_t source_rows = 1;
  const std::map<std::string, Tensor>* states = nullptr;  // by the name of the state
  const std::map<std::string, Tensor>* fed = nullptr;     // by the name of the input
  int64_t source_length = 0;           // of the encoder's input; 0: the fewest that so many rows are made of
  int64_t first_position = -1;         // -1: past
  const int64_t* positions = nullptr;  // [3, position_stride], of the tokens at first; null: first_position and on
  int64_t position_stride = 0;
};
struct LiteralResult {
  Tensor logits;
  Tensor rows;                           // Binding::rows
  std::map<std::string, Tensor> states;  // that the graph makes, by name
};
Result<LiteralResult> run_literally(const Compiled& compiled, const LiteralStep& step, Evaluator& evaluator);

// Whether a prompt gives the same logits and states in parts as at once, of a few lengths and parts, some of them
// beyond TokenOrder::reach: what an exporter writes of a recurrence for all tokens of a step does, and what holds for
// its first tokens only does not.
bool same_in_parts(const Compiled& compiled, Evaluator& evaluator);

extern const char* const kHidden;  // the name of the encoder's output among the states of a host's graph
// A decoder's graph of a host, for first or cached calls.
Result<Compiled> compile_literally(const Graph& graph, const Module& module, const EngineOptions& options, Phase phase);

// How the first call of a decoder and its cached branch, without past, are related: both are run on random rows of a
// source.
enum class FirstCall {
  kSame,      // they compute the same: the cached branch serves all steps
  kOneToken,  // they do not, but single tokens go on from the first call: the cached branch holds for those alone
  kOther,     // neither: these are no two calls of one model
};
Result<FirstCall> compare_first_call(const Module& module, const EngineOptions& options, Evaluator& evaluator);

// Whether a decoder that takes the mask of an encoder's input gives the same logits for all lengths of which the
// encoder makes as many rows: programs in place know the rows alone. The longest and shortest are run, and some
// between.
Status check_source_length(const Module& module, const EngineOptions& options, Evaluator& evaluator);

}  // namespace situ
