// Shapes of fused operators that passes expand into plain ones (passes/expand/expand_fused.cc): they have no
// kernels of their own. Sources: onnxruntime contrib operators, ONNX opset 23 and 24.
#include "ops/infer.h"
#include "ops/op.h"
#include "ops/ops.h"

namespace situ {
namespace {

Status same_as_first(InferContext& c, std::initializer_list<size_t> outputs) {
  SITU_RETURN_IF_ERROR(c.need(0, "input"));
  for (size_t i : outputs)
    if (i < c.out.size()) c.set(i, c.input(0).type, c.input(0).shape);
  return Status::ok();
}

}  // namespace

// com.microsoft.GroupQueryAttention: query [B,S,Hq*D] or packed [B,S,(Hq+2*Hkv)*D] -> [B,S,Hq*D], present K and V. Key
// and value of no tokens: over another one's present, which is this one's too.
Status infer_group_query_attention(InferContext& c) {
  SITU_RETURN_IF_ERROR(c.need(0, "query"));
  const int64_t heads = c.node.attr_int("num_heads", 0), kv_heads = c.node.attr_int("kv_num_heads", 0);
  constexpr int64_t kMostHeads = int64_t{1} << 20;
  if (heads <= 0 || kv_heads <= 0 || heads > kMostHeads || heads % kv_heads != 0)
    return c.fail("num_heads " + std::to_string(heads) + " is not a multiple of kv_num_heads " +
                  std::to_string(kv_heads));
  const Shape& q = c.input(0).shape;
  if (q.size() != 3 || !q[2].is_const()) return c.fail("query should be [batch, sequence, width], is " + shape_str(q));
  const bool packed = !c.has(1);
  const int64_t parts = packed ? heads + 2 * kv_heads : heads;
  if (q[2].value() % parts != 0)
    return c.fail("query width " + q[2].str() + " is not a multiple of " + std::to_string(parts) + " heads");
  const int64_t size = q[2].value() / parts;
  c.set(0, c.input(0).type, {q[0], q[1], Dim(heads * size)});
  const Dim past = c.has(3) && c.input(3).shape.size() == 4 ? c.input(3).shape[2] : Dim(0);
  const DType type = c.has(3) ? c.input(3).type : c.input(0).type;
  const bool shared = c.has(1) && c.input(1).shape.size() == 3 && c.input(1).shape[1] == Dim(0);
  const Dim total = shared ? past : past + q[1];
  // Two numbers of four bits are a byte.
  const bool digits =
      c.node.attr_string("k_quant_type", "NONE") != "NONE" && c.node.attr_int("kv_cache_bit_width", 8) == 4;
  const Dim stored = digits ? Dim((size + 1) / 2) : Dim(size);
  for (size_t i = 1; i < 3 && i < c.out.size(); ++i) c.set(i, type, {q[0], Dim(kv_heads), total, stored});
  return Status::ok();
}

// com.microsoft.MultiHeadAttention: query [B,S,H*D], key and value [B,L,H*D] or [B,H,L,D] -> [B,S,H*Dv], present K and
// V. Key and value in one: key [B,L,H,2,D]; all three in one: query [B,S,H,3,D].
Status infer_multi_head_attention(InferContext& c) {
  SITU_RETURN_IF_ERROR(c.need(0, "query"));
  const int64_t heads = c.node.attr_int("num_heads", 0);
  const Shape& q = c.input(0).shape;
  const bool packed = !c.has(1) && !c.has(2), packed_keys = c.has(1) && !c.has(2);
  const ValueInfo& k = packed ? c.input(0) : c.has(1) ? c.input(1) : c.input(0);
  const ValueInfo& v = packed || packed_keys ? k : c.input(2);
  const auto in_one = [&](const Shape& s, int64_t parts) {
    return s.size() == 5 && s[2] == Dim(heads) && s[3] == Dim(parts) && s[4].is_const();
  };
  if (heads <= 0) return c.fail("num_heads is " + std::to_string(heads));
  if (packed ? !in_one(q, 3) : q.size() != 3 || !c.has(1) || (packed_keys && !in_one(k.shape, 2)))
    return c.fail(
        "query " + shape_str(q) + (c.has(1) ? " and key " + shape_str(k.shape) : std::string()) +
        " should be [batch, sequence, width] with key and value, or with both in one [batch, length, heads, 2,"
        " size], or all in one [batch, sequence, heads, 3, size]");
  if (!packed && (!q[2].is_const() || q[2].value() % heads != 0))
    return c.fail("query width " + q[2].str() + " is not a multiple of num_heads " + std::to_string(heads));
  if (k.shape.size() < 3 || v.shape.size() < 3) return c.fail("key and value need rank 3 or 4");
  auto per_head = [&](const ValueInfo& x) {
    return x.shape.size() == 3 ? dim_div(x.shape.back(), Dim(heads)) : x.shape.back();
  };
  auto length = [&](const ValueInfo& x) { return x.shape.size() == 4 ? x.shape[2] : x.shape[1]; };
  c.set(0, c.input(0).type, {q[0], q[1], per_head(v) * Dim(heads)});
  const Dim past = c.has(6) && c.input(6).shape.size() == 4 ? c.input(6).shape[2] : Dim(0);
  const ValueInfo keys = k, values = v;
  if (c.out.size() > 1) c.set(1, keys.type, {q[0], Dim(heads), past + length(keys), per_head(keys)});
  if (c.out.size() > 2) c.set(2, values.type, {q[0], Dim(heads), past + length(values), per_head(values)});
  return Status::ok();
}

// com.microsoft.EmbedLayerNormalization: ids [B,S], types? [B,S], tables of words, positions and types? [rows,C], gamma
// and beta [C], mask? [B,S], positions? [B,S] -> y [B,S,C], lengths [B] int32, the sum [B,S,C].
Status infer_embed_norm(InferContext& c) {
  for (const auto& [i, name] : {std::pair<size_t, const char*>{0, "input_ids"},
                                {2, "word_embedding"},
                                {3, "position_embedding"},
                                {5, "gamma"},
                                {6, "beta"}})
    SITU_RETURN_IF_ERROR(c.need(i, name));
  const Shape &ids = c.input(0).shape, &words = c.input(2).shape;
  if (ids.size() != 2 || words.size() != 2 || c.input(3).shape.size() != 2)
    return c.fail("input_ids " + shape_str(ids) + ", word_embedding " + shape_str(words) + " and position_embedding " +
                  shape_str(c.input(3).shape) + " should have two dims");
  if (c.has(1) != c.has(4)) return c.fail("segment_ids and segment_embedding are given together");
  SITU_RETURN_IF_ERROR(emit(c, 0, c.input(2).type, {ids[0], ids[1], words[1]}));
  SITU_RETURN_IF_ERROR(emit(c, 1, DType::kI32, {ids[0]}));
  return emit(c, 2, c.input(2).type, {ids[0], ids[1], words[1]});
}

// com.microsoft.RelativePositionBias: table [buckets,H], query_length Q, key_length K -> [1,H,Q,K]
Status infer_relative_bias(InferContext& c) {
  SITU_RETURN_IF_ERROR(c.need(0, "bias_table"));
  const Shape table = c.input(0).shape;
  if (table.size() != 2) return c.fail("bias_table should be [buckets, heads], is " + shape_str(table));
  std::vector<Dim> queries, keys;
  SITU_RETURN_IF_ERROR(need_content(c, 1, "query_length", &queries));
  SITU_RETURN_IF_ERROR(need_content(c, 2, "key_length", &keys));
  if (queries.size() != 1 || keys.size() != 1) return c.fail("query_length and key_length should be one number each");
  return emit(c, 0, c.input(0).type, {Dim(1), table[1], queries[0], keys[0]});
}

// com.microsoft.Attention: input [B,S,C], weights [C, Q + K + V], bias? [Q + K + V], mask_index?, past? [2,B,H,P,D],
// attention_bias? -> [B,S,V] and K and V, one behind the other, [2,B,H,P+S,D]. qkv_hidden_sizes says the three widths,
// of which Q and K are equal; else they are thirds.
Status infer_self_attention(InferContext& c) {
  SITU_RETURN_IF_ERROR(c.need(0, "input"));
  SITU_RETURN_IF_ERROR(c.need(1, "weights"));
  const int64_t heads = c.node.attr_int("num_heads", 0);
  const Shape &x = c.input(0).shape, &w = c.input(1).shape;
  if (c.has(6)) return c.fail("input 6 (past_sequence_length) is given: a past of the most tokens is not supported");
  if (c.node.attr_int("do_rotary", 0) != 0 || c.node.attr_int("past_present_share_buffer", 0) != 0)
    return c.fail("do_rotary and past_present_share_buffer are not supported");
  if (x.size() != 3 || w.size() != 2 || !w[1].is_const() || heads <= 0 || x[2] != w[0])
    return c.fail("input " + shape_str(x) + " and weights " + shape_str(w) + " with num_heads " +
                  std::to_string(heads) + " should be [batch, sequence, C] and [C, columns of Q, K and V]");
  std::vector<int64_t> parts = c.node.attr_ints("qkv_hidden_sizes");
  if (parts.empty()) parts.assign(3, w[1].value() / 3);
  const bool fit = parts.size() == 3 && parts[0] == parts[1] && parts[0] > 0 && parts[2] > 0 && parts[0] % heads == 0 &&
                   parts[2] % heads == 0 && parts[0] + parts[1] + parts[2] == w[1].value();
  if (!fit)
    return c.fail("weights " + shape_str(w) + " with num_heads " + std::to_string(heads) +
                  " should have as many columns for Q as for K, and then those of V, each a multiple of the heads");
  Dim past(0);
  if (c.has(4)) {
    const Shape& given = c.input(4).shape;
    if (given.size() != 5 || given[0] != Dim(2))
      return c.fail("past " + shape_str(given) + " should be [2, batch, heads, tokens, size]");
    past = given[3];
  }
  c.set(0, c.input(0).type, {x[0], x[1], Dim(parts[2])});
  if ((c.out.size() > 1 || c.has(4)) && parts[0] != parts[2])
    return c.fail("K and V of different widths have no common output");
  if (c.out.size() > 1) c.set(1, c.input(0).type, {Dim(2), x[0], Dim(heads), past + x[1], Dim(parts[0] / heads)});
  return Status::ok();
}

// ai.onnx.Attention 23/24: Q, K, V of rank 3 [B,L,H*D] or 4 [B,H,L,D].
Status infer_attention(InferContext& c) {
  for (size_t i = 0; i < 3; ++i) SITU_RETURN_IF_ERROR(c.need(i, i == 0 ? "Q" : i == 1 ? "K" : "V"));
  const Shape &q = c.input(0).shape, &k = c.input(1).shape, &v = c.input(2).shape;
  if ((q.size() != 3 && q.size() != 4) || k.size() != q.size() || v.size() != q.size())
    return c.fail("Q, K and V should all have rank 3 or 4: " + shape_str(q) + ", " + shape_str(k) + ", " +
                  shape_str(v));
  const bool flat = q.size() == 3;
  const Dim heads = flat ? Dim(c.node.attr_int("q_num_heads", 0)) : q[1];
  const Dim kv_heads = flat ? Dim(c.node.attr_int("kv_num_heads", 0)) : k[1];
  if (flat && (heads.value() <= 0 || kv_heads.value() <= 0))
    return c.fail("rank-3 inputs need q_num_heads and kv_num_heads");
  const Dim k_size = flat ? dim_div(k[2], kv_heads) : k[3], v_size = flat ? dim_div(v[2], kv_heads) : v[3];
  const Dim past = c.has(4) && c.input(4).shape.size() == 4 ? c.input(4).shape[2] : Dim(0);
  const Dim total = past + (flat ? k[1] : k[2]);
  c.set(0, c.input(0).type, flat ? Shape{q[0], q[1], heads * v_size} : Shape{q[0], q[1], q[2], v_size});
  if (c.out.size() > 1) c.set(1, c.input(1).type, {q[0], kv_heads, total, k_size});
  if (c.out.size() > 2) c.set(2, c.input(2).type, {q[0], kv_heads, total, v_size});
  if (c.node.has_output(3)) return c.fail("output qk_matmul_output is not supported");
  return Status::ok();
}

// com.microsoft.RotaryEmbedding(x, positions, cos, sin), MRotaryEmbedding, ai.onnx.RotaryEmbedding 23.
Status infer_rotary_embedding(InferContext& c) { return same_as_first(c, {0}); }
// com.microsoft.SkipSimplifiedLayerNormalization, SkipLayerNormalization: outputs 1 and 2 are mean and inverse
// deviation, 3 is the sum.
Status infer_skip_norm(InferContext& c) {
  SITU_RETURN_IF_ERROR(same_as_first(c, {0, 3}));
  Shape rows = c.input(0).shape;
  if (rows.empty()) return c.fail("the input is a scalar");
  rows.back() = Dim(1);
  for (size_t i : {size_t{1}, size_t{2}})
    if (c.node.has_output(i)) c.set(i, DType::kF32, rows);
  return Status::ok();
}

// If: inlined by a pass before anything asks for the shapes of its outputs. Scan: runs in the prologue of an encoder.
Status infer_control(InferContext& c) {
  return c.fail(c.node.is("If") ? "a branch that is not known at compile time"
                                : "only a loop over integers that an encoder is given is supported");
}

// situ.Select(condition, a, b): a where the condition, known on the host, is not 0, else b.
Status infer_select(InferContext& c) {
  for (size_t i = 0; i < 3; ++i) SITU_RETURN_IF_ERROR(c.need(i, "operand"));
  auto condition = c.content(0);
  if (!condition || condition->size() != 1) return c.fail("the condition is not known on the host");
  const ValueInfo &a = c.input(1), &b = c.input(2);
  if (a.type != b.type || a.shape.size() != b.shape.size())
    return c.fail("branches differ: " + std::string(dtype_name(a.type)) + shape_str(a.shape) + " and " +
                  dtype_name(b.type) + shape_str(b.shape));
  Shape shape;
  for (size_t i = 0; i < a.shape.size(); ++i) shape.push_back(dim_select((*condition)[0], a.shape[i], b.shape[i]));
  c.set(0, a.type, shape);
  return Status::ok();
}

}  // namespace situ
