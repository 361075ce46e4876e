// Constants at odd addresses.
#pragma once

#include "graph/graph.h"

namespace situ {

class PackStore;

// Constants at odd addresses become copies at even ones: all, or all but those that pack_dense may lay out. `packs`
// shares copies between programs; null: each gets its own.
void align_constants(Graph& graph, PackStore* packs, bool all);

}  // namespace situ
