// Fingerprint of a graph: a number of 64 bits of all that operators, shapes and passes look at. Names alone, which
// messages show, are left out. Constants count by where their elements lie, not by their elements.
#pragma once

#include <cstdint>

#include "base/word_sum.h"
#include "graph/graph.h"

namespace situ {

class Fingerprint : public WordSum {
 public:
  using WordSum::add;
  void add(const Dim& d);
  void add(const Tensor& t);
};

// Of the graph, and of the graphs in its attributes.
uint64_t fingerprint(const Graph& graph);

}  // namespace situ
