// What an integer input says of caches of a fixed size, told by who reads it.
#pragma once

#include <utility>
#include <vector>

#include "graph/graph.h"

namespace situ {

using Users = std::vector<std::vector<std::pair<int, int>>>;  // Graph::users

enum class PlaceUse {
  kNone,
  kLength,  // nonpad_kv_seqlen: rows that hold tokens, behind the step
  kFirst,   // write_indices: the place of a step's first row
  kBehind,  // that of the row behind a step, from which something is taken away
  kIndex,   // of a scatter: the place of each row, or what they are counted from
  kCut,     // where the rows before or behind those of a step are cut off
  kEqual,   // compared with places
};
PlaceUse place_use(const Graph& graph, const Users& users, ValueId input);

// Whether a scatter writes into a state, or into a moved one.
bool is_scattered_into(const Graph& graph, const Users& users, ValueId state);

// Gives an input its one number, whatever its rank. Nodes that make inputs stand behind the others until the graph is
// sorted: the numbers of those stay.
void say_number(Graph& graph, ValueId input, const Dim& number);

// Makes a mask [1, N] of an input: 1 for each of the first past + tokens places, which hold a token, else 0. Of
// [1, 1, tokens, N]: 1 for each place that holds the token of the row or one before.
void show_written(Graph& graph, ValueId mask, const Dim& past, const Dim& tokens);

}  // namespace situ
