// What the verifier of schedules knows of the calls: which bytes each touches, in any step and in a step that it looks
// at. Inner parts of verify_schedule().
#pragma once

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "schedule/schedule.h"

namespace situ {

// Bytes [begin, end) from a block's first byte.
struct ByteRange {
  int64_t begin = 0, end = 0;
};

// What a call touches by one operand.
struct Touch {
  const Home* home = nullptr;
  DType type = DType::kNone;
  bool write = false;
  int64_t begin = 0, end = 0;  // bytes of the block, in any step
  size_t operand = 0;          // of the call: inputs, then outputs
};

struct ScheduleFacts {
  ScheduleFacts(const Graph& g, const Plan& p, const TokenOrder& o, const Schedule& s);
  // Fills `touches`. Error: a call of no step, or one that writes constants.
  Status find_touches();
  Touch touch_of(const Home& home, DType type, bool write) const;

  const Call& call(int i) const { return schedule.calls[static_cast<size_t>(i)]; }
  std::string label(int i) const;
  // Memory whose bytes may overlap, and where a block begins in it.
  std::pair<RegionKind, int> memory(const Touch& t) const;
  int64_t base(const Touch& t) const;

  const Graph& graph;
  const Plan& plan;
  const TokenOrder& order;
  const Schedule& schedule;
  std::vector<std::vector<Touch>> touches;  // by call
};

// A step that the verifier looks at: as many tokens, wanted ones, past ones; the slot of the first.
SymbolValues step_values(int64_t tokens, int64_t wanted, int64_t past, int64_t slot);

// The view of a home in one step.
struct StepView {
  int64_t offset = 0;
  std::vector<int64_t> dims, strides;
  friend bool operator==(const StepView&, const StepView&) = default;
};
StepView view_at(const Home& home, const SymbolValues& step);
// Its bytes, in order; neighbours are one range.
std::vector<ByteRange> bytes_of(const StepView& view, DType type);

// Rows that threads take through row groups on their own do not meet.
Status verify_row_groups(const ScheduleFacts& facts);
// What calls do in steps of several segments is what they do for each sequence alone.
Status verify_segments(const ScheduleFacts& facts);

}  // namespace situ
