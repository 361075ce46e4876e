// Placement: the map from values to views. Made by the planner, checked by the verifier, run by programs.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"
#include "graph/graph.h"
#include "ops/op.h"
#include "ops/state_encoding.h"
#include "passes/context/binding.h"

namespace situ {

enum class RegionKind {
  kNone,     // never materialised: known on the host or folded into a view
  kWeights,  // constants, where the mapped file or the folding put them
  kState,    // slots of one state pair
  kArena,    // activations of one step
  kIo,       // buffers the host writes (ids, positions, host-known integers)
  kPort,     // tensors that the caller hands in or takes out, whose addresses each step is told
};
// Whether a block of the region is of one step alone, with rows for the tokens of all its sequences.
constexpr bool is_of_step(RegionKind region) {
  return region == RegionKind::kArena || region == RegionKind::kIo || region == RegionKind::kPort;
}
const char* region_name(RegionKind region);

struct Home {
  RegionKind region = RegionKind::kNone;
  int root =
      -1;  // kWeights: value that is the constant; kState: index into states; kArena, kIo, kPort: index into roots
  SymView view;
};

// A block of the arena or of the io region, or a port.
struct Root {
  ValueId value = kNoValue;  // whose layout it has
  DType type = DType::kNone;
  Shape dims;
  int64_t bytes = 0;          // at the plan's bounds
  int64_t offset = 0;         // in its region, 64-byte aligned; of an output port: see Plan::ports
  int first = -1, last = -1;  // steps between which it holds live values
};

struct StateLayout {
  StatePair pair;
  DType type = DType::kNone;
  StateEncoding encoding = {};  // as who attends to it reads its rows
  int64_t slot_elements =
      0;  // kAppend, kSource: elements of a row; kReplace: of the whole state; 0: not in this program
  int64_t slot_bytes() const { return slot_elements * dtype_bytes(type); }
};

struct Step {
  int node = -1;
  bool move = false;  // a copy that could not be placed: from -> to
  ValueId from = kNoValue, to = kNoValue;
  Home from_home, to_home;
  std::string reason;  // of a move, or why the node's kernel copies
  // A product that reads and writes only the rows of the step before, and of those since the last one without this:
  // what a thread does to its own rows needs no other thread.
  bool same_rows = false;
};

struct Plan {
  std::vector<Home> values;  // by ValueId
  std::vector<Step> steps;
  std::vector<Root> arena;
  std::vector<Root> io;
  // Inputs are tensors of the caller, of so many bytes. Outputs have two places of their own behind the io region's
  // blocks, side by side, so that the caller may read one step's while the next runs; or lie where the caller says.
  std::vector<Root> ports;
  const Root* root_of(const Home& home) const {  // null: no block of a step
    const std::vector<Root>* roots = home.region == RegionKind::kArena  ? &arena
                                     : home.region == RegionKind::kIo   ? &io
                                     : home.region == RegionKind::kPort ? &ports
                                                                        : nullptr;
    return roots ? &(*roots)[static_cast<size_t>(home.root)] : nullptr;
  }
  std::vector<StateLayout> states;
  int64_t arena_bytes = 0;
  int64_t io_bytes = 0;
  // How the outputs of a node came to lie where they are: "view", "in place", "computed", "host", "copied: why".
  std::vector<std::string> placed;  // by node
};

struct PlanBounds {
  int64_t tokens = 1;    // most new tokens in a step
  int64_t capacity = 1;  // most tokens in a sequence, the new ones included
  int64_t wanted = 1;    // most tokens of a step whose logits are wanted
  int64_t source = 1;    // most rows of a source
};

// Decides where every value of `graph` lives. Errors: a state rule that is not supported, or a size that
// overflows, naming the value; what check_lifetimes says.
Result<Plan> make_plan(const Graph& graph, const Binding& binding, const PlanBounds& bounds);

// An independent check of every plan: whether a step writes over what a later one reads, and whether blocks that live
// at once lie apart. Linear in the steps where few results share a block.
Status check_lifetimes(const Graph& graph, const Binding& binding, const Plan& plan);

// Another one, of any detail, for debug builds and tests: simulates the plan's reads and writes, element by element, on
// a few steps and compares what each kernel would read with what the graph says it should. Shares no code with
// make_plan. `tokens`: new tokens of the simulated steps, at most what the plan was made for.
Status verify_plan(const Graph& graph, const Binding& binding, const Plan& plan, const std::vector<int64_t>& tokens);

}  // namespace situ
