// situ.Attention and situ.Rotary: made by passes from fused operators and recognised subgraphs. Formulas and
// operands stand in kernels/params.h.
#include "kernels/params.h"
#include "ops/infer.h"
#include "ops/ops.h"
#include "ops/state_encoding.h"

namespace situ {
namespace {

constexpr uint64_t kKernelFloats = type_bit(DType::kF32) | type_bit(DType::kF16) | type_bit(DType::kBF16);
// The kernel's tiles of this many floats per row fit its scratch (kernels/attention.cc).
constexpr int64_t kMaxHeadSize = 1024;

Status need_rank(InferContext& c, size_t i, const char* name, size_t rank) {
  SITU_RETURN_IF_ERROR(c.need(i, name));
  if (c.input(i).shape.size() == rank) return Status::ok();
  return c.fail("input " + std::to_string(i) + " (" + name + ") should have rank " + std::to_string(rank) + ", is " +
                shape_str(c.input(i).shape));
}

// Heads may be symbols only where they are the same symbol.
Status check_groups(InferContext& c, const Dim& heads, const Dim& kv_heads) {
  if (heads == kv_heads) return Status::ok();
  if (!heads.is_const() || !kv_heads.is_const())
    return c.fail("cannot tell how " + heads.str() + " query heads share " + kv_heads.str() + " key heads");
  if (kv_heads.value() > 0 && heads.value() % kv_heads.value() == 0) return Status::ok();
  return c.fail(heads.str() + " query heads are not a multiple of " + kv_heads.str() + " key heads");
}

Status check_bias(InferContext& c, const Shape& full) {
  if (!c.has(3)) return Status::ok();
  SITU_RETURN_IF_ERROR(c.need(3, "bias"));
  const Shape& bias = c.input(3).shape;
  if (bias.size() > 4) return c.fail("bias " + shape_str(bias) + " has more than 4 dims");
  for (size_t i = 0; i < bias.size(); ++i) {
    const Dim &d = bias[bias.size() - 1 - i], &f = full[3 - i];
    Dim same;
    if (d == Dim(1)) continue;
    SITU_RETURN_IF_ERROR(require_equal(c, "bias " + shape_str(bias) + " for scores " + shape_str(full), d, f, &same));
  }
  return Status::ok();
}

Status check_per_head(InferContext& c, size_t i, const char* name, const Dim& heads) {
  if (!c.has(i)) return Status::ok();
  SITU_RETURN_IF_ERROR(need_rank(c, i, name, 1));
  Dim same;
  return require_equal(c, std::string(name) + " per query head", c.input(i).shape[0], heads, &same);
}

Status check_distances(InferContext& c, const Dim& heads) {
  if (!c.has(6)) return Status::ok();
  SITU_RETURN_IF_ERROR(need_rank(c, 6, "distance bias", 2));
  const Shape& s = c.input(6).shape;
  if ((s[0] == Dim(1) || s[0] == heads) && s[1].lower_bound() > 0) return Status::ok();
  return c.fail("distance bias " + shape_str(s) + " should be [" + heads.str() + " or 1, N], N > 0");
}

// Numbers in a row of keys or values.
Status row_size(InferContext& c, size_t i, const char* name, Dim* size) {
  const StateEncoding encoding = state_encoding(c.node, i);
  const ValueInfo& v = c.input(i);
  *size = encoding.plain() ? v.shape[3] : Dim(encoding.size);
  const bool integers = v.type == DType::kI8 || v.type == DType::kU8;
  if (encoding.plain() ? integers : v.type != encoding.type())
    return c.fail(std::string(name) + " is " + dtype_name(v.type) + ", and its rows are said to be " + encoding.str());
  Dim stored;
  return require_equal(c, std::string("size of rows of ") + name + ", " + encoding.str(), v.shape[3],
                       encoding.stored_size(*size), &stored);
}

Status need_head_size(const PrepareContext& c, size_t i, const char* name) {
  const Dim& size = c.in[i]->shape[3];
  if (!size.is_const())
    return c.fail(std::string(name) + " has the head size " + size.str() + ", which is not known before the step");
  if (size.value() <= kMaxHeadSize) return Status::ok();
  return c.fail(std::string(name) + " has the head size " + size.str() + ", at most " + std::to_string(kMaxHeadSize) +
                " is supported");
}

}  // namespace

// q [B,Hq,S,D], k [B,Hk,T,D], v [B,Hk,T,Dv], bias?, slopes? [Hq], sink? [Hq], distance_bias? [Hq or 1, N]
// -> [B,Hq,S,Dv]
Status infer_situ_attention(InferContext& c) {
  SITU_RETURN_IF_ERROR(need_rank(c, 0, "q", 4));
  SITU_RETURN_IF_ERROR(need_rank(c, 1, "k", 4));
  SITU_RETURN_IF_ERROR(need_rank(c, 2, "v", 4));
  const Shape &q = c.input(0).shape, &k = c.input(1).shape, &v = c.input(2).shape;
  Dim batch, depth, keys, heads, size, value_size;
  SITU_RETURN_IF_ERROR(require_equal(c, "batch of q and k", q[0], k[0], &batch));
  SITU_RETURN_IF_ERROR(require_equal(c, "batch of q and v", q[0], v[0], &batch));
  SITU_RETURN_IF_ERROR(row_size(c, 1, "k", &size));
  SITU_RETURN_IF_ERROR(row_size(c, 2, "v", &value_size));
  SITU_RETURN_IF_ERROR(require_equal(c, "head size of q and k", q[3], size, &depth));
  SITU_RETURN_IF_ERROR(require_equal(c, "length of k and v", k[2], v[2], &keys));
  SITU_RETURN_IF_ERROR(require_equal(c, "heads of k and v", k[1], v[1], &heads));
  SITU_RETURN_IF_ERROR(check_groups(c, q[1], k[1]));
  SITU_RETURN_IF_ERROR(check_bias(c, {q[0], q[1], q[2], k[2]}));
  SITU_RETURN_IF_ERROR(check_per_head(c, 4, "slopes", q[1]));
  SITU_RETURN_IF_ERROR(check_per_head(c, 5, "sink", q[1]));
  SITU_RETURN_IF_ERROR(check_distances(c, q[1]));
  return emit(c, 0, c.input(0).type, {q[0], q[1], q[2], value_size});
}

Status prepare_situ_attention(const PrepareContext& c, Prepared* out) {
  for (size_t i = 0; i < 3; ++i)
    SITU_RETURN_IF_ERROR(
        need_type(c, i, i == 0 ? kKernelFloats : kKernelFloats | type_bit(DType::kI8) | type_bit(DType::kU8)));
  if (c.has(3)) SITU_RETURN_IF_ERROR(need_type(c, 3, kKernelFloats | kBoolType));
  for (size_t i = 4; i < 6; ++i)
    if (c.has(i)) SITU_RETURN_IF_ERROR(need_type(c, i, kKernelFloats));
  if (c.has(6)) SITU_RETURN_IF_ERROR(need_type(c, 6, type_bit(DType::kF32)));
  SITU_RETURN_IF_ERROR(need_head_size(c, 0, "q"));
  SITU_RETURN_IF_ERROR(need_head_size(c, 2, "v"));
  AttentionParams params{};
  params.scale = c.node.attr_float("scale", 1);
  params.softcap = c.node.attr_float("softcap", 0);
  params.window = c.node.attr_int("window", 0);
  params.first = params.window > 0 ? c.node.attr_int("first", 0) : 0;
  params.least_distance = c.node.attr_int("least_distance", 0);
  params.causal = c.node.attr_int("causal", 0) != 0;
  params.smooth_sink = c.node.attr_int("smooth_sink", 0) != 0;
  params.keys = state_encoding(c.node, 1).rows();
  params.values = state_encoding(c.node, 2).rows();
  return use_kernel(out, &KernelTable::attention, params);
}

// x [.., D] with a scale for each row, or x [B,H,S,D] with factors f32 [H or 1, D or 1] -> rows as state_encoding has
// them.
Status infer_encode_rows(InferContext& c) {
  SITU_RETURN_IF_ERROR(c.need(0, "x"));
  const StateEncoding encoding = state_encoding(c.node, 0);
  Shape y = c.input(0).shape;
  if (y.empty()) return c.fail("x is a scalar, should be [.., D]");
  if (encoding.bits != 4 && encoding.bits != 8)
    return c.fail("bits is " + std::to_string(encoding.bits) + ", should be 4 or 8");
  if (c.has(1) == (encoding.scale == ScaleOf::kRow))
    return c.fail(std::string("there are ") + (c.has(1) ? "" : "no ") + "factors, for rows of " + encoding.str());
  if (c.has(1)) {
    SITU_RETURN_IF_ERROR(need_rank(c, 0, "x", 4));
    SITU_RETURN_IF_ERROR(need_rank(c, 1, "factors", 2));
    const Shape factors = c.input(1).shape;
    for (const auto& [own, all] : {std::pair<Dim, Dim>{factors[0], y[1]}, {factors[1], y[3]}}) {
      Dim same;
      if (own != Dim(1)) SITU_RETURN_IF_ERROR(require_equal(c, "factors " + shape_str(factors), own, all, &same));
    }
  }
  y.back() = encoding.stored_size(y.back());
  return emit(c, 0, encoding.type(), std::move(y));
}

Status prepare_encode_rows(const PrepareContext& c, Prepared* out) {
  SITU_RETURN_IF_ERROR(need_type(c, 0, kKernelFloats));
  if (c.has(1)) SITU_RETURN_IF_ERROR(need_type(c, 1, type_bit(DType::kF32)));
  const Dim& size = c.in[0]->shape.back();
  if (!size.is_const() || size.value() > kMaxHeadSize)
    return c.fail("rows of " + size.str() + ", at most " + std::to_string(kMaxHeadSize) + " are supported");
  return use_kernel(out, &KernelTable::encode_rows, EncodeRowsParams{state_encoding(c.node, 0).rows()});
}

// x [B,H,S,D], cos and sin [M,C] with positions [B,S] or [1], else broadcast to [B,H,S,C] -> y like x
Status infer_situ_rotary(InferContext& c) {
  SITU_RETURN_IF_ERROR(need_rank(c, 0, "x", 4));
  SITU_RETURN_IF_ERROR(c.need(1, "cos"));
  SITU_RETURN_IF_ERROR(c.need(2, "sin"));
  const Shape x = c.input(0).shape, cos = c.input(1).shape, sin = c.input(2).shape;
  const size_t rank = c.has(3) ? 2 : 4;
  if (cos.empty() || cos.size() != sin.size() || (c.has(3) ? cos.size() != rank : cos.size() > rank))
    return c.fail("cos " + shape_str(cos) + " and sin " + shape_str(sin) + " should have the same rank, " +
                  (c.has(3) ? "2" : "at most 4"));
  for (size_t i = 0; i < cos.size(); ++i) {
    Dim same;
    SITU_RETURN_IF_ERROR(
        require_equal(c, "cos " + shape_str(cos) + " and sin " + shape_str(sin), cos[i], sin[i], &same));
    const size_t in_x = 4 - cos.size() + i;
    if (c.has(3) || in_x == 3 || cos[i] == Dim(1)) continue;
    SITU_RETURN_IF_ERROR(require_equal(c, "cos " + shape_str(cos) + " for x " + shape_str(x), cos[i], x[in_x], &same));
  }
  const int64_t rotary = c.node.attr_int("rotary_dim", 0);
  if (rotary <= 0 || rotary % 2 != 0)
    return c.fail("rotary_dim is " + std::to_string(rotary) + ", should be even and positive");
  if (x[3].is_const() && x[3].value() < rotary)
    return c.fail("rotary_dim " + std::to_string(rotary) + " exceeds the head size " + x[3].str());
  if (cos.back() != Dim(rotary) && cos.back() != Dim(rotary / 2))
    return c.fail("cos has the width " + cos.back().str() + ", should be rotary_dim " + std::to_string(rotary) +
                  " or half of it");
  if (c.has(3)) {
    SITU_RETURN_IF_ERROR(c.need(3, "positions"));
    const Shape& p = c.input(3).shape;
    Dim same;
    if (p.size() > 2) return c.fail("positions " + shape_str(p) + " should be [batch, sequence] or one number");
    if (p.size() == 1) SITU_RETURN_IF_ERROR(require_equal(c, "positions of rank 1", p[0], Dim(1), &same));
    for (size_t i = 0; p.size() == 2 && i < 2; ++i) {
      if (p[i] == Dim(1) && i == 0) continue;
      SITU_RETURN_IF_ERROR(
          require_equal(c, "positions " + shape_str(p) + " for x " + shape_str(x), p[i], x[i == 0 ? 0 : 2], &same));
    }
  }
  return emit(c, 0, written_type(c.node, c.input(0).type), x);
}

Status prepare_situ_rotary(const PrepareContext& c, Prepared* out) {
  for (size_t i = 0; i < 3; ++i) SITU_RETURN_IF_ERROR(need_type(c, i, kKernelFloats));
  if (c.has(3)) SITU_RETURN_IF_ERROR(need_type(c, 3, kIndexTypes));
  RotaryParams params{};
  params.rotary_dim = c.node.attr_int("rotary_dim", 0);
  params.interleaved = c.node.attr_int("interleaved", 0) != 0;
  params.pairs_to_halves = c.node.attr_int("pairs_to_halves", 0) != 0;
  if (params.rotary_dim > kMaxHeadSize)
    return c.fail("rotary_dim is " + std::to_string(params.rotary_dim) + ", at most " + std::to_string(kMaxHeadSize) +
                  " is supported");
  return use_kernel(out, &KernelTable::rotary, params);
}

}  // namespace situ
