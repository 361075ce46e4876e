// States of a free number of rows, of which a graph reads the last few only.
#pragma once

#include "passes/module/cache_places.h"

namespace situ {

// A state of as many rows as the host likes has as many as are read, where a graph of single tokens is the same for any
// number from there on:
//   both = Concat(past [1, C, W], x [1, C, 1]),  present = last W of both,  y = last of Conv(both, w [C, 1, K])
//     ->  W = K - 1, in all inputs and outputs
// Rows before the first token are zeros, however many there are. `axis`: of the rows that seem to grow, or -1. False:
// it is another graph, and stays as it is.
bool bind_window(Graph& graph, const Users& users, ValueId past, int axis);

// The same for a state of whose axis places are read (Gather) and written (ScatterElements) by their numbers alone, as
// layers are that a model keeps in one tensor: it has those.
bool bind_numbered(Graph& graph, const Users& users, ValueId past, size_t axis);

}  // namespace situ
