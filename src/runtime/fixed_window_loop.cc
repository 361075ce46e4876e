#include "runtime/fixed_window_loop.h"

#include <algorithm>

#include "base/assign.h"
#include "ops/op.h"
#include "passes/context/pass_context.h"
#include "passes/expand/passes.h"
#include "passes/host/infer.h"
#include "passes/module/passes.h"
#include "passes/pack/align_constants.h"
#include "passes/states/passes.h"
#include "runtime/host_integers.h"

namespace situ {
namespace {

Result<Tensor> integers(const Value& input, const std::function<int64_t(int64_t)>& at) {
  if (!host_writes(input.info.type))
    return Status::error("'" + input.name + "' is " + dtype_name(input.info.type) +
                         ": the host makes int64, int32 and bool only");
  Tensor t = Tensor::allocate(input.info.type, shape_values(input.info.shape));
  for (int64_t i = 0; i < t.count(); ++i) write_integer(t.view().data, input.info.type, i, at(i));
  return t;
}

}  // namespace

Result<std::unique_ptr<FixedWindowLoop>> FixedWindowLoop::create(const Graph& imported, const FixedWindow& window,
                                                                 const InputNames& names, Evaluator& evaluator) {
  std::unique_ptr<FixedWindowLoop> loop(new FixedWindowLoop());
  loop->window_ = window;
  Graph& graph = loop->compiled_.graph = imported;
  Binding& binding = loop->compiled_.binding;
  SITU_RETURN_IF_ERROR(resolve_ops(graph));
  leave_out_unread(graph);
  SITU_RETURN_IF_ERROR(graph.sort());
  align_constants(graph, nullptr, true);
  PassContext context{graph, evaluator, binding, names, window.length, window.length};
  context.literal = true;
  binding.inputs[window.ids] = InputRole::kTokenIds;
  for (const ValueId v : window.positions) binding.inputs[v] = InputRole::kPositions;
  for (const FixedWindow::State& s : window.states) {
    binding.inputs[s.past] = InputRole::kState;
    binding.states.push_back({s.past, s.present, StateRule::kAppend, s.axis, graph.values[s.past].name});
  }
  for (const ValueId v : graph.outputs)
    if (graph.values[v].name == (names.logits.empty() ? "logits" : names.logits)) binding.logits = v;
  SITU_RETURN_IF_ERROR(infer_shapes(context));
  for (Status (*pass)(PassContext&) : {inline_control, expand_fused, find_logits}) {
    SITU_RETURN_IF_ERROR(pass(context));
    SITU_RETURN_IF_ERROR(infer_shapes(context));
  }
  graph.drop_unread_constants();
  for (const Value& v : graph.values) v.constant.view();  // deferred ones, while the evaluator is there
  loop->compiled_.found = std::move(context.found);
  return loop;
}

Result<Tensor> FixedWindowLoop::step(FixedWindowSequence& sequence, std::span<const int64_t> tokens,
                                     Evaluator& evaluator) const {
  Result<Tensor> logits = Status::error(Code::kInvalidArgument, "a step needs at least one token");
  while (!tokens.empty()) {
    const size_t fresh = std::min(tokens.size(), static_cast<size_t>(window_.tokens));
    std::vector<int64_t>& last = sequence.tokens;
    last.insert(last.end(), tokens.begin(), tokens.begin() + static_cast<std::ptrdiff_t>(fresh));
    if (last.size() > static_cast<size_t>(window_.tokens))
      last.erase(last.begin(), last.end() - static_cast<std::ptrdiff_t>(window_.tokens));
    logits = window(sequence, static_cast<int64_t>(fresh), evaluator);
    if (!logits.is_ok()) return logits;
    tokens = tokens.subspan(fresh);
  }
  return logits;
}

Result<Tensor> FixedWindowLoop::window(FixedWindowSequence& sequence, int64_t fresh, Evaluator& evaluator) const {
  const Graph& graph = compiled_.graph;
  const int64_t ones = sequence.length + fresh, hidden = window_.length - ones, first = ones - window_.tokens,
                padding = window_.tokens - static_cast<int64_t>(sequence.tokens.size());
  if (hidden < 0)
    return Status::error(Code::kContextExceeded, "a sequence of " + std::to_string(ones) + " tokens; the export has " +
                                                     std::to_string(window_.length) + " keys");
  std::map<ValueId, Tensor> feeds;
  const auto feed = [&](ValueId v, const std::function<int64_t(int64_t)>& at) {
    Result<Tensor> t = integers(graph.values[v], at);
    if (t.is_ok()) feeds[v] = *t;
    return t.status();
  };
  SITU_RETURN_IF_ERROR(feed(
      window_.ids, [&](int64_t i) { return i < padding ? 0 : sequence.tokens[static_cast<size_t>(i - padding)]; }));
  SITU_RETURN_IF_ERROR(feed(window_.mask, [&](int64_t i) { return i >= hidden ? 1 : 0; }));
  for (const ValueId v : window_.positions)
    SITU_RETURN_IF_ERROR(feed(v, [&](int64_t i) { return std::max<int64_t>(0, first + i % window_.tokens); }));
  for (const FixedWindow::State& s : window_.states) feeds[s.past] = past(s, sequence, fresh, evaluator);
  SITU_TAKE(outputs, evaluator.graph(graph, feeds));
  Tensor logits;
  for (size_t o = 0; o < graph.outputs.size(); ++o) {
    for (const FixedWindow::State& s : window_.states)
      if (s.present == graph.outputs[o]) sequence.present[s.past] = outputs[o];
    if (graph.outputs[o] == compiled_.binding.logits) logits = outputs[o];
  }
  sequence.length = ones;
  return logits;
}

Tensor FixedWindowLoop::past(const FixedWindow::State& state, const FixedWindowSequence& sequence, int64_t fresh,
                             Evaluator& evaluator) const {
  const ValueInfo& info = compiled_.graph.values[state.past].info;
  Tensor rows = Tensor::allocate(info.type, shape_values(info.shape));
  const auto held = sequence.present.find(state.past);
  if (held == sequence.present.end()) return rows;
  View kept = held->second.view();
  kept.data += fresh * kept.strides[state.axis] * dtype_bytes(kept.type);
  kept.dims[state.axis] = window_.past();
  evaluator.move(rows.view(), kept);
  return rows;
}

}  // namespace situ
