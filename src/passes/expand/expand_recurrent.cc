#include "passes/expand/expand_recurrent.h"

#include <cmath>
#include <limits>

#include "passes/context/pass_context.h"

namespace situ {
namespace {

class RecurrentWriter {
 public:
  RecurrentWriter(PassContext& context, Builder& builder, const Users& users, const Node& n)
      : context_(context), graph_(context.graph), builder_(builder), users_(users), n_(n), type_(type_of(n)) {}

  Status run(bool* expanded) {
    if (n_.op == "CausalConvWithState") return convolution();
    if (n_.op == "LinearAttention") return linear_attention();
    if (n_.op == "LinearAttentionGate") return attention_gate();
    if (n_.op == "GatedDeltaNet") return gated_delta_net();
    if (n_.op == "GatedRMSNorm") return gated_norm();
    if (n_.op == "GatedAdd") return gated_add();
    *expanded = false;
    return Status::ok();
  }

 private:
  Status fail(const std::string& what) const { return Status::error(n_.label() + ": " + what); }
  const Shape& shape(ValueId v) const { return graph_.values[v].info.shape; }
  DType type_of(const Node& n) const { return n.has_input(0) ? graph_.values[n.in[0]].info.type : DType::kNone; }
  ValueId operand(size_t i) const { return n_.has_input(i) ? n_.in[i] : kNoValue; }
  ValueId result(size_t o) const { return n_.has_output(o) ? n_.out[o] : kNoValue; }

  // -- all is computed in float
  ValueId as_float(ValueId v) {
    return v == kNoValue || graph_.values[v].info.type == DType::kF32 ? v : builder_.cast(v, DType::kF32);
  }
  ValueId floats(size_t i) { return as_float(operand(i)); }
  // The result of an operator, in the type that the node has.
  ValueId give(const char* op, std::vector<ValueId> in, size_t o = 0) {
    if (type_ == DType::kF32) return builder_.op(op, std::move(in), result(o));
    const ValueId y = builder_.op(op, std::move(in));
    return to_type(y, type_, result(o));
  }
  ValueId to_type(ValueId v, DType type, ValueId to) {
    const ValueId y = builder_.op("Cast", {v}, to);
    builder_.last().set_int("to", static_cast<int64_t>(type));
    return y;
  }
  ValueId times_sigmoid(ValueId x) { return builder_.op("Mul", {x, builder_.op("Sigmoid", {x})}); }
  ValueId rows(ValueId x, int64_t begin, int64_t end, int64_t axis, ValueId to = kNoValue) {
    return builder_.op(
        "Slice", {x, builder_.constant_i64({begin}), builder_.constant_i64({end}), builder_.constant_i64({axis})}, to);
  }
  ValueId zeros(const std::vector<int64_t>& dims) {
    const ValueId zero = graph_.add_constant(n_.name + "/zero", Tensor::allocate(DType::kF32, {1}));
    return builder_.op("Expand", {zero, builder_.constant_i64(dims)});
  }

  // -- states
  struct State {
    ValueId past = kNoValue;     // in float, as it is computed; kNoValue: zeros
    ValueId present = kNoValue;  // where the node is to write it, in the same form; kNoValue: nobody reads it
  };
  // A state that goes from step to step, and that this node alone reads and writes: how it is stored is nobody else's
  // business.
  bool own_state(ValueId past, ValueId present) const {
    const auto bound = context_.binding.inputs.find(past);
    return past != kNoValue && present != kNoValue && bound != context_.binding.inputs.end() &&
           bound->second == InputRole::kState && users_[static_cast<size_t>(past)].size() == 1 &&
           !graph_.is_output(past) && users_[static_cast<size_t>(present)].empty() && graph_.is_output(present);
  }
  void store_as(ValueId past, ValueId present, const Shape& kept) {
    graph_.values[past].info.type = DType::kF32;
    graph_.values[past].info.shape = kept;
    for (auto& [v, declared] : context_.declared_outputs)
      if (v == present) declared = DType::kF32;
  }
  // `kept`: the shape of the state that is computed.
  Status take_state(size_t in, size_t out, const Shape& kept, State* s) {
    s->past = operand(in);
    s->present = result(out);
    if (own_state(s->past, s->present)) {
      store_as(s->past, s->present, kept);
      return Status::ok();
    }
    if (s->past != kNoValue && shape(s->past) != kept)
      return fail("a state " + shape_str(shape(s->past)) + " that something else reads too is not supported, only " +
                  shape_str(kept));
    later_ = s->present != kNoValue && (s->past == kNoValue ? type_ : graph_.values[s->past].info.type) != DType::kF32
                 ? s->present
                 : kNoValue;
    if (later_ != kNoValue) {
      later_type_ = s->past == kNoValue ? type_ : graph_.values[s->past].info.type;
      s->present = kNoValue;
    }
    s->past = as_float(s->past);
    return Status::ok();
  }
  // Of a state that others read too, what the node made, in the type that the file has.
  void give_state(ValueId made) {
    if (later_ != kNoValue) to_type(made, later_type_, later_);
  }

  // y = Conv(Concat(past, x), w) + b, each channel by itself; present = the last rows of Concat(past, x)
  Status convolution() {
    const Shape taps = shape(n_.in[1]);
    const int64_t dilation = n_.attr_int("dilation", 1), kept = (taps[2].value() - 1) * dilation;
    const bool channels_last = n_.attr_int("channels_last", 0) != 0;
    if (!taps[0].is_const()) return fail("weight " + shape_str(taps) + " has an unknown number of channels");
    State state;
    SITU_RETURN_IF_ERROR(take_state(3, 1, {Dim(1), taps[0], Dim(kept)}, &state));
    if (state.past == kNoValue) state.past = zeros({1, taps[0].value(), kept});
    ValueId x = floats(0);
    if (channels_last) x = builder_.transpose(x, {0, 2, 1});
    ValueId both = x;
    if (kept > 0) {
      both = builder_.op("Concat", {state.past, x});
      builder_.last().set_int("axis", 2);
    }
    // Of one tap: a state without rows.
    const int64_t first = kept > 0 ? -kept : std::numeric_limits<int64_t>::max();
    if (result(1) != kNoValue) give_state(rows(both, first, std::numeric_limits<int64_t>::max(), 2, state.present));
    std::vector<ValueId> in{both, floats(1)};
    if (n_.has_input(2)) in.push_back(floats(2));
    const bool silu = n_.attr_string("activation", "none") != "none";
    const bool moved = channels_last || silu || type_ != DType::kF32;
    ValueId y = builder_.op("Conv", in, moved ? kNoValue : result(0));
    builder_.last().set_int("group", taps[0].value());
    builder_.last().set_ints("dilations", {dilation});
    if (!moved) return Status::ok();
    if (silu) y = times_sigmoid(y);
    if (channels_last) y = builder_.transpose(y, {0, 2, 1});
    give("Identity", {y});
    return Status::ok();
  }

  struct Update {
    bool decays = false, delta = false;
  };
  Update update() const {
    const std::string rule = n_.attr_string("update_rule", "gated_delta");
    return {rule == "gated" || rule == "gated_delta", rule == "delta" || rule == "gated_delta"};
  }
  // situ.LinearAttention of q, k, v, decay and beta in float, [1, T, ..].
  ValueId recur(std::vector<ValueId> qkv, const State& state, ValueId decay, ValueId beta, int64_t q_heads,
                int64_t v_heads, int64_t keys, bool columns_first) {
    qkv.insert(qkv.end(), {state.past, decay, beta});
    const ValueId y = builder_.op("LinearAttention", std::move(qkv), kNoValue, "situ");
    Node& node = builder_.last();
    node.set_int("q_heads", q_heads);
    node.set_int("v_heads", v_heads);
    node.set_int("columns_first", columns_first);
    const float scale = n_.attr_float("scale", 0);
    node.set_float("scale", scale != 0 ? scale : static_cast<float>(1 / std::sqrt(static_cast<double>(keys))));
    const ValueId present = state.present != kNoValue ? state.present : graph_.add_value(node.name + "/state");
    node.out.push_back(present);
    give_state(present);
    context_.note("linear attention", n_.name,
                  n_.attr_string("update_rule", "gated_delta") + ", " + std::to_string(v_heads) + " states of " +
                      std::to_string(keys) + " keys");
    return y;
  }

  Status linear_attention() {
    const int64_t q_heads = n_.attr_int("q_num_heads", 0), v_heads = n_.attr_int("kv_num_heads", 0);
    const int64_t keys = shape(n_.in[0])[2].value() / q_heads, values = shape(n_.in[2])[2].value() / v_heads;
    State state;
    SITU_RETURN_IF_ERROR(take_state(3, 1, {Dim(1), Dim(v_heads), Dim(keys), Dim(values)}, &state));
    const Update u = update();
    const ValueId q = floats(0), k = floats(1), v = floats(2);
    const ValueId decay = u.decays ? floats(4) : kNoValue, beta = u.delta ? floats(5) : kNoValue;
    const ValueId y = recur({q, k, v}, state, decay, beta, q_heads, v_heads, keys, false);
    give("Identity", {y});
    return Status::ok();
  }

  // decay = decay_scale * Softplus(a + dt_bias), beta = Sigmoid(b)
  Status attention_gate() {
    const ValueId sum = builder_.op("Add", {floats(0), floats(1)});
    give("Mul", {builder_.op("Softplus", {sum}), floats(2)});
    if (n_.has_output(1)) give("Sigmoid", {floats(3)}, 1);
    return Status::ok();
  }

  // X / sqrt(mean(X^2) + epsilon) * scale, of as many elements at a time as scale has, times its gate
  Status gated_norm() {
    const Shape x = shape(n_.in[0]);
    const int64_t size = shape(n_.in[1])[0].value(), heads = x.back().value() / size;
    std::vector<int64_t> apart(x.size() - 1, 0), together(x.size() - 1, 0);
    apart.insert(apart.end(), {heads, size});
    together.push_back(heads * size);
    ValueId y = floats(0);
    if (heads > 1) y = builder_.reshape(y, apart);
    y = builder_.op("RMSNormalization", {y, floats(1)});
    builder_.last().set_float("epsilon", n_.attr_float("epsilon", 1e-5f));
    builder_.last().set_int("axis", -1);
    if (heads > 1) y = builder_.reshape(y, together);
    const ValueId gate = floats(2);
    const bool sigmoid = n_.attr_string("activation", "silu") == "sigmoid";
    give("Mul", {y, sigmoid ? builder_.op("Sigmoid", {gate}) : times_sigmoid(gate)});
    context_.note("norm", n_.name, n_.op);
    return Status::ok();
  }

  Status gated_add() {
    const ValueId product = builder_.op("Mul", {floats(1), floats(2)});
    give("Add", {floats(0), product});
    return Status::ok();
  }

  // -- GatedDeltaNet, whose tokens are one axis, or two with a batch of 1 before it

  // [T, H, D] or [1, T, H, D] -> [1, T, H * D]
  ValueId as_rows(ValueId v, int64_t width) { return builder_.reshape(v, {1, -1, width}); }
  // Each head's row has length 1, or less.
  ValueId normal(ValueId v, int64_t heads, int64_t size) {
    const ValueId x = builder_.reshape(v, {0, 0, heads, size});
    const ValueId sum = builder_.op("ReduceSum", {builder_.op("Mul", {x, x}), builder_.constant_i64({3})});
    builder_.last().set_int("keepdims", 1);
    Tensor small = Tensor::allocate(DType::kF32, {1});
    *small.view().as<float>() = 1e-12f;
    const ValueId length =
        builder_.op("Sqrt", {builder_.op("Add", {sum, graph_.add_constant(n_.name + "/epsilon", small)})});
    return builder_.reshape(builder_.op("Div", {x, length}), {0, 0, heads * size});
  }

  // The decay that the node makes of its projection.
  ValueId activated_decay(int64_t heads, int64_t keys) {
    const Shape given = shape(n_.in[4]);
    const bool by_key = given.size() == tokens_rank_ + 2;
    const int64_t numbers = by_key ? heads * keys : heads;
    ValueId g = builder_.reshape(floats(4), {1, -1, heads, by_key ? keys : 1});
    const std::string activation = n_.attr_string("gate_activation", "none");
    if (activation != "none") {
      const ValueId a = builder_.reshape(builder_.op("Exp", {floats(7)}), {heads, 1});
      const bool bias_by_key = shape_count(shape(n_.in[8])) != Dim(heads);
      g = builder_.op("Add", {g, builder_.reshape(floats(8), {heads, bias_by_key ? keys : 1})});
      if (activation == "softplus" || activation == "qwen") {
        g = builder_.op("Mul", {builder_.op("Softplus", {g}), builder_.op("Neg", {a})});
      } else {
        Tensor bound = Tensor::allocate(DType::kF32, {1});
        *bound.view().as<float>() = n_.attr_float("gate_lower_bound", -5.0f);
        g = builder_.op("Mul", {builder_.op("Sigmoid", {builder_.op("Mul", {g, a})}),
                                graph_.add_constant(n_.name + "/bound", bound)});
      }
    }
    return builder_.reshape(g, {1, -1, numbers});
  }

  Status gated_delta_net() {
    const Shape stored = shape(n_.in[6]);
    const int64_t heads = stored[1].value(), values = stored[2].value(), keys = stored[3].value();
    packed_ = !n_.has_input(1);
    tokens_rank_ = shape(n_.in[0]).size() - (packed_ ? 1 : 2);
    const Shape q_shape = shape(n_.in[0]);
    if (stored[0] != Dim(1) || (tokens_rank_ == 2 && q_shape[0] != Dim(1)))
      return fail("several texts in one call are not supported");
    const int64_t q_heads =
        packed_ ? (q_shape.back().value() - heads * values) / (2 * keys) : q_shape[q_shape.size() - 2].value();
    State state;
    SITU_RETURN_IF_ERROR(take_state(6, 1, stored, &state));
    std::vector<ValueId> qkv;
    if (packed_) {
      const ValueId all = builder_.reshape(floats(0), {1, -1, q_shape.back().value()});
      const int64_t width = q_heads * keys, end = 2 * width + heads * values;
      qkv = {rows(all, 0, width, 2), rows(all, width, 2 * width, 2), rows(all, 2 * width, end, 2)};
    } else {
      qkv = {as_rows(floats(0), q_heads * keys), as_rows(floats(1), q_heads * keys),
             as_rows(floats(2), heads * values)};
    }
    if (n_.attr_int("qk_l2_norm", 0) != 0)
      for (size_t i = 0; i < 2; ++i) qkv[i] = normal(qkv[i], q_heads, keys);
    const Update u = update();
    const ValueId decay = u.decays ? activated_decay(heads, keys) : kNoValue;
    ValueId beta = kNoValue;
    if (u.delta) {
      beta = builder_.reshape(floats(5), {1, -1, heads});
      if (n_.attr_string("beta_activation", "none") == "sigmoid") beta = builder_.op("Sigmoid", {beta});
    }
    const ValueId y = recur(std::move(qkv), state, decay, beta, q_heads, heads, keys, true);
    std::vector<int64_t> dims{-1, heads, values};
    if (tokens_rank_ == 2) dims.insert(dims.begin(), 1);
    give("Reshape", {y, builder_.constant_i64(dims)});
    return Status::ok();
  }

  PassContext& context_;
  Graph& graph_;
  Builder& builder_;
  const Users& users_;
  const Node& n_;
  const DType type_;
  ValueId later_ = kNoValue;  // a present that is written in another type than it is computed
  DType later_type_ = DType::kNone;
  bool packed_ = false;  // of GatedDeltaNet: query holds keys and values too
  size_t tokens_rank_ = 1;
};

}  // namespace

Status expand_recurrent(PassContext& context, Builder& builder, const Users& users, const Node& n, bool* expanded) {
  return RecurrentWriter(context, builder, users, n).run(expanded);
}

}  // namespace situ
