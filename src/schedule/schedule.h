// The schedule of a program: its kernel calls in order, the bytes that each reads and writes, and which call waits for
// which. Data: made once from a plan, checked by a verifier that shares no code with it, carried out by an executor
// (runtime/executor.h).
#pragma once

#include <climits>
#include <string>
#include <vector>

#include "base/status.h"
#include "ops/op.h"
#include "passes/compile/token_order.h"
#include "place/plan.h"

namespace situ {

// Bytes [begin, end) of a block that a call reads or writes in a step. Where they depend on the step: to the end of the
// block, or all of it. Constants are left out: nothing writes them.
struct Access {
  RegionKind region = RegionKind::kNone;
  int root = -1;  // as Home::root
  int64_t begin = 0, end = 0;
  bool write = false;
};
// The end of a block of unknown size: a state, which has as many slots as the pool.
constexpr int64_t kBlockEnd = INT64_MAX;

// How a call takes the segments of a step: consecutive tokens of one sequence each. A step of one segment has no other
// tokens, and calls take it as a whole.
enum class Takes {
  kStep,   // all tokens of the step at once
  kEach,   // one segment after the other
  kTable,  // all at once, told by a table which rows are whose: attention over runs of slots (KernelCall::segments)
};

// One call of a kernel. Its operands are those of the plan's step, in order: the node's inputs and outputs, or what is
// moved and where to.
struct Call {
  int step = -1;      // index into Plan::steps
  Prepared prepared;  // the kernel and its parameters
  std::vector<ValueId> in, out;
  uint32_t by_run = 0;      // bit i: in[i] is all of a state's rows, read by the runs of slots of its sequence
  bool moves = false;       // what it writes existed before, though its kernel does not say so: booked as copied
  bool for_logits = false;  // no state depends on it: it is left out of a step whose logits nobody wants
  bool step_rows = false;   // a result has a row for each token of the step
  // In a step of several segments:
  Takes takes = Takes::kStep;
  bool in_order = false;     // kEach: threads keep their shares from segment to segment, and find what they left there
  bool last_rows = false;    // for_logits, and computes only what the tokens need whose logits are wanted
  uint32_t out_by_slot = 0;  // bit i: the rows of out[i] are written by slot (KernelCall::slots)
  int first_access = 0, accesses = 0;
};

// Call `after` begins when all threads are done with call `before`. Edges that follow from others are left out.
struct Edge {
  int before = -1, after = -1;
};

// Calls [begin, end) whose row r depends on row r alone: a thread may take some rows through all of them, and wait for
// no other one. (One by one they are ordered by edges like all calls.)
struct RowGroup {
  int begin = 0, end = 0;
};

struct Schedule {
  std::vector<Call> calls;
  std::vector<Access> accesses;      // of call 0, then of call 1 ..
  std::vector<Edge> edges;           // by `after`
  std::vector<RowGroup> row_groups;  // in order
  bool needs_contiguous = false;     // a call reads earlier rows of a state as one block: sequences must be one run
  std::string one_sequence;          // why a step cannot have tokens of several sequences; "": it can
};

// The calls of a plan, prepared. A pure function of its arguments. Errors name the node that no kernel covers.
Result<Schedule> make_schedule(const Graph& graph, const Plan& plan, const TokenOrder& order);

// Whether the schedule carries out the plan: every step is called, every access is recorded, any two calls of which one
// writes what the other one touches are ordered as the plan has them, rows of a row group meet no other rows, and what
// is left out of a step is not needed. Finds the accesses on its own. Errors name the calls.
Status verify_schedule(const Graph& graph, const Plan& plan, const TokenOrder& order, const Schedule& schedule);

// -- what programs ask too

// Where operand i of a call lies: its inputs, then its outputs. Precondition: it is present.
const Home& operand_home(const Plan& plan, const Call& call, size_t i);
// The operand's value; kNoValue: it is absent.
ValueId operand_value(const Call& call, size_t i);

// Whether a value has a row for each token of the step.
bool has_step_rows(const Home& home);
// Whether they are rows of tokens that the caller hands in: those of each segment lie where it has them.
bool is_handed_in(const Graph& graph, const Plan& plan, const Home& home);
// Why the rows of some tokens of a step are no view of their own; "": they are. `own`: the value is small integers of
// which each segment has its own.
std::string part_problem(const Home& home, bool own);

}  // namespace situ
