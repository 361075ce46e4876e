#include "passes/compile/pass_list.h"

#include <cstdlib>
#include <sstream>

#include "base/clock.h"
#include "graph/digest.h"
#include "passes/compile/legal.h"
#include "passes/expand/passes.h"
#include "passes/experts/passes.h"
#include "passes/host/infer.h"
#include "passes/host/passes.h"
#include "passes/host/room.h"
#include "passes/lower/passes.h"
#include "passes/module/passes.h"
#include "passes/move/passes.h"
#include "passes/pack/pack_store.h"
#include "passes/recognise/passes.h"
#include "passes/states/passes.h"
#include "passes/window/passes.h"

namespace situ {

// Without an end, tables are looked at behind limit_window, which computes the rows of most.
static Status check_tables(PassContext& context) { return context.endless ? Status::ok() : check_positions(context); }

const std::vector<Pass>& pass_list() {
  using enum PassUse;
  using enum Fact;
  using enum Shapes;
  using enum Reason::Kind;
  // clang-format off
  static const std::vector<Pass> passes{
      {"lift_extents", lift_extents, kAlways, {.leaves = {kExtentsFree}, .refuses = kInput, .shapes = kOfWindow}},
      {"ungroup_products", ungroup_products, kAlways, {.needs = {kExtentsFree}, .shapes = kUntouched}},
      {"bind_inputs", bind_inputs, kAlways, {.needs = {kExtentsFree}, .leaves = {kInputsBound}, .refuses = kInput}},
      {"inline_control", inline_control, kAlways, {.needs = {kInputsBound}, .leaves = {kControlInlined},
       .refuses = kOperator}},
      {"expand_fused", expand_fused, kAlways, {.needs = {kControlInlined}, .leaves = {kFusedExpanded}}},
      {"expand_experts", expand_experts, kAlways, {.needs = {kControlInlined}, .leaves = {kExpertsExpanded}}},
      {"recognise_experts", recognise_experts, kPlaced, {.needs = {kControlInlined, kExpertsExpanded},
       .leaves = {kChoicesFound}}},
      {"unsort_rows", unsort_rows, kMayBeOff, {.needs = {kControlInlined, kExpertsExpanded},
       .leaves = {kChoicesFound}}},
      {"choose_experts", choose_experts, kMayBeOff, {.needs = {kControlInlined, kExpertsExpanded},
       .leaves = {kChoicesFound}}},
      {"fold_extents", fold_extents, kPlaced, {.needs = {kInputsBound, kControlInlined}}},
      {"check_mask", check_mask, kAlways, {.needs = {kInputsBound, kFusedExpanded}, .leaves = {kMaskChecked},
       .refuses = kInput}},
      {"read_stacks", read_stacks, kMayBeOff, {.needs = {kControlInlined}, .leaves = {kStacksRead}, .refuses = kState}},
      {"unstack_states", unstack_states, kAlways, {.needs = {kControlInlined}, .after = {kStacksRead},
       .leaves = {kStacksApart}, .refuses = kState}},
      {"lift_caches", lift_caches, kAlways, {.needs = {kFusedExpanded, kStacksApart}, .leaves = {kCachesLifted},
       .refuses = kState}},
      {"round_states", round_states, kAlways, {.needs = {kCachesLifted}, .leaves = {kStatesRounded},
       .refuses = kState}},
      {"find_states", find_states, kAlways, {.needs = {kStacksApart, kCachesLifted, kStatesRounded},
       .leaves = {kStatesFound}, .refuses = kState}},
      {"find_logits", find_logits, kAlways, {.needs = {kStatesFound}, .leaves = {kLogitsFound}}},
      {"find_switches", find_switches, kAlways, {.needs = {kStatesFound}, .leaves = {kSwitchesFound}}},
      {"integer_states", integer_states, kPlaced, {.needs = {kStatesFound}, .leaves = {kStatesNarrowed},
       .refuses = kState}},
      {"narrow_states", narrow_states, kPlaced, {.needs = {kStatesFound}, .leaves = {kStatesNarrowed},
       .refuses = kState}},
      {"widen_half", widen_half, kMayBeOff, {.needs = {kStatesFound}, .after = {kStatesNarrowed},
       .leaves = {kHalfWidened}, .for_float = true}},
      {"simplify", simplify, kMayBeOff, {.needs = {kStatesFound, kLogitsFound}, .leaves = {kSimplified}}},
      {"join_parts", join_parts, kMayBeOff, {.after = {kSimplified}}},
      {"fuse_dequantize", fuse_dequantize, kMayBeOff, {.needs = {kControlInlined}, .leaves = {kWeightsRead}}},
      {"fuse_integer", fuse_integer, kMayBeOff, {.needs = {kControlInlined}}},
      {"fuse_rounding", fuse_rounding, kMayBeOff, {.needs = {kControlInlined}, .after = {kWeightsRead}}},
      {"sink_repeats", sink_repeats, kMayBeOff, {.after = {kSimplified}}},
      {"computed_positions", computed_positions, kMayBeOff, {.needs = {kInputsBound, kMaskChecked},
       .after = {kSimplified}}},
      {"settle_choices", settle_choices, kMayBeOff, {.needs = {kSwitchesFound}}},
      {"recognise_functions", recognise_functions, kMayBeOff, {.needs = {kControlInlined},
       .after = {kHalfWidened, kWeightsRead, kSimplified}, .leaves = {kFunctionsFound}}},
      {"recognise_rotary", recognise_rotary, kMayBeOff, {.needs = {kSwitchesFound},
       .after = {kHalfWidened, kSimplified}, .leaves = {kRotaryFound}}},
      {"derive_states", derive_states, kMayBeOff, {.needs = {kStatesFound}, .after = {kRotaryFound}}},
      {"simplify_rotary", simplify_rotary, kMayBeOff, {.after = {kRotaryFound}}},
      {"unrepeat_states", unrepeat_states, kMayBeOff, {.needs = {kStatesFound}}},
      {"append_windows", append_windows, kMayBeOff, {.needs = {kStatesFound}, .after = {kSimplified},
       .leaves = {kTapsJoined}}},
      {"recognise_attention", recognise_attention, kMayBeOff, {.needs = {kStatesFound, kSwitchesFound, kMaskChecked},
       .after = {kHalfWidened, kSimplified}, .leaves = {kAttentionFound}}},
      {"recognise_recurrence", recognise_recurrence, kMayBeOff, {.needs = {kStatesFound},
       .after = {kSimplified, kTapsJoined}}},
      {"order_single_tokens", order_single_tokens, kPlaced, {.needs = {kExtentsFree}, .after = {kAttentionFound}}},
      {"split_products", split_products, kMayBeOff, {.after = {kSimplified}}},
      {"push_selections", push_selections, kMayBeOff, {.needs = {kLogitsFound}}},
      {"last_token", last_token, kMayBeOff, {.needs = {kLogitsFound}}},
      {"split_axes", split_axes, kMayBeOff, {.after = {kAttentionFound}}},
      {"distribute_concat", distribute_concat, kMayBeOff, {.after = {kAttentionFound}}},
      {"spread_repeats", spread_repeats, kMayBeOff, {.after = {kAttentionFound}}},
      {"simplify", simplify, kMayBeOff, {.needs = {kStatesFound, kLogitsFound}}},
      {"check_positions", check_tables, kAlways, {.needs = {kStatesFound}, .leaves = {kRoomChecked},
       .shapes = kLooked}},
      {"check_caches", check_caches, kAlways, {.needs = {kStatesFound}, .leaves = {kRoomChecked}, .shapes = kLooked}},
      {"pack_weights", pack_weights, kMayBeOff, {.needs = {kRoomChecked}, .after = {kWeightsRead},
       .leaves = {kWeightsPacked}}},
      {"pack_integer", pack_integer, kPlaced, {.needs = {kRoomChecked}, .leaves = {kWeightsPacked}}},
      {"pack_dense", pack_dense, kMayBeOff, {.needs = {kRoomChecked}, .leaves = {kWeightsPacked}}},
      {"pack_experts", pack_experts, kMayBeOff, {.needs = {kRoomChecked}, .after = {kChoicesFound},
       .leaves = {kWeightsPacked}}},
      {"fuse_matmuls", fuse_matmuls, kMayBeOff, {.after = {kFunctionsFound, kWeightsPacked},
       .leaves = {kEpiloguesFused}}},
      {"store_states", store_states, kMayBeOff, {.needs = {kStatesFound}, .after = {kAttentionFound, kWeightsPacked},
       .leaves = {kStatesStored}, .refuses = kState}},
      {"fuse_casts", fuse_casts, kMayBeOff, {.after = {kEpiloguesFused, kStatesStored}}},
      {"join_products", join_products, kMayBeOff, {.after = {kWeightsPacked, kEpiloguesFused}}},
  };
  // clang-format on
  return passes;
}

static bool runs_with(const Pass& pass, const Pass& other) {
  return pass.use == PassUse::kAlways || (pass.use == PassUse::kPlaced && other.use != PassUse::kAlways);
}

Status check_order(const std::vector<Pass>& passes) {
  for (size_t i = 0; i < passes.size(); ++i) {
    const Pass& pass = passes[i];
    Facts sure, left, later;
    for (size_t j = 0; j < passes.size(); ++j) {
      if (j > i) later.add(passes[j].terms.leaves);
      if (j < i) left.add(passes[j].terms.leaves);
      if (j < i && runs_with(passes[j], pass)) sure.add(passes[j].terms.leaves);
    }
    const char* wrong = !sure.hold(pass.terms.needs)      ? "needs what no pass in front of it is sure to leave"
                        : !left.hold(pass.terms.after)    ? "comes after what no pass in front of it leaves"
                        : later.overlap(pass.terms.needs) ? "needs what is not left before a pass behind it"
                        : later.overlap(pass.terms.after) ? "comes after what is not left before a pass behind it"
                                                          : nullptr;
    if (wrong)
      return Status::error(std::string("pass ") + pass.name + " (" + std::to_string(i) + " of the list) " + wrong);
  }
  return Status::ok();
}

Status check_disabled_names() {
  const char* list = std::getenv("SITU_DISABLE_PASSES");
  std::stringstream names(list ? list : "");
  std::string known = "all, attention_workspaces";
  for (const Pass& pass : pass_list())
    if (pass.use == PassUse::kMayBeOff && known.find(pass.name) == std::string::npos)
      known += std::string(", ") + pass.name;
  for (std::string n; std::getline(names, n, ',');)
    if (!n.empty() && (", " + known + ",").find(", " + n + ",") == std::string::npos)
      return Status::error(
          Code::kInvalidArgument,
          "SITU_DISABLE_PASSES: '" + n + "' is not a pass that can be switched off (known: " + known + ")");
  return Status::ok();
}

namespace {

// Runs one pass, and infers shapes behind it.
Status run_one(PassContext& context, const Pass& pass) {
  const Status passed = pass.run(context);
  if (pass.terms.shapes == Shapes::kLooked) return passed;
  SITU_RETURN_IF_ERROR(passed.or_reason(pass.terms.refuses).with_context(std::string("pass ") + pass.name));
  if (pass.terms.shapes == Shapes::kUntouched || (pass.terms.shapes == Shapes::kOfWindow && !context.lifted))
    return Status::ok();
  return infer_shapes(context);
}

// The same, and what it did. Error, too: it left what it may not leave.
Status run_traced(PassContext& context, const Pass& pass, const Facts& left, CompileTrace* trace) {
  const NodeSignatures before(context.graph);
  const int64_t visits_before = NodeList::visits();
  const Clock::time_point start = Clock::now();
  SITU_RETURN_IF_ERROR(run_one(context, pass));
  const double ms = ms_since(start);
  const int64_t visits = NodeList::visits() - visits_before;
  const int64_t edits = NodeSignatures(context.graph).edits_since(before);
  trace->passes.push_back({pass.name, ms, visits, edits, std::ssize(context.graph.nodes), digest_of(context)});
  return check_legal(context, left).with_context(std::string("behind pass ") + pass.name);
}

// Deferred constants, while the evaluator is there.
Status settle_constants(PassContext& context) {
  context.graph.drop_unread_constants();
  const bool dry = context.packs && context.packs->dry();
  for (Value& v : context.graph.values) {
    if (!dry) v.constant.view();
    if (!dry || v.constant.depth() == 0) continue;
    const Result<Tensor> unread = context.packs->nothing(v.constant.type(), v.constant.count());
    if (!unread.is_ok()) return unread.status();
    v.constant = unread->reshaped(v.constant.dims());
  }
  return Status::ok();
}

}  // namespace

Status run_passes(PassContext& context, bool literal, CompileTrace* trace, const std::vector<Pass>& passes) {
  static const Status in_order = check_order(pass_list());
  SITU_RETURN_IF_ERROR(&passes == &pass_list() ? in_order : check_order(passes));
  SITU_RETURN_IF_ERROR(check_disabled_names());
  context.weights_as_stored = !literal;
  Facts left;
  for (const Pass& pass : passes) {
    left.add(pass.terms.leaves);
    if (pass.terms.leaves.has(Fact::kWeightsRead)) context.weights_as_stored = false;
    const bool widens = pass.terms.for_float && context.float_activations;
    if (literal && pass.use != PassUse::kAlways && !widens) continue;
    if (pass.use == PassUse::kMayBeOff && pass_disabled(pass.name)) continue;
    SITU_RETURN_IF_ERROR(trace ? run_traced(context, pass, left, trace) : run_one(context, pass));
  }
  return settle_constants(context);
}

}  // namespace situ
