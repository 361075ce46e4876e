// Where the threads of a step wait for each other: the edges of a schedule as barriers between calls.
#pragma once

#include <vector>

#include "schedule/schedule.h"

namespace situ {

// What decides which calls of a schedule run in a step, and how.
struct StepKind {
  bool logits = true;    // somebody wants the logits of a token
  bool several = false;  // the step has several segments
  bool by_rows = false;  // threads go through row groups some rows at a time
  int index() const { return logits + 2 * several + 4 * by_rows; }
};
constexpr int kStepKinds = 8;
StepKind step_kind(int index);

bool runs_in(const Call& call, const StepKind& kind);
// Whether a call that takes one segment at a time takes this one. `single`: it is a token of its own.
inline bool takes_segment(const Call& call, bool single) {
  return single ? call.takes != Takes::kPieces : call.takes != Takes::kTokens;
}

// By call: whether all threads meet before it. Few: one barrier serves every edge that crosses it. No barrier stands
// inside a row group of a step by rows.
std::vector<char> barriers_of(const Schedule& schedule, const StepKind& kind);

// Whether the barriers keep every order that the edges ask for: derived from all pairs of calls, not from the barriers
// above. Errors name the calls.
Status check_barriers(const Schedule& schedule, const StepKind& kind, const std::vector<char>& barriers);

}  // namespace situ
