// Fused operators become plain ones: GroupQueryAttention is a split of Q, K and V, rotary embeddings, a
// Concat of past and new rows, and attention. What follows then needs one mechanism for all exporters.
#include <algorithm>
#include <cmath>

#include "base/reasons.h"
#include "passes/context/builder.h"
#include "passes/context/pass_context.h"
#include "passes/expand/expand_bias.h"
#include "passes/expand/expand_caches.h"
#include "passes/expand/expand_einsum.h"
#include "passes/expand/expand_pictures.h"
#include "passes/expand/expand_quantised.h"
#include "passes/expand/expand_recurrent.h"
#include "passes/expand/fused_masks.h"
#include "passes/expand/passes.h"

namespace situ {
namespace {

class Expander {
 public:
  explicit Expander(PassContext& context)
      : context_(context), graph_(context.graph), builder_(graph_), masks_(context, builder_) {}

  Status run() {
    SITU_RETURN_IF_ERROR(check_key_lengths(context_));
    users_ = graph_.users();
    std::vector<Node> nodes = std::exchange(graph_.nodes, {});
    ReasonList refused;
    for (Node& n : nodes) {
      builder_.start(n);
      bool expanded = true;
      refused.add(expand(n, &expanded), Reason::Kind::kAttribute);
      if (!expanded) builder_.keep(std::move(n));
    }
    if (!refused.empty()) return refused.status();
    SITU_RETURN_IF_ERROR(builder_.finish());
    return masks_.check();
  }

 private:
  // Operands without which a fused operator means nothing; its expansion reads them without asking again.
  Status need_operands(const Node& n) const {
    struct Need {
      const char *domain, *op;
      size_t operands;
    };
    static constexpr Need kNeeds[] = {{"com.microsoft", "GroupQueryAttention", 1},
                                      {"com.microsoft", "MultiHeadAttention", 1},
                                      {"com.microsoft", "Attention", 2},
                                      {"com.microsoft", "RotaryEmbedding", 4},
                                      {"com.microsoft", "MRotaryEmbedding", 4},
                                      {"com.microsoft", "SkipSimplifiedLayerNormalization", 3},
                                      {"com.microsoft", "SkipLayerNormalization", 3},
                                      {"com.microsoft", "BiasGelu", 2},
                                      {"com.microsoft", "FastGelu", 1},
                                      {"com.microsoft", "FusedMatMul", 2},
                                      {"com.microsoft", "FusedGemm", 2},
                                      {"", "Attention", 3},
                                      {"", "TensorScatter", 2},
                                      {"", "RotaryEmbedding", 3},
                                      {"", "InstanceNormalization", 3},
                                      {"", "Einsum", 1},
                                      {"", "BatchNormalization", 5},
                                      {"", "GroupNormalization", 3},
                                      {"", "GlobalAveragePool", 1},
                                      {"", "GlobalMaxPool", 1},
                                      {"", "Resize", 1},
                                      {"", "Sum", 1},
                                      {"", "Max", 1},
                                      {"", "Min", 1},
                                      {"", "Concat", 1}};
    for (const Need& need : kNeeds) {
      if (!n.is(need.op, need.domain)) continue;
      for (size_t i = 0; i < need.operands; ++i)
        if (!n.has_input(i))
          return fail(n,
                      "input " + std::to_string(i) + " is missing, " + std::to_string(need.operands) + " are needed");
      if (!n.has_output(0)) return fail(n, "output 0 is missing");
    }
    if (n.is("GroupQueryAttention", "com.microsoft") && n.has_input(1) != n.has_input(2))
      return fail(n, "one of inputs 1 (key) and 2 (value) is missing");
    return Status::ok();
  }

  Status expand(const Node& n, bool* expanded) {
    SITU_RETURN_IF_ERROR(need_operands(n));
    current_ = &n;
    heads_ = kv_heads_ = 0;
    if (n.domain == "com.microsoft") {
      if (n.op == "GroupQueryAttention") return group_query_attention(n);
      if (n.op == "MultiHeadAttention") return multi_head_attention(n);
      if (n.op == "Attention") return self_attention(n);
      if (n.op == "EmbedLayerNormalization") return embed_norm(n);
      if (n.op == "RotaryEmbedding" || n.op == "MRotaryEmbedding") return rotary_embedding(n, 2, 3, 1);
      if (n.op == "SkipSimplifiedLayerNormalization") return skip_norm(n, true);
      if (n.op == "SkipLayerNormalization") return skip_norm(n, false);
      if (n.op == "BiasGelu" || (n.op == "FastGelu" && n.has_input(1))) return bias_gelu(n);
      if (n.op == "FusedMatMul" && n.attr_int("transBatchA", 0) == 0 && n.attr_int("transBatchB", 0) == 0)
        return fused_matmul(n);
      if (n.op == "FusedGemm") return fused_gemm(n);
      if (n.op == "RelativePositionBias") return expand_relative_bias(graph_, builder_, n);
    } else if (n.domain.empty()) {
      if (n.op == "Attention") return attention(n);
      if (n.op == "TensorScatter") return expand_tensor_scatter(graph_, builder_, n);
      if (n.op == "RotaryEmbedding") return rotary_embedding(n, 1, 2, 3);
      if (n.op == "Einsum") return expand_einsum(graph_, builder_, n);
      if (n.op == "InstanceNormalization") return instance_norm(n);
      if (n.op == "Dropout" && n.has_output(1)) return fail(n, "output mask is read, which is not supported");
      if (n.op == "Concat" && n.in.size() == 1) return variadic(n);
      if ((n.op == "Sum" || n.op == "Max" || n.op == "Min") && n.in.size() != 2) return variadic(n);
    } else {
      *expanded = false;
      return Status::ok();
    }
    SITU_RETURN_IF_ERROR(expand_recurrent(context_, builder_, users_, n, expanded));
    if (!*expanded) SITU_RETURN_IF_ERROR(expand_quantised(graph_, builder_, n, expanded));
    if (!*expanded && n.domain.empty()) SITU_RETURN_IF_ERROR(expand_pictures(graph_, builder_, n, expanded));
    return Status::ok();
  }

  ValueId operand(const Node& n, size_t i) const { return n.has_input(i) ? n.in[i] : kNoValue; }
  const Shape& shape(ValueId v) const { return graph_.values[v].info.shape; }  // until the next value is added
  Status fail(const Node& n, const std::string& what) const { return n.error(what, Reason::Kind::kAttribute); }

  // The positions P .. P + S - 1 of the new tokens, [1, S]: the graph's own input if it has one of that
  // shape, else an input that Situ adds and feeds.
  ValueId positions() {
    for (const auto& [v, role] : context_.binding.inputs)
      if (role == InputRole::kPositions && shape(v).size() == 2 && graph_.values[v].info.type == DType::kI64) return v;
    const ValueId v = graph_.add_value("situ.positions", DType::kI64);
    graph_.values[v].info.ranked = true;
    graph_.values[v].info.shape = {Dim(1), new_tokens()};
    graph_.inputs.push_back(v);
    context_.binding.inputs[v] = InputRole::kPositions;
    return v;
  }

  // Rows in front of those of position 0: none in short sequences. [1]
  ValueId rotary_offset() {
    const int64_t offset = context_.names.rotary_offset;
    const ValueId length = graph_.add_shape(current_->name + "/length", {past_tokens() + new_tokens()});
    const ValueId longer = builder_.op("Greater", {length, builder_.constant_i64({offset})});
    return builder_.op("Where", {longer, builder_.constant_i64({offset}), builder_.constant_i64({0})});
  }

  ValueId rotary(ValueId x, ValueId cos, ValueId sin, ValueId position, int64_t rotary_dim, bool interleaved,
                 ValueId result = kNoValue) {
    const ValueId y = builder_.op(
        "Rotary",
        position == kNoValue ? std::vector<ValueId>{x, cos, sin} : std::vector<ValueId>{x, cos, sin, position}, result,
        "situ");
    context_.note("rotary", current_->name,
                  current_->op + ": " + (rotary_dim > 0 ? std::to_string(rotary_dim) + " " : std::string()) +
                      (interleaved ? "interleaved" : "half") + " dims");
    builder_.last().set_int("rotary_dim", rotary_dim);
    builder_.last().set_int("interleaved", interleaved);
    return y;
  }

  // `fresh` without tokens: the past is another layer's present, which has those of this step.
  ValueId append(ValueId past, ValueId fresh, ValueId present, const StateEncoding& form = {}) {
    const bool none = past != kNoValue && shape(fresh).size() >= 3 && shape(fresh)[shape(fresh).size() - 2] == Dim(0);
    if (past == kNoValue || none) {
      const ValueId all = none ? past : fresh;
      return present == kNoValue ? all : builder_.op("Identity", {all}, present);
    }
    // A past input whose head size was only a symbol now has it from the new rows.
    if (context_.binding.inputs.count(past)) fill_head_size(past, form);
    const ValueId y = builder_.op("Concat", {past, fresh}, present);
    builder_.last().set_int("axis", 2);
    return y;
  }
  void fill_head_size(ValueId past, const StateEncoding& form) {
    Shape& s = graph_.values[past].info.shape;
    if (s.size() == 4 && !s[3].is_const() && head_size_ > 0) s[3] = form.stored_size(Dim(head_size_));
    if (s.size() == 4 && !s[1].is_const() && kv_heads_ > 0) s[1] = Dim(kv_heads_);
  }

  struct AttentionSpec {
    float scale = 0;
    float softcap = 0;
    int64_t window = -1;
    bool causal = true;
    bool smooth_sink = false;
    StateEncoding keys = {}, values = {};
  };
  void describe(const AttentionSpec& spec) {
    std::string text = current_->op + ": " + (heads_ > 0 ? std::to_string(heads_) + " heads" : "heads");
    if (kv_heads_ > 0 && kv_heads_ != heads_) text += " over " + std::to_string(kv_heads_) + " KV heads";
    text += " of " + std::to_string(head_size_);
    if (spec.causal) text += ", causal";
    if (spec.window > 0) text += ", window " + std::to_string(spec.window);
    if (spec.softcap > 0) text += ", softcap " + std::to_string(spec.softcap);
    if (!spec.keys.plain()) text += ", keys and values of " + std::to_string(spec.keys.bits) + " bits";
    context_.note("attention", current_->name, text);
  }
  ValueId attend(ValueId q, ValueId k, ValueId v, ValueId bias, ValueId sink, const AttentionSpec& spec) {
    const ValueId y = builder_.op("Attention", {q, k, v, bias, kNoValue, sink}, kNoValue, "situ");
    Node& node = builder_.last();
    node.set_float("scale", spec.scale != 0 ? spec.scale : 1.0f / std::sqrt(static_cast<float>(head_size_)));
    node.set_float("softcap", spec.softcap);
    node.set_int("window", spec.window);
    node.set_int("causal", spec.causal);
    node.set_int("smooth_sink", spec.smooth_sink);
    for (const size_t i : {1, 2}) set_state_encoding(&node, i, i == 1 ? spec.keys : spec.values);
    describe(spec);
    return y;
  }

  // K and V without tokens: the operator reads a cache that another layer has appended to, and nothing else.
  Status check_shared(const Node& n) const {
    const Dim queries = shape(n.in[0])[1];
    for (const size_t i : {1, 2})
      if (shape(n.in[i]).size() != 3 || shape(n.in[i])[1] != Dim(0))
        return fail(
            n, "one of key and value has no tokens, the other is " + shape_str(shape(n.in[i]), &graph_.symbol_names()));
    for (const size_t i : {3, 4}) {
      if (!n.has_input(i)) return fail(n, "key and value have no tokens, and there is no past");
      const Shape& past = shape(n.in[i]);
      if (past.size() != 4 || past[2] != queries + past_tokens())
        return fail(n, "key and value have no tokens, and the past " + shape_str(past, &graph_.symbol_names()) +
                           " has not those of this step either");
    }
    return Status::ok();
  }
  // Query i of a causal attention sees the past and new keys up to i, which is its own.
  Status check_own_keys(const Node& n, const Dim& queries, const Dim& keys) const {
    if (queries == keys) return Status::ok();
    return fail(n, "causal, with " + keys.str(&graph_.symbol_names()) + " new keys for " +
                       queries.str(&graph_.symbol_names()) + " queries: the last key that each sees is not its own");
  }
  Dim new_tokens() const { return context_.phase == Phase::kDecode ? Dim(1) : Dim::symbol(kSymS); }
  Dim past_tokens() const { return context_.phase == Phase::kFirst ? Dim(0) : Dim::symbol(kSymP); }

  // com.microsoft.GroupQueryAttention; operands and attributes: research note in docs, ORT ContribOperators.md.
  Status group_query_attention(const Node& n) {
    const int64_t heads = heads_ = n.attr_int("num_heads", 0);
    kv_heads_ = n.attr_int("kv_num_heads", 0);
    const bool packed = !n.has_input(1);
    head_size_ = shape(n.in[0])[2].value() / (packed ? heads + 2 * kv_heads_ : heads);
    const Result<StoredRows> keys = stored_rows(graph_, n, true, kv_heads_, head_size_),
                             values = stored_rows(graph_, n, false, kv_heads_, head_size_);
    if (!keys.is_ok() || !values.is_ok()) return keys.is_ok() ? values.status() : keys.status();
    if (keys->form.plain() != values->form.plain())
      return fail(n, "one of keys and values is quantised, the other is not");
    if (n.has_output(3)) return fail(n, "output_qk is not supported");
    if (n.attr_int("local_window_size", -1) == 0) return fail(n, "local_window_size is 0, a window of no keys");
    ValueId q = n.in[0], k = operand(n, 1), v = operand(n, 2);
    if (packed) {
      const ValueId sizes = builder_.constant_i64({heads * head_size_, kv_heads_ * head_size_, kv_heads_ * head_size_});
      q = builder_.op("Split", {n.in[0], sizes});
      builder_.last().set_int("axis", 2);
      k = builder_.new_value("key");
      v = builder_.new_value("value");
      builder_.last().out = {q, k, v};
    }
    const auto empty = [&](ValueId x) { return !packed && shape(x).size() == 3 && shape(x)[1] == Dim(0); };
    const bool reads_only = empty(k) || empty(v);
    if (reads_only) SITU_RETURN_IF_ERROR(check_shared(n));
    q = builder_.split_heads(q, heads, head_size_);
    if (!reads_only) {
      k = builder_.split_heads(k, kv_heads_, head_size_);
      v = builder_.split_heads(v, kv_heads_, head_size_);
    }
    for (auto [x, weight] : {std::pair<ValueId*, size_t>{&q, 14}, {&k, 15}}) {
      if (!n.has_input(weight) || (x == &k && reads_only)) continue;
      *x = builder_.op("RMSNormalization", {*x, n.in[weight]});
      builder_.last().set_float("epsilon", n.attr_float("qk_norm_epsilon", 1e-6f));
    }
    if (n.attr_int("do_rotary", 0)) {
      if (!n.has_input(7) || !n.has_input(8)) return fail(n, "do_rotary needs cos_cache and sin_cache");
      const Shape table = shape(n.in[7]);
      if (table.size() != 2 || !table[1].is_const())
        return fail(n, "cos_cache should be [positions, size / 2], is " + shape_str(table));
      ValueId position = n.has_input(9) ? n.in[9] : positions();
      if (context_.names.rotary_offset > 0) position = builder_.op("Add", {position, rotary_offset()});
      const bool interleaved = n.attr_int("rotary_interleaved", 0);
      q = rotary(q, n.in[7], n.in[8], position, 2 * table[1].value(), interleaved);
      if (!reads_only) k = rotary(k, n.in[7], n.in[8], position, 2 * table[1].value(), interleaved);
    }
    if (!reads_only) {
      k = encode_rows(graph_, builder_, k, *keys);
      v = encode_rows(graph_, builder_, v, *values);
    }
    k = append(operand(n, 3), k, n.has_output(1) ? n.out[1] : kNoValue, keys->form);
    v = append(operand(n, 4), v, n.has_output(2) ? n.out[2] : kNoValue, values->form);
    AttentionSpec spec{n.attr_float("scale", 0), n.attr_float("softcap", 0), n.attr_int("local_window_size", -1),
                       n.attr_int("causal", 1) != 0, n.attr_int("smooth_softmax", 0) == 1};
    spec.keys = keys->form;
    spec.values = values->form;
    const DType type = graph_.values[n.in[0]].info.type;
    q = scale_rows(graph_, builder_, q, *keys, heads, type);
    ValueId y = attend(q, k, v, operand(n, 10), operand(n, 11), spec);
    y = scale_rows(graph_, builder_, y, *values, heads, type);
    builder_.merge_heads(y, heads * head_size_, n.out[0]);
    return Status::ok();
  }

  // Part i along an axis, without that axis.
  ValueId part(ValueId all, int64_t axis, int64_t i) {
    const ValueId index = graph_.add_constant(current_->name + "/part_" + std::to_string(i), Tensor::scalar_i64(i));
    const ValueId y = builder_.op("Gather", {all, index});
    builder_.last().set_int("axis", axis);
    return y;
  }

  // com.microsoft.MultiHeadAttention: Q, K and V of their own, or K and V in one [B,L,H,2,D], or all in one
  // [B,L,H,3,D].
  Status multi_head_attention(const Node& n) {
    const int64_t heads = heads_ = n.attr_int("num_heads", 0);
    const Dim v_width = graph_.values[n.out[0]].info.shape[2];
    if (!v_width.is_const()) return fail(n, "value width " + v_width.str() + " is not known");
    ValueId q = n.in[0], k = operand(n, 1), v = operand(n, 2);
    const Dim queries = shape(q)[1], keys = k == kNoValue ? queries : shape(k)[shape(k).size() == 4 ? 2 : 1],
              past = n.has_input(6) ? shape(n.in[6])[2] : Dim(0);
    const bool packed = k == kNoValue, packed_keys = !packed && v == kNoValue;
    head_size_ = packed ? shape(q)[4].value() : shape(q)[2].value() / heads;
    kv_heads_ = heads;
    if (n.attr_int("unidirectional", 0) != 0) SITU_RETURN_IF_ERROR(check_own_keys(n, queries, keys));
    if (n.has_input(8) || n.has_input(9))
      return fail(n, "operands past_sequence_length and cache_indirection are not supported yet");
    if (n.has_output(3)) return fail(n, "output qk is not supported");
    if (n.has_input(3)) {  // of Q, K and V, one after the other
      if (packed || packed_keys) return fail(n, "operand bias with packed keys and values is not supported");
      int64_t begin = 0;
      const int64_t width = heads * head_size_;
      for (auto [x, size] : {std::pair<ValueId*, int64_t>{&q, width}, {&k, width}, {&v, v_width.value()}}) {
        const ValueId from = builder_.constant_i64({begin}), to = builder_.constant_i64({begin += size});
        if (shape(*x).size() == 4) continue;  // rows of a source: a bias is in them, and onnxruntime adds none
        *x = builder_.op("Add", {*x, builder_.op("Slice", {n.in[3], from, to})});
      }
    }
    const auto apart = [&](ValueId all, int64_t i) { return builder_.transpose(part(all, 3, i), {0, 2, 1, 3}); };
    if (packed || packed_keys) {
      const ValueId all = packed ? q : k;
      const int64_t first = packed ? 1 : 0;
      q = packed ? apart(all, 0) : builder_.split_heads(q, heads, head_size_);
      k = apart(all, first);
      v = apart(all, first + 1);
    } else {
      q = builder_.split_heads(q, heads, head_size_);
      if (shape(n.in[1]).size() == 3) k = builder_.split_heads(k, heads, head_size_);
      if (shape(n.in[2]).size() == 3) v = builder_.split_heads(v, heads, v_width.value() / heads);
    }
    k = append(operand(n, 6), k, n.has_output(1) ? n.out[1] : kNoValue);
    v = append(operand(n, 7), v, n.has_output(2) ? n.out[2] : kNoValue);
    AttentionSpec spec;
    spec.scale = n.attr_float("scale", 0);
    spec.causal = n.attr_int("unidirectional", 0) != 0;
    const ValueId bias = masks_.before(n, 4, past, queries, operand(n, 5));
    const ValueId y = attend(q, k, v, bias, kNoValue, spec);
    masks_.behind(n, 4);
    builder_.merge_heads(y, v_width.value(), n.out[0]);
    return Status::ok();
  }

  // com.microsoft.Attention: Q, K and V are one product of the input; past and present have K in front of V.
  Status self_attention(const Node& n) {
    const int64_t heads = heads_ = kv_heads_ = n.attr_int("num_heads", 0);
    std::vector<int64_t> widths = n.attr_ints("qkv_hidden_sizes");
    if (widths.empty()) widths.assign(3, shape(n.in[1])[1].value() / 3);
    head_size_ = widths[0] / heads;
    const Dim queries = shape(n.in[0])[1], past = n.has_input(4) ? shape(n.in[4])[3] : Dim(0);
    ValueId all = builder_.op("MatMul", {n.in[0], n.in[1]});
    if (n.has_input(2)) all = builder_.op("Add", {all, n.in[2]});
    ValueId parts[3];
    for (int64_t i = 0, begin = 0; i < 3; begin += widths[static_cast<size_t>(i++)]) {
      const int64_t width = widths[static_cast<size_t>(i)];
      const ValueId from = builder_.constant_i64({begin}), to = builder_.constant_i64({begin + width}),
                    axis = builder_.constant_i64({2});
      parts[i] = builder_.split_heads(builder_.op("Slice", {all, from, to, axis}), heads, width / heads);
    }
    if (n.has_input(4))
      for (int64_t i = 0; i < 2; ++i) {
        parts[i + 1] = builder_.op("Concat", {part(n.in[4], 0, i), parts[i + 1]});
        builder_.last().set_int("axis", 2);
      }
    if (n.has_output(1)) {
      const ValueId front = builder_.constant_i64({0});
      const ValueId k = builder_.op("Unsqueeze", {parts[1], front}), v = builder_.op("Unsqueeze", {parts[2], front});
      builder_.op("Concat", {k, v}, n.out[1]);
      builder_.last().set_int("axis", 0);
    }
    AttentionSpec spec;
    spec.scale = n.attr_float("scale", 0);
    spec.causal = n.attr_int("unidirectional", 0) != 0;
    const ValueId bias = masks_.before(n, 3, past, queries, operand(n, 5));
    const ValueId y = attend(parts[0], parts[1], parts[2], bias, kNoValue, spec);
    masks_.behind(n, 3);
    builder_.merge_heads(y, widths[2], n.out[0]);
    return Status::ok();
  }

  // com.microsoft.EmbedLayerNormalization(ids, types?, words, positions' table, types' table?, gamma, beta, mask?,
  // positions?): the norm of the sum of three rows.
  Status embed_norm(const Node& n) {
    ValueId sum = builder_.op("Gather", {n.in[2], n.in[0]});
    const ValueId position = builder_.op("Gather", {n.in[3], n.has_input(8) ? n.in[8] : positions()});
    sum = builder_.op("Add", {sum, position});
    if (n.has_input(1)) {
      const ValueId type = builder_.op("Gather", {n.in[4], n.in[1]});
      sum = builder_.op("Add", {sum, type});
    }
    if (n.has_output(2)) builder_.last().out[0] = sum = n.out[2];
    builder_.op("LayerNormalization", {sum, n.in[5], n.in[6]}, n.out[0]);
    builder_.last().set_float("epsilon", n.attr_float("epsilon", 1e-12f));
    builder_.last().set_int("axis", -1);
    if (!n.has_output(1)) return Status::ok();
    if (!n.has_input(7)) {  // as onnxruntime leaves it: zeros, which mostly nobody reads
      const ValueId batch = builder_.op("Shape", {n.in[0]});
      builder_.last().set_int("end", 1);
      builder_.op("ConstantOfShape", {batch}, n.out[1]);
      const Tensor zero = Tensor::allocate(DType::kI32, {1});
      builder_.last().attrs["value"].kind = Attribute::Kind::kTensor;
      builder_.last().attrs["value"].tensor = zero;
      return Status::ok();
    }
    const ValueId axis = builder_.constant_i64({1});
    builder_.op("ReduceSum", {n.in[7], axis}, n.out[1]);
    builder_.last().set_int("keepdims", 0);
    return Status::ok();
  }

  // ai.onnx.Attention, opset 23 (with or without past) and 24 (also of a static cache).
  Status attention(const Node& n) {
    const bool flat = shape(n.in[0]).size() == 3, padded = n.has_input(6);
    const Shape y_shape = shape(n.out[0]);
    ValueId q = n.in[0], k = n.in[1], v = n.in[2], mask = operand(n, 3);
    const int64_t heads = heads_ = n.attr_int("q_num_heads", 0);
    kv_heads_ = n.attr_int("kv_num_heads", 0);
    const Dim size = flat ? dim_div(shape(q)[2], Dim(heads)) : shape(q)[3];
    if (!size.is_const()) return fail(n, "head size " + size.str() + " is not known");
    head_size_ = size.value();
    const Dim queries = shape(q)[flat ? 1 : 2], keys = shape(k)[flat ? 1 : 2];
    const bool causal = n.attr_int("is_causal", 0) != 0;
    if (padded) {
      if (n.has_input(4) || n.has_input(5)) return fail(n, "past_key and nonpad_kv_seqlen exclude each other");
      SITU_RETURN_IF_ERROR(hide_padding(graph_, builder_, n, &mask));
    } else if (causal) {
      // Query i sees keys up to i + the length of past_key, as the operator is defined; without one new tokens would
      // see the first keys.
      if (!n.has_input(4) && !(queries == keys))
        return fail(
            n,
            "is_causal without past_key on " + keys.str() + " keys for " + queries.str() +
                " queries hides all keys but the first ones: the past belongs in past_key, or the mask in attn_mask");
      SITU_RETURN_IF_ERROR(check_own_keys(n, queries, keys));
    }
    if (flat) {
      const Dim v_size = dim_div(shape(v)[2], Dim(kv_heads_));
      q = builder_.split_heads(q, heads, head_size_);
      k = builder_.split_heads(k, kv_heads_, head_size_);
      v = builder_.split_heads(v, kv_heads_, v_size.value());
    }
    k = append(operand(n, 4), k, n.has_output(1) ? n.out[1] : kNoValue);
    v = append(operand(n, 5), v, n.has_output(2) ? n.out[2] : kNoValue);
    AttentionSpec spec;
    spec.scale = n.attr_float("scale", 0);
    spec.softcap = n.attr_float("softcap", 0);
    spec.causal = causal && !padded;
    const ValueId y = attend(q, k, v, mask, kNoValue, spec);
    if (flat)
      builder_.merge_heads(y, y_shape[2].value(), n.out[0]);
    else
      builder_.op("Identity", {y}, n.out[0]);
    return Status::ok();
  }

  // Of MRotaryEmbedding: rows [1, 1, S, C] of a table [positions, C] whose columns are divided into sections, each at
  // its own row of positions [R, 1, S]. `alternate`: column c is of row c % R, as long as the section of that row has
  // columns left, and then of row 0.
  ValueId rows_by_section(ValueId table, ValueId positions, const std::vector<int64_t>& widths, bool alternate) {
    const auto slice = [&](ValueId v, int64_t begin, int64_t end, int64_t axis) {
      return builder_.op(
          "Slice", {v, builder_.constant_i64({begin}), builder_.constant_i64({end}), builder_.constant_i64({axis})});
    };
    const auto at = [&](int64_t row) {
      return builder_.op("Squeeze", {slice(positions, row, row + 1, 0), builder_.constant_i64({0})});
    };
    const int64_t rows = static_cast<int64_t>(widths.size()), columns = shape(table).back().value();
    ValueId all = kNoValue;
    if (alternate) {
      all = builder_.op("Gather", {table, at(0)});
      for (int64_t row = 1; row < rows; ++row) {
        const Tensor own = Tensor::allocate(DType::kBool, {columns});
        for (int64_t c = row; c < columns && c < rows * widths[static_cast<size_t>(row)]; c += rows)
          own.view().as<uint8_t>()[c] = 1;
        const ValueId chosen = graph_.add_constant(current_->name + "/columns", own);
        all = builder_.op("Where", {chosen, builder_.op("Gather", {table, at(row)}), all});
      }
    } else {
      std::vector<ValueId> parts;
      for (int64_t row = 0, begin = 0; row < rows; begin += widths[static_cast<size_t>(row++)])
        parts.push_back(
            builder_.op("Gather", {slice(table, begin, begin + widths[static_cast<size_t>(row)], 1), at(row)}));
      all = builder_.op("Concat", parts);
      builder_.last().set_int("axis", -1);
    }
    return builder_.op("Unsqueeze", {all, builder_.constant_i64({1})});
  }
  Status check_sections(const Node& n, ValueId positions, int64_t columns) const {
    const std::vector<int64_t> widths = n.attr_ints("mrope_section");
    if (const int64_t layout = n.attr_int("mrope_layout", 0); layout != 0 && layout != 1)
      return fail(n, "mrope_layout should be 0 or 1, is " + std::to_string(layout));
    int64_t left = columns;
    for (const int64_t w : widths) left = w < 1 || w > left ? -1 : left - w;
    if (positions == kNoValue || shape(positions).size() != 3 || left != 0 ||
        shape(positions)[0] != Dim(static_cast<int64_t>(widths.size())))
      return fail(n, "mrope_section should divide the " + std::to_string(columns) +
                         " columns of cos_cache among the rows of position_ids" +
                         (positions == kNoValue ? "" : " " + shape_str(shape(positions))));
    return Status::ok();
  }

  // RotaryEmbedding of com.microsoft (x, positions, cos, sin) and ai.onnx 23 (x, cos, sin, positions?).
  Status rotary_embedding(const Node& n, size_t cos, size_t sin, size_t position_operand) {
    const Shape x_shape = shape(n.in[0]);
    if (n.attr_int("is_packed_batching", 0) || n.attr_float("scale", 1.0f) != 1.0f)
      return fail(n, "is_packed_batching and scale are not supported");
    if (const int64_t offset = context_.names.rotary_offset; offset > 0)
      return fail(n, "genai_config.json says that rotary tables hold another rope from row " + std::to_string(offset) +
                         " on (multiRotaryCacheConcatOffset), which is known of GroupQueryAttention alone");
    const Shape table = shape(n.in[cos]);
    if (table.empty() || !table.back().is_const()) return fail(n, "cos_cache of unknown width");
    if (const int64_t given = n.attr_int("rotary_embedding_dim", 0); given != 0 && given != 2 * table.back().value())
      return fail(n, "cos_cache has " + table.back().str() + " columns, rotary_embedding_dim " + std::to_string(given) +
                         " takes half as many as it says");
    const int64_t rotary_dim =
        n.attr_int("rotary_embedding_dim", 0) ? n.attr_int("rotary_embedding_dim", 0) : 2 * table.back().value();
    const bool interleaved = n.attr_int("interleaved", 0);
    ValueId position = operand(n, position_operand);
    ValueId cos_table = n.in[cos], sin_table = n.in[sin];
    if (n.op == "MRotaryEmbedding") {
      SITU_RETURN_IF_ERROR(check_sections(n, position, table.back().value()));
      const std::vector<int64_t> widths = n.attr_ints("mrope_section");
      const bool alternate = n.attr_int("mrope_layout", 0) == 1;
      cos_table = rows_by_section(cos_table, position, widths, alternate);
      sin_table = rows_by_section(sin_table, position, widths, alternate);
      position = kNoValue;
    }
    ValueId x = n.in[0];
    if (x_shape.size() == 4) {
      rotary(x, cos_table, sin_table, position, rotary_dim, interleaved, n.out[0]);
      return Status::ok();
    }
    if (x_shape.size() != 3 || !x_shape[2].is_const())
      return fail(
          n, "input should be [batch, sequence, width] or [batch, heads, sequence, size], is " + shape_str(x_shape));
    int64_t heads = n.attr_int("num_heads", 0);
    if (heads == 0) heads = x_shape[2].value() / rotary_dim;
    if (heads <= 0 || x_shape[2].value() % heads != 0)
      return fail(n, "width " + x_shape[2].str() + " is not a multiple of " + std::to_string(heads) + " heads");
    x = builder_.split_heads(x, heads, x_shape[2].value() / heads);
    x = rotary(x, cos_table, sin_table, position, rotary_dim, interleaved);
    builder_.merge_heads(x, x_shape[2].value(), n.out[0]);
    return Status::ok();
  }

  // InstanceNormalization(x [N, C, ..], scale [C], bias [C]): rows [N*C, rest] are normalised by themselves.
  Status instance_norm(const Node& n) {
    const size_t rank = shape(n.in[0]).size();
    const DType type = graph_.values[n.in[0]].info.type;
    if (type != DType::kF32) return fail(n, std::string("X of type ") + dtype_name(type) + " is not supported");
    const auto mean = [&](ValueId x) {
      const ValueId m = builder_.op("ReduceMean", {x});
      std::vector<int64_t> axes;
      for (size_t i = 2; i < rank; ++i) axes.push_back(static_cast<int64_t>(i));
      builder_.last().opset = 13;
      builder_.last().set_ints("axes", axes);
      return m;
    };
    const auto by_channel = [&](ValueId x) {
      std::vector<int64_t> dims(rank - 1, 1);
      dims[0] = -1;
      return builder_.reshape(x, dims);
    };
    Tensor epsilon = Tensor::allocate(type, {1});
    *epsilon.view().as<float>() = n.attr_float("epsilon", 1e-5f);
    const ValueId small = graph_.add_constant(n.name + "/epsilon", epsilon);
    const ValueId x = builder_.op("Sub", {n.in[0], mean(n.in[0])});
    const ValueId variance = builder_.op("Add", {mean(builder_.op("Mul", {x, x})), small});
    const ValueId y = builder_.op("Div", {x, builder_.op("Sqrt", {variance})});
    builder_.op("Add", {builder_.op("Mul", {y, by_channel(n.in[1])}), by_channel(n.in[2])}, n.out[0]);
    return Status::ok();
  }

  // com.microsoft.SkipLayerNormalization(input, skip, gamma, beta?, bias?), SkipSimplified...(input, skip, gamma,
  // bias?).
  Status skip_norm(const Node& n, bool simplified) {
    for (size_t o : {size_t{1}, size_t{2}})
      if (n.has_output(o)) return fail(n, "outputs mean and inv_std_var are not supported");
    context_.note("norm", n.name, n.op);
    ValueId sum = builder_.op("Add", {n.in[0], n.in[1]});
    const size_t bias = simplified ? 3 : 4;
    if (n.has_input(bias)) sum = builder_.op("Add", {sum, n.in[bias]});
    if (n.has_output(3)) builder_.last().out[0] = sum = n.out[3];
    std::vector<ValueId> operands{sum, n.in[2]};
    if (!simplified && n.has_input(3)) operands.push_back(n.in[3]);
    builder_.op(simplified ? "RMSNormalization" : "LayerNormalization", operands, n.out[0]);
    builder_.last().set_float("epsilon", n.attr_float("epsilon", 1e-12f));
    builder_.last().set_int("axis", -1);
    return Status::ok();
  }

  // com.microsoft.BiasGelu(x, b) = Gelu(x + b), exact; FastGelu(x, b): the tanh form.
  Status bias_gelu(const Node& n) {
    const ValueId sum = builder_.op("Add", {n.in[0], n.in[1]});
    builder_.op("Gelu", {sum}, n.out[0]);
    builder_.last().set_string("approximate", n.op == "FastGelu" ? "tanh" : "none");
    return Status::ok();
  }

  // com.microsoft.FusedMatMul: alpha * A' * B', with the last two axes of either transposed.
  Status fused_matmul(const Node& n) {
    ValueId operands[2] = {n.in[0], n.in[1]};
    const char* const keys[2] = {"transA", "transB"};
    for (int i = 0; i < 2; ++i) {
      const size_t rank = shape(operands[i]).size();
      if (n.attr_int(keys[i], 0) == 0 || rank < 2) continue;
      std::vector<int64_t> perm(rank);
      for (size_t d = 0; d < rank; ++d) perm[d] = static_cast<int64_t>(d);
      std::swap(perm[rank - 1], perm[rank - 2]);
      operands[i] = builder_.transpose(operands[i], perm);
    }
    const float alpha = n.attr_float("alpha", 1.0f);
    if (alpha == 1.0f) {
      builder_.op("MatMul", {operands[0], operands[1]}, n.out[0]);
      return Status::ok();
    }
    // In float, as onnxruntime multiplies halves.
    const DType type = graph_.values[n.out[0]].info.type;
    const bool half = type == DType::kF16 || type == DType::kBF16;
    Tensor factor = Tensor::allocate(type == DType::kF64 ? DType::kF64 : DType::kF32, {});
    if (type == DType::kF64)
      *factor.view().as<double>() = alpha;
    else
      *factor.view().as<float>() = alpha;
    ValueId y = builder_.op("MatMul", {operands[0], operands[1]});
    graph_.values[y].info = graph_.values[n.out[0]].info;
    if (half) y = builder_.cast(y, DType::kF32);
    const ValueInfo info = graph_.values[y].info;
    y = builder_.op("Mul", {y, graph_.add_constant(n.name + "/alpha", factor)}, half ? kNoValue : n.out[0]);
    graph_.values[y].info = info;
    if (half) builder_.cast(y, type, n.out[0]);
    return Status::ok();
  }

  // com.microsoft.FusedGemm: Gemm and one activation.
  Status fused_gemm(const Node& n) {
    const std::string activation = n.attr_string("activation", "");
    if (activation != "Relu" && activation != "Tanh" && activation != "Sigmoid")
      return fail(n, "activation '" + activation + "' is not supported");
    const ValueId y = builder_.op("Gemm", n.in);
    builder_.last().attrs = n.attrs;
    builder_.op(activation, {y}, n.out[0]);
    return Status::ok();
  }

  // Sum, Max, Min of 1 or of more than 2 operands, Concat of 1.
  Status variadic(const Node& n) {
    const std::string op = n.op == "Sum" ? "Add" : n.op;
    if (n.in.size() == 1) {
      builder_.op("Identity", {n.in[0]}, n.out[0]);
      return Status::ok();
    }
    ValueId sum = n.in[0];
    for (size_t i = 1; i < n.in.size(); ++i)
      sum = builder_.op(op, {sum, n.in[i]}, i + 1 == n.in.size() ? n.out[0] : kNoValue);
    return Status::ok();
  }

  PassContext& context_;
  Graph& graph_;
  Builder builder_;
  Users users_;  // of the graph as it was
  FusedMasks masks_;
  int64_t head_size_ = 0, heads_ = 0, kv_heads_ = 0;
  const Node* current_ = nullptr;  // that is being expanded
};

}  // namespace

Status expand_fused(PassContext& context) { return Expander(context).run(); }

}  // namespace situ
