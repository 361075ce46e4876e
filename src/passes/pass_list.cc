#include <cstdlib>
#include <sstream>

#include "passes/pass.h"

namespace situ {
namespace {

bool disabled(const std::string& name) {
  const char* list = std::getenv("SITU_DISABLE_PASSES");
  if (!list) return false;
  std::stringstream names(list);
  for (std::string n; std::getline(names, n, ',');)
    if (n == name || n == "all") return true;
  return false;
}

}  // namespace

const std::vector<Pass>& pass_list() {
  static const std::vector<Pass> passes{
      {"bind_inputs", bind_inputs, false},
      {"inline_control", inline_control, false},
      {"expand_fused", expand_fused, false},
      {"find_states", find_states, false},
      {"simplify", simplify, true},
      {"fuse_dequantize", fuse_dequantize, true},
      {"sink_repeats", sink_repeats, true},
      {"recognise_functions", recognise_functions, true},
      {"recognise_rotary", recognise_rotary, true},
      {"recognise_attention", recognise_attention, true},
      {"push_selections", push_selections, true},
      {"last_token", last_token, true},
      {"distribute_concat", distribute_concat, true},
      {"simplify", simplify, true},
  };
  return passes;
}

Status run_passes(PassContext& context, bool literal) {
  for (const Pass& pass : pass_list()) {
    if (pass.optional && (literal || disabled(pass.name))) continue;
    SITU_RETURN_IF_ERROR(pass.run(context).with_context(std::string("pass ") + pass.name));
    SITU_RETURN_IF_ERROR(infer_shapes(context));
  }
  return Status::ok();
}

}  // namespace situ
