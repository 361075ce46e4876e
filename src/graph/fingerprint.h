// Fingerprint of a graph: a number of 64 bits of all that operators, shapes and passes look at. Names alone, which
// messages show, are left out. Constants count by where their elements lie, not by their elements.
#pragma once

#include <cstdint>
#include <string_view>

#include "graph/graph.h"

namespace situ {

// Numbers and texts, in order, as one number.
class Fingerprint {
 public:
  void add(uint64_t word) {
    sum_ = (sum_ ^ word) * 0x9e3779b97f4a7c15u;
    sum_ ^= sum_ >> 29;
  }
  void add(std::string_view text);
  void add(const Dim& d);
  void add(const Tensor& t);
  uint64_t sum() const { return sum_; }

 private:
  uint64_t sum_ = 0;
};

// Of the graph, and of the graphs in its attributes.
uint64_t fingerprint(const Graph& graph);

}  // namespace situ
