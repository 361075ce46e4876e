// The sequences of a step as attention reads them (KernelCall::segments): whose the rows are, and where their keys lie
// in the space of tokens and in that of sources.
#pragma once

#include <span>
#include <vector>

#include "kernels/kernel.h"

namespace situ {

struct Segment;

class StepTable {
 public:
  // Stays valid as long as the runs of the segments.
  void build(std::span<const Segment> segments);
  const std::vector<StepSegment>& tokens() const { return tokens_; }
  const std::vector<StepSegment>& sources() const { return sources_; }

 private:
  std::vector<StepSegment> tokens_, sources_;
  std::vector<Run> source_runs_;
};

// The first keys, of `keys`, that two lists of runs have in the same slots.
int64_t shared_keys(const Run* a, const Run* b, int64_t keys);

}  // namespace situ
