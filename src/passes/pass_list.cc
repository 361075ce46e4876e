#include <cstdlib>
#include <sstream>

#include "passes/derive_states.h"
#include "passes/pack_store.h"
#include "passes/pass.h"

namespace situ {
bool pass_disabled(const std::string& name) {
  const char* list = std::getenv("SITU_DISABLE_PASSES");
  if (!list) return false;
  std::stringstream names(list);
  for (std::string n; std::getline(names, n, ',');)
    if (n == name || n == "all") return true;
  return false;
}

const std::vector<Pass>& pass_list() {
  static const std::vector<Pass> passes{
      {"lift_extents", lift_extents, PassUse::kAlways, Reason::Kind::kInput},
      {"ungroup_products", ungroup_products, PassUse::kAlways},
      {"bind_inputs", bind_inputs, PassUse::kAlways, Reason::Kind::kInput},
      {"inline_control", inline_control, PassUse::kAlways, Reason::Kind::kOperator},
      {"expand_fused", expand_fused, PassUse::kAlways},
      {"expand_experts", expand_experts, PassUse::kAlways},
      {"recognise_experts", recognise_experts, PassUse::kPlaced},
      {"unsort_rows", unsort_rows, PassUse::kOptional},
      {"choose_experts", choose_experts, PassUse::kOptional},
      {"fold_extents", fold_extents, PassUse::kPlaced},
      {"check_mask", check_mask, PassUse::kAlways, Reason::Kind::kInput},
      {"read_stacks", read_stacks, PassUse::kOptional, Reason::Kind::kState},
      {"unstack_states", unstack_states, PassUse::kAlways, Reason::Kind::kState},
      {"lift_caches", lift_caches, PassUse::kAlways, Reason::Kind::kState},
      {"round_states", round_states, PassUse::kAlways, Reason::Kind::kState},
      {"find_states", find_states, PassUse::kAlways, Reason::Kind::kState},
      {"find_logits", find_logits, PassUse::kAlways},
      {"find_switches", find_switches, PassUse::kAlways},
      {"integer_states", integer_states, PassUse::kPlaced, Reason::Kind::kState},
      {"narrow_states", narrow_states, PassUse::kPlaced, Reason::Kind::kState},
      {"widen_half", widen_half, PassUse::kOptional},
      {"simplify", simplify, PassUse::kOptional},
      {"join_parts", join_parts, PassUse::kOptional},
      {"fuse_dequantize", fuse_dequantize, PassUse::kOptional},
      {"fuse_integer", fuse_integer, PassUse::kOptional},
      {"fuse_rounding", fuse_rounding, PassUse::kOptional},
      {"sink_repeats", sink_repeats, PassUse::kOptional},
      {"computed_positions", computed_positions, PassUse::kOptional},
      {"settle_choices", settle_choices, PassUse::kOptional},
      {"recognise_functions", recognise_functions, PassUse::kOptional},
      {"recognise_rotary", recognise_rotary, PassUse::kOptional},
      {"derive_states", derive_states, PassUse::kOptional},
      {"simplify_rotary", simplify_rotary, PassUse::kOptional},
      {"unrepeat_states", unrepeat_states, PassUse::kOptional},
      {"append_windows", append_windows, PassUse::kOptional},
      {"recognise_attention", recognise_attention, PassUse::kOptional},
      {"recognise_recurrence", recognise_recurrence, PassUse::kOptional},
      {"order_single_tokens", order_single_tokens, PassUse::kPlaced},
      {"split_products", split_products, PassUse::kOptional},
      {"push_selections", push_selections, PassUse::kOptional},
      {"last_token", last_token, PassUse::kOptional},
      {"split_axes", split_axes, PassUse::kOptional},
      {"distribute_concat", distribute_concat, PassUse::kOptional},
      {"spread_repeats", spread_repeats, PassUse::kOptional},
      {"simplify", simplify, PassUse::kOptional},
      {"pack_weights", pack_weights, PassUse::kOptional},
      {"pack_integer", pack_integer, PassUse::kPlaced},
      {"pack_dense", pack_dense, PassUse::kOptional},
      {"pack_experts", pack_experts, PassUse::kOptional},
      {"fuse_matmuls", fuse_matmuls, PassUse::kOptional},
      {"store_states", store_states, PassUse::kOptional, Reason::Kind::kState},
      {"fuse_casts", fuse_casts, PassUse::kOptional},
      {"join_products", join_products, PassUse::kOptional},
  };
  return passes;
}

Status check_disabled_names() {
  const char* list = std::getenv("SITU_DISABLE_PASSES");
  std::stringstream names(list ? list : "");
  std::string known = "all, attention_workspaces";
  for (const Pass& pass : pass_list())
    if (pass.use == PassUse::kOptional && known.find(pass.name) == std::string::npos)
      known += std::string(", ") + pass.name;
  for (std::string n; std::getline(names, n, ',');)
    if (!n.empty() && (", " + known + ",").find(", " + n + ",") == std::string::npos)
      return Status::error(
          Code::kInvalidArgument,
          "SITU_DISABLE_PASSES: '" + n + "' is not a pass that can be switched off (known: " + known + ")");
  return Status::ok();
}

Status run_passes(PassContext& context, bool literal) {
  SITU_RETURN_IF_ERROR(check_disabled_names());
  context.weights_as_stored = !literal;
  for (const Pass& pass : pass_list()) {
    if (pass.run == fuse_dequantize) context.weights_as_stored = false;  // what it leaves is folded behind it
    if (pass.run == pack_weights) {
      if (!context.endless) SITU_RETURN_IF_ERROR(check_positions(context));
      SITU_RETURN_IF_ERROR(check_caches(context));
    }
    const bool widens = pass.run == widen_half && context.float_activations;
    if (literal && pass.use != PassUse::kAlways && !widens) continue;
    if (pass.use == PassUse::kOptional && pass_disabled(pass.name)) continue;
    SITU_RETURN_IF_ERROR(pass.run(context).or_reason(pass.refuses).with_context(std::string("pass ") + pass.name));
    // Before inputs are bound, little is known of shapes.
    if ((pass.run == lift_extents && !context.lifted) || pass.run == ungroup_products) continue;
    SITU_RETURN_IF_ERROR(infer_shapes(context));
  }
  context.graph.drop_unread_constants();
  // Deferred ones, while the evaluator is there.
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

}  // namespace situ
