// Layers whose state has one size: short convolutions and linear attention, as onnxruntime and ONNX 27 have them, and
// what stands beside these. All but situ.LinearAttention are written out by passes/expand/expand_recurrent.cc.
#include <algorithm>
#include <tuple>

#include "kernels/params.h"
#include "ops/infer.h"
#include "ops/ops.h"

namespace situ {
namespace {

// Attributes that the operator has for other devices, or for more than one answer: each is what it is on a CPU.
Status only_default(InferContext& c, const char* name, int64_t fallback) {
  const int64_t given = c.node.attr_int(name, fallback);
  if (given == fallback) return Status::ok();
  return c.fail(std::string(name) + " " + std::to_string(given) + " is not supported, should be " +
                std::to_string(fallback));
}

Status need_operand_rank(InferContext& c, size_t i, const char* name, size_t least, size_t most) {
  SITU_RETURN_IF_ERROR(c.need(i, name));
  const Shape& s = c.input(i).shape;
  if (s.size() >= least && s.size() <= most) return Status::ok();
  return c.fail(std::string(name) + " " + shape_str(s) + " should have rank " + std::to_string(least) +
                (most > least ? " to " + std::to_string(most) : ""));
}

Status need_shape(InferContext& c, size_t i, const char* name, const Shape& shape) {
  SITU_RETURN_IF_ERROR(c.need(i, name));
  if (c.input(i).shape == shape) return Status::ok();
  return c.fail(std::string(name) + " should be " + shape_str(shape) + ", is " + shape_str(c.input(i).shape));
}

Status need_word(InferContext& c, const char* name, const char* fallback, std::initializer_list<const char*> words) {
  const std::string given = c.node.attr_string(name, fallback);
  if (std::find(words.begin(), words.end(), given) != words.end()) return Status::ok();
  std::string known;
  for (const char* w : words) known += std::string(known.empty() ? "" : ", ") + w;
  return c.fail(std::string(name) + " '" + given + "' is not supported (known: " + known + ")");
}

// The heads of a width; error: it is no multiple.
Status split_width(InferContext& c, const char* name, const Dim& width, int64_t heads, int64_t* size) {
  constexpr int64_t kMostHeads = int64_t{1} << 20;
  if (!width.is_const() || heads < 1 || heads > kMostHeads || width.value() < heads || width.value() % heads != 0)
    return c.fail(std::string(name) + " width " + width.str() + " is not a multiple of " + std::to_string(heads) +
                  " heads");
  *size = width.value() / heads;
  return Status::ok();
}

bool divides(int64_t a, int64_t b) { return a > 0 && b > 0 && (a % b == 0 || b % a == 0); }

// q, k and v [1, T, heads * size], states of v_heads; what both operators have.
struct Heads {
  int64_t q = 0, k = 0, v = 0, keys = 0, values = 0;
  int64_t results() const { return std::max(q, v); }
};
Status heads_of(InferContext& c, int64_t q_heads, int64_t v_heads, Heads* h) {
  SITU_RETURN_IF_ERROR(need_operand_rank(c, 0, "query", 3, 3));
  SITU_RETURN_IF_ERROR(need_operand_rank(c, 1, "key", 3, 3));
  SITU_RETURN_IF_ERROR(need_operand_rank(c, 2, "value", 3, 3));
  const Shape &q = c.input(0).shape, &k = c.input(1).shape, &v = c.input(2).shape;
  h->q = q_heads;
  h->v = v_heads;
  SITU_RETURN_IF_ERROR(split_width(c, "query", q[2], q_heads, &h->keys));
  SITU_RETURN_IF_ERROR(split_width(c, "value", v[2], v_heads, &h->values));
  if (!k[2].is_const() || k[2].value() % h->keys != 0)
    return c.fail("key width " + k[2].str() + " is not a multiple of the head size " + std::to_string(h->keys));
  h->k = k[2].value() / h->keys;
  if (!divides(q_heads, v_heads) || h->k < 1 || h->k > v_heads || v_heads % h->k != 0)
    return c.fail(std::to_string(q_heads) + " query heads, " + std::to_string(h->k) + " key heads and " +
                  std::to_string(v_heads) + " value heads are no multiples of each other");
  for (size_t i : {size_t{1}, size_t{2}}) {
    Dim same;
    for (size_t a = 0; a < 2; ++a)
      SITU_RETURN_IF_ERROR(require_equal(c, "query " + shape_str(q) + " beside input " + std::to_string(i),
                                         c.input(i).shape[a], q[a], &same));
  }
  return Status::ok();
}

// decay [1, T, H] or [1, T, H * K], beta [1, T, H] or [1, T, 1], where the update needs them.
Status check_gates(InferContext& c, const Heads& h, bool decays, bool delta) {
  const Shape& q = c.input(0).shape;
  for (const auto& [i, name, read] : {std::tuple{size_t{4}, "decay", decays}, {size_t{5}, "beta", delta}}) {
    if (!read) continue;
    SITU_RETURN_IF_ERROR(need_operand_rank(c, i, name, 3, 3));
    if (c.input(i).shape[0] != q[0] || c.input(i).shape[1] != q[1])
      return c.fail(std::string(name) + " " + shape_str(c.input(i).shape) + " has no row for each token of query " +
                    shape_str(q));
  }
  if (decays) {
    const Dim& width = c.input(4).shape[2];
    if (width != Dim(h.v) && width != Dim(h.v * h.keys))
      return c.fail("decay " + shape_str(c.input(4).shape) + " should have " + std::to_string(h.v) + " or " +
                    std::to_string(h.v * h.keys) + " numbers for each token");
  }
  if (delta) {
    const Dim& width = c.input(5).shape[2];
    if (width != Dim(h.v) && width != Dim(1))
      return c.fail("beta " + shape_str(c.input(5).shape) + " should have " + std::to_string(h.v) +
                    " numbers for each token, or 1");
  }
  return Status::ok();
}

bool is_delta(const std::string& rule) { return rule == "delta" || rule == "gated_delta"; }
bool decays(const std::string& rule) { return rule == "gated" || rule == "gated_delta"; }

}  // namespace

// CausalConvWithState (com.microsoft; ai.onnx 27): input [B, C, L], weight [C, 1, K], bias? [C], past_state?
// [B, C, (K - 1) * dilation] -> output [B, C, L], present_state. channels_last: [B, L, C], states [B, .., C].
// state_window W > 0: states [W, ..], of which the last one is read.
Status infer_conv_with_state(InferContext& c) {
  SITU_RETURN_IF_ERROR(at_most_inputs(c, 4));
  SITU_RETURN_IF_ERROR(need_word(c, "activation", "none", {"none", "silu", "swish"}));
  if (c.node.domain.empty()) {
    for (const char* name : {"ndim", "dilation", "channels_last", "state_window"})
      if (c.node.attr_of_kind(name, Attribute::Kind::kInt))
        return c.fail(std::string("attribute ") + name + " is none of this operator");
  }
  SITU_RETURN_IF_ERROR(only_default(c, "ndim", 1));
  SITU_RETURN_IF_ERROR(only_default(c, "state_update_capacity", 0));
  SITU_RETURN_IF_ERROR(only_default(c, "state_channels_last", -1));
  SITU_RETURN_IF_ERROR(only_default(c, "state_length", 0));
  SITU_RETURN_IF_ERROR(only_default(c, "input_channel_offset", 0));
  SITU_RETURN_IF_ERROR(only_default(c, "input_channels", 0));
  SITU_RETURN_IF_ERROR(need_operand_rank(c, 0, "input", 3, 3));
  SITU_RETURN_IF_ERROR(need_operand_rank(c, 1, "weight", 3, 3));
  const Shape &x = c.input(0).shape, &w = c.input(1).shape;
  const int64_t dilation = c.node.attr_int("dilation", 1), window = c.node.attr_int("state_window", 0);
  const bool last = c.node.attr_int("channels_last", 0) != 0;
  constexpr int64_t kMostDilation = int64_t{1} << 20, kMostTaps = int64_t{1} << 20;
  if (dilation < 1 || dilation > kMostDilation) return c.fail("dilation is " + std::to_string(dilation));
  if (window < 0 || window > 8) return c.fail("state_window should be 0 to 8, is " + std::to_string(window));
  if (!w[2].is_const() || w[2].value() < 1 || w[2].value() > kMostTaps || w[1] != Dim(1) || w[0] != x[last ? 2 : 1])
    return c.fail("weight " + shape_str(w) + " should be [channels, 1, taps] for an input " + shape_str(x));
  if (c.has(2)) SITU_RETURN_IF_ERROR(need_shape(c, 2, "bias", {w[0]}));
  const Dim rows((w[2].value() - 1) * dilation);
  Shape state = last ? Shape{x[0], rows, w[0]} : Shape{x[0], w[0], rows};
  if (window > 0) state.insert(state.begin(), Dim(window));
  if (c.has(3)) SITU_RETURN_IF_ERROR(need_shape(c, 3, "past_state", state));
  SITU_RETURN_IF_ERROR(emit(c, 1, c.input(0).type, state));
  return emit(c, 0, c.input(0).type, x);
}

// LinearAttention (com.microsoft; ai.onnx 27): query [B, T, Hq * K], key [B, T, Hk * K], value [B, T, H * V],
// past_state? [B, H, K, V], decay?, beta? -> output [B, T, max(Hq, H) * V], present_state. state_window W > 0: states
// [W, ..], of which the last one is read.
Status infer_linear_attention(InferContext& c) {
  SITU_RETURN_IF_ERROR(at_most_inputs(c, 6));
  SITU_RETURN_IF_ERROR(need_word(c, "update_rule", "gated_delta", {"linear", "gated", "delta", "gated_delta"}));
  const int64_t window = c.node.attr_int("state_window", 0);
  if (window < 0 || window > 8) return c.fail("state_window should be 0 to 8, is " + std::to_string(window));
  const std::string rule = c.node.attr_string("update_rule", "gated_delta");
  Heads h;
  SITU_RETURN_IF_ERROR(heads_of(c, c.node.attr_int("q_num_heads", 0), c.node.attr_int("kv_num_heads", 0), &h));
  SITU_RETURN_IF_ERROR(check_gates(c, h, decays(rule), is_delta(rule)));
  const Shape& q = c.input(0).shape;
  Shape state{q[0], Dim(h.v), Dim(h.keys), Dim(h.values)};
  if (window > 0) state.insert(state.begin(), Dim(window));
  if (c.has(3)) SITU_RETURN_IF_ERROR(need_shape(c, 3, "past_state", state));
  SITU_RETURN_IF_ERROR(emit(c, 1, c.has(3) ? c.input(3).type : c.input(0).type, state));
  return emit(c, 0, c.input(0).type, {q[0], q[1], Dim(h.results() * h.values)});
}

// com.microsoft.LinearAttentionGate: a [B, T, H], dt_bias [H], decay_scale [H], b? [B, T, H]
//   -> decay = decay_scale * Softplus(a + dt_bias), beta = Sigmoid(b)
Status infer_attention_gate(InferContext& c) {
  SITU_RETURN_IF_ERROR(at_most_inputs(c, 4));
  SITU_RETURN_IF_ERROR(need_operand_rank(c, 0, "a", 3, 3));
  const Shape a = c.input(0).shape;
  SITU_RETURN_IF_ERROR(need_shape(c, 1, "dt_bias", {a[2]}));
  SITU_RETURN_IF_ERROR(need_shape(c, 2, "decay_scale", {a[2]}));
  if (c.has(3)) SITU_RETURN_IF_ERROR(need_shape(c, 3, "b", a));
  if (c.node.has_output(1) && !c.has(3)) return c.fail("output beta needs input 3 (b)");
  SITU_RETURN_IF_ERROR(emit(c, 1, c.input(0).type, a));
  return emit(c, 0, c.input(0).type, a);
}

// com.microsoft.GatedDeltaNet: query [T, Hq, K], key [T, Hq, K], value [T, H, V], or query alone with all three side by
// side, [T, 2 * Hq * K + H * V]; all may begin with [B, T]. cu_seqlens?, decay? [T, H] or [T, H, K], beta? [T, H],
// initial_state? [B, H, V, K], a_log?, dt_bias?, capture_count?, state_update_active?
//   -> output [T, max(Hq, H), V], final_state, state_update
Status infer_gated_delta_net(InferContext& c) {
  SITU_RETURN_IF_ERROR(at_most_inputs(c, 11));
  SITU_RETURN_IF_ERROR(need_word(c, "update_rule", "gated_delta", {"linear", "gated", "delta", "gated_delta"}));
  SITU_RETURN_IF_ERROR(need_word(c, "gate_activation", "none", {"none", "softplus", "qwen", "sigmoid", "kda"}));
  SITU_RETURN_IF_ERROR(need_word(c, "beta_activation", "none", {"none", "sigmoid"}));
  SITU_RETURN_IF_ERROR(only_default(c, "state_update_capacity", 0));
  if (c.has(3)) return c.fail("input 3 (cu_seqlens): texts of several lengths side by side are not supported");
  SITU_RETURN_IF_ERROR(need_operand_rank(c, 6, "initial_state", 4, 4));
  const Shape &q = c.input(0).shape, &state = c.input(6).shape;
  const bool packed = !c.has(1);
  SITU_RETURN_IF_ERROR(need_operand_rank(c, 0, "query", packed ? 2 : 3, packed ? 3 : 4));
  if (packed != !c.has(2)) return c.fail("one of inputs 1 (key) and 2 (value) is missing");
  for (size_t i = 1; i < 4; ++i)
    if (!state[i].is_const()) return c.fail("initial_state " + shape_str(state) + " has no known heads");
  const int64_t heads = state[1].value(), values = state[2].value(), keys = state[3].value();
  Shape y(q.begin(), q.end() - (packed ? 1 : 2));
  int64_t q_heads = 0;
  if (packed) {
    const int64_t left = q.back().is_const() ? q.back().value() - heads * values : -1;
    if (keys < 1 || left < 1 || left % (2 * keys) != 0)
      return c.fail("query width " + q.back().str() + " is not that of queries, keys and values for a state " +
                    shape_str(state));
    q_heads = left / (2 * keys);
  } else {
    Shape k = y, v = y;
    k.insert(k.end(), {q[q.size() - 2], Dim(keys)});
    v.insert(v.end(), {Dim(heads), Dim(values)});
    SITU_RETURN_IF_ERROR(need_shape(c, 0, "query", k));
    SITU_RETURN_IF_ERROR(need_shape(c, 1, "key", k));
    SITU_RETURN_IF_ERROR(need_shape(c, 2, "value", v));
    if (!q[q.size() - 2].is_const()) return c.fail("query " + shape_str(q) + " has no known heads");
    q_heads = q[q.size() - 2].value();
  }
  if (q_heads < 1 || heads % q_heads != 0)
    return c.fail(std::to_string(heads) + " value heads are no multiple of " + std::to_string(q_heads) +
                  " query heads");
  const std::string rule = c.node.attr_string("update_rule", "gated_delta");
  if (decays(rule) && !c.has(4)) return c.fail("input 4 (decay) is missing");
  if (is_delta(rule) && !c.has(5)) return c.fail("input 5 (beta) is missing");
  const bool activated = c.node.attr_string("gate_activation", "none") != "none";
  if (activated && (!c.has(7) || !c.has(8))) return c.fail("gate_activation needs inputs 7 (a_log) and 8 (dt_bias)");
  if (!activated && (c.has(7) || c.has(8)))
    return c.fail("inputs 7 (a_log) and 8 (dt_bias) mean nothing without gate_activation");
  y.insert(y.end(), {Dim(heads), Dim(values)});
  SITU_RETURN_IF_ERROR(emit(c, 1, DType::kF32, state));
  if (c.node.has_output(2)) return c.fail("output 2 (state_update) is not supported");
  return emit(c, 0, c.input(0).type, y);
}

// com.microsoft.GatedRMSNorm: X [.., H * C], scale [C], gate as X -> X / sqrt(mean(X^2) + epsilon) * scale, of C
// elements at a time, times gate * Sigmoid(gate), or Sigmoid(gate).
Status infer_gated_rms_norm(InferContext& c) {
  SITU_RETURN_IF_ERROR(at_most_inputs(c, 3));
  SITU_RETURN_IF_ERROR(need_word(c, "activation", "silu", {"silu", "swish", "sigmoid"}));
  SITU_RETURN_IF_ERROR(need_operand_rank(c, 0, "X", 1, kMaxRank - 1));
  SITU_RETURN_IF_ERROR(need_operand_rank(c, 1, "scale", 1, 1));
  const Shape &x = c.input(0).shape, &scale = c.input(1).shape;
  if (!scale[0].is_const() || scale[0].value() < 1 || !x.back().is_const() || x.back().value() % scale[0].value() != 0)
    return c.fail("X " + shape_str(x) + " is no multiple of scale " + shape_str(scale));
  SITU_RETURN_IF_ERROR(need_shape(c, 2, "gate", x));
  return emit(c, 0, c.input(0).type, x);
}

// com.microsoft.GatedAdd: X + Y * gate; X and Y [.., C], gate [.., 1].
Status infer_gated_add(InferContext& c) {
  SITU_RETURN_IF_ERROR(at_most_inputs(c, 4));
  if (c.has(3)) return c.fail("input 3 (gate_weight) is not supported on a CPU");
  SITU_RETURN_IF_ERROR(need_operand_rank(c, 0, "X", 1, kMaxRank));
  const Shape& x = c.input(0).shape;
  SITU_RETURN_IF_ERROR(need_shape(c, 1, "Y", x));
  Shape rows = x;
  rows.back() = Dim(1);
  SITU_RETURN_IF_ERROR(need_shape(c, 2, "gate", rows));
  return emit(c, 0, c.input(0).type, x);
}

// situ.LinearAttention: q [1, T, Hq * K], k [1, T, Hk * K], v [1, T, H * V], past? [1, H, K, V], decay?, beta?
//   -> o [1, T, max(Hq, H) * V], present. `columns_first`: states are [1, H, V, K].
Status infer_recurrence(InferContext& c) {
  Heads h;
  SITU_RETURN_IF_ERROR(heads_of(c, c.node.attr_int("q_heads", 0), c.node.attr_int("v_heads", 0), &h));
  SITU_RETURN_IF_ERROR(check_gates(c, h, c.has(4), c.has(5)));
  const Shape& q = c.input(0).shape;
  if (q[0] != Dim(1)) return c.fail("query " + shape_str(q) + " is not of one sequence");
  const bool columns_first = c.node.attr_int("columns_first", 0) != 0;
  const Shape state{q[0], Dim(h.v), Dim(columns_first ? h.values : h.keys), Dim(columns_first ? h.keys : h.values)};
  if (c.has(3)) SITU_RETURN_IF_ERROR(need_shape(c, 3, "past", state));
  SITU_RETURN_IF_ERROR(emit(c, 1, DType::kF32, state));
  return emit(c, 0, c.input(0).type, {q[0], q[1], Dim(h.results() * h.values)});
}

Status prepare_recurrence(const PrepareContext& c, Prepared* out) {
  for (size_t i = 0; i < 6; ++i)
    if (i < 3 || c.has(i)) SITU_RETURN_IF_ERROR(need_type(c, i, type_bit(DType::kF32)));
  LinearAttentionParams p{};
  p.q_heads = c.node.attr_int("q_heads", 0);
  p.v_heads = c.node.attr_int("v_heads", 0);
  const int64_t keys = c.in[0]->shape[2].value() / p.q_heads;
  if (keys > kMostLinearKeys)
    return c.fail("heads of " + std::to_string(keys) + " are too large, at most " + std::to_string(kMostLinearKeys));
  p.k_heads = c.in[1]->shape[2].value() / keys;
  p.scale = c.node.attr_float("scale", 1);
  p.delta = c.has(5);
  p.columns_first = c.node.attr_int("columns_first", 0) != 0;
  return use_kernel(out, &KernelTable::linear_attention, p);
}

}  // namespace situ
