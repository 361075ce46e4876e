// Programs are graphs under an assignment of some symbols: {flag = first call}, {flag = cached call}, {S = 1}, {C = 0}.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "eval/interpreter.h"
#include "graph/graph.h"

namespace situ {

struct Assignment {
  std::map<std::string, int64_t> flags;  // inputs of one element, by name
  std::map<int, Dim> symbols;            // file symbols and the runtime's
  // In predicates alone: an extent that tells a first call from a cached one, whatever the rest of the graph makes of
  // it.
  std::map<int, Dim> in_predicates;
};

// The graph where the assignment holds: symbols are substituted, flags are constants, and what an If on them takes is
// in the graph itself. An If whose predicate the assignment does not decide stays. Errors: a flag that is no input of
// one integer or bool; what inference of a predicate says.
Result<Graph> specialise(const Graph& graph, const Assignment& assignment, Evaluator& evaluator);

// The inputs of one element, integers or bools, that alone decide (with constants) an If of the graph.
std::vector<ValueId> find_flags(const Graph& graph);

// Whether `a` and `b` take another branch of an If.
bool told_apart(const Graph& graph, const Assignment& a, const Assignment& b, Evaluator& evaluator);

// Keeps what `outputs` need: other outputs, nodes and inputs go.
void slice(Graph& graph, std::vector<ValueId> outputs);

// Moves the nodes of `from` into `to`; `joined` (an input of `from`) becomes `by` (a value of `to`). Returns what the
// outputs of `from` became. Nothing but names and constants is known of the values that come in: infer_shapes tells.
std::vector<ValueId> link(Graph& to, const Graph& from, const std::map<ValueId, ValueId>& joined,
                          const std::string& prefix);

}  // namespace situ
