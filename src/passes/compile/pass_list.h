// The list of passes: named rewrites of the graph, run in one fixed order. After each, shapes are inferred again.
// SITU_DISABLE_PASSES=name,name switches off those that a correct program does not need.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <vector>

#include "passes/compile/pass_trace.h"
#include "passes/context/pass_context.h"

namespace situ {

// What an entry of the list leaves to all behind it.
enum class Fact : uint8_t {
  kExtentsFree,      // extents of fixed windows are symbols
  kInputsBound,      // every input has a meaning, and shapes are known
  kControlInlined,   // there are no branches
  kFusedExpanded,    // fused operators are plain ones,
  kExpertsExpanded,  // and so are mixtures of experts
  kChoicesFound,     // experts compute the rows that chose them
  kMaskChecked,      // ones in the attention mask hide nothing
  kStacksRead,       // parts of stacked values are these values
  kStacksApart,      // each state is a tensor of its own
  kCachesLifted,     // rows are appended to caches of a fixed size
  kStatesRounded,    // rows are rounded once, where they are made
  kStatesFound,      // Binding::states
  kLogitsFound,      // Binding::logits
  kSwitchesFound,    // Binding::switches
  kStatesNarrowed,   // states have the types that attention reads
  kHalfWidened,      // activations are float
  kSimplified,       // nothing changes nothing; scatters of ranges are Concats, Gathers of them are views
  kWeightsRead,      // quantised weights are in their products: what else is made of stored weights is folded
  kFunctionsFound,   // norms and activations are one node each
  kRotaryFound,      // so are rotary embeddings
  kTapsJoined,       // so are convolutions that were written out tap by tap; rows are appended to their states
  kAttentionFound,   // so is attention
  kRoomChecked,      // the tokens of the context have room in tables and states
  kWeightsPacked,    // weights of products are as kernels read them
  kEpiloguesFused,   // what stands behind products is in them
  kStatesStored,     // states have the types that they are stored in
};

class Facts {
 public:
  constexpr Facts() = default;
  constexpr Facts(std::initializer_list<Fact> facts) {
    for (const Fact f : facts) bits_ |= bit(f);
  }
  constexpr bool has(Fact f) const { return (bits_ & bit(f)) != 0; }
  constexpr void add(Facts other) { bits_ |= other.bits_; }
  constexpr bool overlap(Facts other) const { return (bits_ & other.bits_) != 0; }
  constexpr bool hold(Facts other) const { return (bits_ & other.bits_) == other.bits_; }

 private:
  static constexpr uint64_t bit(Fact f) { return uint64_t{1} << static_cast<unsigned>(f); }
  uint64_t bits_ = 0;
};

enum class PassUse {
  kAlways,    // also in naive mode
  kPlaced,    // what a placed program needs; naive mode runs without
  kMayBeOff,  // SITU_DISABLE_PASSES may switch it off
};

// What becomes of shapes behind a pass.
enum class Shapes {
  kInferred,  // inferred again, if the graph is another one
  kOfWindow,  // the same where a fixed window was lifted; before inputs are bound little is known else
  kUntouched,
  kLooked,  // untouched, because the pass looks only: its errors are of the model, and do not name the pass
};

struct PassTerms {
  Facts needs = {};   // left in front, by passes that run whenever this one does
  Facts after = {};   // left in front, by passes that may be switched off: this one does without them then
  Facts leaves = {};  // by this pass and those in front; also where it finds nothing to do
  Reason::Kind refuses = Reason::Kind::kShape;  // what an error is about that says nothing of that itself
  Shapes shapes = Shapes::kInferred;
  bool for_float = false;  // in naive mode too, where activations are to be float (PassContext::float_activations)
};

struct Pass {
  const char* name;
  Status (*run)(PassContext&);
  PassUse use;
  PassTerms terms = {};
};

// All passes in order.
const std::vector<Pass>& pass_list();
// The error names the first pass that needs, or comes after, what is not left in front of it.
Status check_order(const std::vector<Pass>& passes);
// Runs passes in order. `literal`: only those that the naive mode needs (inputs bound, fused operators
// expanded, states found), nothing that changes how values are computed. `trace`: what each did, and whether it left
// what its facts rule out (legal.h); null: neither is looked at. Error of a list that check_order refuses: that one.
Status run_passes(PassContext& context, bool literal, CompileTrace* trace = nullptr,
                  const std::vector<Pass>& passes = pass_list());

// SITU_DISABLE_PASSES names passes that can be switched off: a misspelt one would switch nothing off.
Status check_disabled_names();

}  // namespace situ
