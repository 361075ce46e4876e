// The stages of make_schedule, in order. Each adds to the calls that the stages before have found.
#pragma once

#include <utility>
#include <vector>

#include "schedule/schedule.h"

namespace situ {

// What a schedule is made from.
struct ScheduleSource {
  const Graph& graph;
  const Plan& plan;
  const TokenOrder& order;
};

struct Operand {
  ValueId value = kNoValue;
  const Home* home = nullptr;  // null: absent
  bool written = false;
  bool present() const { return home != nullptr; }
  std::pair<int, int> block() const { return {static_cast<int>(home->region), home->root}; }
};
std::vector<Operand> operands_of(const Plan& plan, const Call& call);

// Which calls only logits need, which take one segment at a time, and which compute the rows of some tokens alone.
void find_segment_calls(const ScheduleSource& source, Schedule* schedule);

// Accesses of the calls and the edges between them.
void find_order(const Plan& plan, const Graph& graph, Schedule* schedule);

}  // namespace situ
