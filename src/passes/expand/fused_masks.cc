#include "passes/expand/fused_masks.h"

#include <algorithm>
#include <map>
#include <set>

#include "passes/context/pass_context.h"
#include "passes/host/infer.h"
#include "passes/host/turning_points.h"

namespace situ {
namespace {
constexpr float kFilter = -10000;   // what onnxruntime adds to the scores of hidden keys
constexpr size_t kBiasOperand = 3;  // operand of situ.Attention
}  // namespace

ValueId FusedMasks::number(const std::string& name, float x, DType type) {
  const Tensor t = Tensor::allocate(DType::kF32, {});
  *t.view().as<float>() = x;
  const ValueId v = graph_.add_constant(name, t);
  return type == DType::kF32 ? v : builder_.cast(v, type);
}

ValueId FusedMasks::added(ValueId mask, float filter, DType type) {
  const ValueInfo info = graph_.values[mask].info;
  const bool of_keys = info.shape.size() == 2;
  const std::string name = graph_.values[mask].name;
  ValueId seen = mask;
  if (info.type != DType::kBool) {
    const Tensor zero = Tensor::allocate(info.type, {});
    seen = builder_.op("Greater", {mask, graph_.add_constant(name + "/none", zero)});
  }
  const ValueId bias =
      builder_.op("Where", {seen, number(name + "/seen", 0, type), number(name + "/hidden", filter, type)});
  const ValueId axes = builder_.constant_i64(of_keys ? std::vector<int64_t>{1, 2} : std::vector<int64_t>{1});
  return builder_.op("Unsqueeze", {bias, axes});
}

ValueId FusedMasks::before(const Node& n, size_t i, const Dim& past, const Dim& queries, ValueId bias) {
  if (!n.has_input(i) || graph_.values[n.in[i]].info.shape.size() < 3) return bias;
  ValueId mask = n.in[i];
  if (const Shape s = graph_.values[mask].info.shape; s.size() == 4) {
    // Rows and columns of all positions [B, 1, most, most]: those of this step.
    const ValueId begin = graph_.add_shape(n.name + "/mask_begin", {past, Dim(0)}),
                  end = graph_.add_shape(n.name + "/mask_end", {past + queries, past + queries});
    mask = builder_.op("Slice", {mask, begin, end, builder_.constant_i64({2, 3})});
    graph_.values[mask].info = {graph_.values[n.in[i]].info.type, true, {s[0], s[1], queries, past + queries}, {}};
    mask = builder_.op("Squeeze", {mask, builder_.constant_i64({1})});
    graph_.values[mask].info = {graph_.values[n.in[i]].info.type, true, {s[0], queries, past + queries}, {}};
  }
  const DType type = graph_.values[n.out[0]].info.type;
  const ValueId hidden = added(mask, n.attr_float("mask_filter_value", kFilter), type);
  return bias == kNoValue ? hidden : builder_.op("Add", {bias, hidden});
}

void FusedMasks::behind(const Node& n, size_t i) {
  if (!n.has_input(i) || graph_.values[n.in[i]].info.shape.size() >= 3) return;
  const Node& attention = builder_.last();
  left_.push_back({n.label(), n.in[i], attention.in[1], attention.out[0], n.attr_float("mask_filter_value", kFilter)});
}

Status FusedMasks::fail(const Left& left, const std::string& why) const {
  return Status::error(left.node + ": mask '" + graph_.values[left.mask].name + "' " + why);
}

// Whether it hides a key of some step that is looked at, or cannot be told.
Result<bool> FusedMasks::hides(Prober& prober, const Left& left) const {
  const bool lengths = graph_.values[left.mask].info.shape.size() == 1;
  const Tensor& constant = graph_.values[left.mask].constant;
  TellingSteps telling{true, {{context_.probe_tokens(), context_.probe_past()}}};
  if (prober.changes(left.mask) || lengths)
    telling = telling_steps(graph_, prober, {left.mask}, context_.phase, context_.context_length);
  if (!telling.told && lengths) return fail(left, "is not shown to be the length of the keys at every step");
  if (!telling.told) return true;
  for (const auto& [tokens, past] : telling.steps) {
    const Result<Tensor> shown = constant.present() ? constant : prober.host_value(left.mask, tokens, past);
    if (!shown.is_ok() && lengths) return fail(left, "cannot be told before a step: " + shown.status().message());
    if (!shown.is_ok()) return true;
    if (dtype_is_float(shown->type())) return fail(left, "is of floats");
    const std::vector<int64_t> numbers = shown->to_i64();
    if (!lengths) {
      if (std::any_of(numbers.begin(), numbers.end(), [](int64_t x) { return x <= 0; })) return true;
      continue;
    }
    const int64_t keys = prober.dims(left.keys, tokens, past)[2];
    const bool whole = numbers == std::vector<int64_t>{keys} || numbers == std::vector<int64_t>{keys, 0} ||
                       (numbers.size() == 5 && numbers[0] == keys && numbers[1] == 0 && numbers[3] == 0 &&
                        numbers[4] == keys);  // [length], and where the queries and the keys of each text begin
    if (!whole)
      return fail(left, "says " + std::to_string(numbers.empty() ? 0 : numbers[0]) + " of " + std::to_string(keys) +
                            " keys: lengths that hide more than padding are not supported");
  }
  return false;
}

Status FusedMasks::check() {
  if (left_.empty()) return Status::ok();
  SITU_RETURN_IF_ERROR(infer_shapes(context_));
  std::vector<const Left*> hiding;
  Prober prober(graph_, context_.binding, context_.evaluator);
  std::map<std::pair<ValueId, std::string>, bool> known;  // many layers have the same mask
  for (const Left& left : left_) {
    const auto [it, fresh] = known.try_emplace({left.mask, graph_.values[left.keys].info.shape[2].str()}, false);
    if (fresh) {
      const Result<bool> hides_keys = hides(prober, left);
      if (!hides_keys.is_ok()) return hides_keys.status();
      it->second = *hides_keys;
    }
    if (it->second) hiding.push_back(&left);
  }
  if (hiding.empty()) return Status::ok();
  Builder builder(graph_);
  std::vector<Node> nodes = std::exchange(graph_.nodes, {});
  for (Node& n : nodes) {
    const auto left = std::find_if(hiding.begin(), hiding.end(),
                                   [&](const Left* l) { return !n.out.empty() && n.out[0] == l->attended; });
    if (left != hiding.end()) {
      builder.start(n);
      FusedMasks writer(context_, builder);
      const ValueId hidden = writer.added((*left)->mask, (*left)->filter, graph_.values[(*left)->attended].info.type);
      n.in.resize(std::max(n.in.size(), kBiasOperand + 1), kNoValue);
      n.in[kBiasOperand] = n.in[kBiasOperand] == kNoValue ? hidden : builder.op("Add", {n.in[kBiasOperand], hidden});
      context_.note("mask", (*left)->node, "hides more than padding: added to the scores");
    }
    builder.keep(std::move(n));
  }
  return builder.finish();
}

Status check_key_lengths(PassContext& context) {
  const Graph& graph = context.graph;
  Prober prober(graph, context.binding, context.evaluator);
  const Dim last = context.phase == Phase::kDecode  ? Dim::symbol(kSymP)
                   : context.phase == Phase::kFirst ? Dim::symbol(kSymS) - Dim(1)
                                                    : Dim::symbol(kSymP) + Dim::symbol(kSymS) - Dim(1);
  std::set<ValueId> right;  // layers read one value
  for (const Node& n : graph.nodes) {
    if (!n.is("GroupQueryAttention", "com.microsoft") || !n.has_input(5) || !right.insert(n.in[5]).second) continue;
    const auto fail = [&](const std::string& what) { return n.error("seqlens_k " + what, Reason::Kind::kAttribute); };
    const auto& content = graph.values[n.in[5]].info.content;
    if (content && *content == Shape{last}) continue;
    const TellingSteps telling = telling_steps(graph, prober, {n.in[5]}, context.phase, context.context_length);
    if (!telling.told) return fail("is not shown to be one less than the tokens of the sequence at every step");
    for (const auto& [tokens, past] : telling.steps) {
      const std::string step = " with " + std::to_string(tokens) + " new and " + std::to_string(past) + " past tokens",
                        should_be = std::to_string(past + tokens - 1);
      const Result<Tensor> lengths = prober.host_value(n.in[5], tokens, past);
      if (!lengths.is_ok()) return fail("cannot be told before a step" + step + ": " + lengths.status().message());
      for (const int64_t length : lengths->to_i64())
        if (length != past + tokens - 1)
          return fail("is " + std::to_string(length) + step + ", should be " + should_be +
                      ": parts of a cache are not supported");
    }
  }
  return Status::ok();
}

}  // namespace situ
