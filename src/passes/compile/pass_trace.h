// What the passes did to one graph, for `situ inspect --passes`. Nothing of it is looked at where nobody asks.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "passes/context/pass_context.h"

namespace situ {

struct PassRecord {
  std::string name;
  double ms = 0;        // of the pass, and of the inference of shapes behind it
  int64_t visits = 0;   // nodes that both looked at (NodeList), each as often as it was looked at
  int64_t edits = 0;    // nodes that are new, gone, or have another operator, other attributes or operands
  int64_t nodes = 0;    // behind it
  uint64_t digest = 0;  // of the graph and the binding behind it (graph/digest.h)
};

// One compilation: a graph is compiled again where a context is too long, or holds for some kinds of step only.
struct CompileTrace {
  std::string graph;  // "decoder", "encoder", "texts" or "media"
  Phase phase = Phase::kAny;
  bool literal = false;
  std::vector<PassRecord> passes = {};
};
using CompileTraces = std::vector<CompileTrace>;

// Of the graph and of what its binding says.
uint64_t digest_of(const PassContext& context);

}  // namespace situ
