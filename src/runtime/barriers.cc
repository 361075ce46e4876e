#include "runtime/barriers.h"

#include <algorithm>

namespace situ {

StepKind step_kind(int index) { return {(index & 1) != 0, (index & 2) != 0, (index & 4) != 0}; }

bool runs_in(const Call& call, const StepKind& kind) {
  return (kind.logits || !call.for_logits) && (kind.several || call.takes != Takes::kTokens);
}

std::vector<char> barriers_of(const Schedule& schedule, const StepKind& kind) {
  const int count = static_cast<int>(schedule.calls.size());
  std::vector<char> barriers(schedule.calls.size(), 0);
  // The last call that runs among a call and those that it waits for, also through calls that are left out; -1: none.
  std::vector<int> latest(schedule.calls.size(), -1);
  std::vector<int> outside(schedule.calls.size(), -1);  // the last of those that stands before the call's row group
  int done = 0;                                         // all calls before this one are done when a thread gets here
  size_t edge = 0, group = 0;
  for (int begin = 0, end = 0; begin < count; begin = end) {
    end = begin + 1;
    while (group < schedule.row_groups.size() && schedule.row_groups[group].begin < begin) ++group;
    if (kind.by_rows && group < schedule.row_groups.size() && schedule.row_groups[group].begin == begin)
      end = schedule.row_groups[group].end;
    int needed = -1;
    for (int i = begin; i < end; ++i) {
      int &last = latest[static_cast<size_t>(i)], &out = outside[static_cast<size_t>(i)];
      for (; edge < schedule.edges.size() && schedule.edges[edge].after == i; ++edge) {
        const int b = schedule.edges[edge].before;
        last = std::max(last, latest[static_cast<size_t>(b)]);
        out = std::max(out, (b < begin ? latest : outside)[static_cast<size_t>(b)]);
      }
      if (!runs_in(schedule.calls[static_cast<size_t>(i)], kind)) continue;
      last = i;
      needed = std::max(needed, out);
    }
    if (needed < done) continue;
    barriers[static_cast<size_t>(begin)] = 1;
    done = begin;
  }
  return barriers;
}

namespace {

// The row group of a call where rows go through it at once; -1: none.
int group_of(const Schedule& schedule, const StepKind& kind, int call) {
  if (!kind.by_rows) return -1;
  for (size_t g = 0; g < schedule.row_groups.size(); ++g)
    if (schedule.row_groups[g].begin <= call && call < schedule.row_groups[g].end) return static_cast<int>(g);
  return -1;
}

}  // namespace

Status check_barriers(const Schedule& schedule, const StepKind& kind, const std::vector<char>& barriers) {
  const int count = static_cast<int>(schedule.calls.size());
  for (int first = 0; first < count; ++first) {
    if (!runs_in(schedule.calls[static_cast<size_t>(first)], kind)) continue;
    std::vector<char> waits(schedule.calls.size(), 0);  // for `first`, at once or through others
    waits[static_cast<size_t>(first)] = 1;
    for (const Edge& e : schedule.edges)
      if (waits[static_cast<size_t>(e.before)]) waits[static_cast<size_t>(e.after)] = 1;
    const int group = group_of(schedule, kind, first);
    for (int call = first + 1; call < count; ++call) {
      if (!waits[static_cast<size_t>(call)] || !runs_in(schedule.calls[static_cast<size_t>(call)], kind)) continue;
      const int own = group_of(schedule, kind, call);
      if (own >= 0 && own == group) continue;
      // Rows of a group are begun one after the other: only barriers outside of it count.
      int from = first + 1, to = call;
      if (group >= 0) from = schedule.row_groups[static_cast<size_t>(group)].end;
      if (own >= 0) to = schedule.row_groups[static_cast<size_t>(own)].begin;
      bool met = false;
      for (int i = from; i <= to; ++i) met = met || barriers[static_cast<size_t>(i)];
      if (!met)
        return Status::error("call " + std::to_string(call) + " waits for call " + std::to_string(first) +
                             ", and no barrier stands between them");
    }
  }
  for (const RowGroup& g : schedule.row_groups)
    for (int i = g.begin + 1; kind.by_rows && i < g.end; ++i)
      if (barriers[static_cast<size_t>(i)])
        return Status::error("a barrier stands before call " + std::to_string(i) + ", inside a row group");
  return Status::ok();
}

}  // namespace situ
