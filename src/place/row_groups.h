// Products of the same rows, one behind the other.
#pragma once

#include "graph/graph.h"
#include "place/plan.h"

namespace situ {

// Products whose kernels give each thread rows of its own where there are many (split_product in kernels/isa.h), and
// write rows by slot (out_rows in kernels/rows.h).
bool is_row_product(const Node& node);

// Sets Step::same_rows. Blocks of the arena must have no offsets yet: allocate_blocks keeps those of a group apart.
void find_row_groups(const Graph& graph, Plan* plan);

// The step behind the last one of the group that begins at `first`; first + 1: it is alone.
size_t end_of_row_group(const Plan& plan, size_t first);

}  // namespace situ
