// Parameters that an op's prepare hands to its kernel: plain structs, no standard library.
#pragma once

#include <cstdint>

#include "base/dtype.h"
#include "kernels/row_encoding.h"

namespace situ {

enum class UnaryKind : int32_t {
  kAbs,
  kNeg,
  kExp,
  kLog,
  kSqrt,
  kReciprocal,
  kErf,
  kTanh,
  kSigmoid,
  kSin,
  kCos,
  kFloor,
  kCeil,
  kRound,
  kSign,
  kRelu,
  kNot,
  kIsNaN,
  kIsInf,
  kSoftplus,
  kGeluErf,
  kGeluTanh,
  kSilu,
  kQuickGelu,
  kElu,
  kLeakyRelu,
  kHardSigmoid,
  kHardSwish,
  kBitwiseNot,
  kSelu,
  kMish,
  kSoftsign,
  kThresholdedRelu,
  kCelu,
  kTan,
  kAtan,
  kAsin,
  kAcos,
  kSinh,
  kCosh,
  kAsinh,
  kAcosh,
  kAtanh,
};
struct UnaryParams {
  UnaryKind kind;
  float alpha = 0, beta = 0;  // Elu, LeakyRelu, HardSigmoid, QuickGelu (alpha); IsInf: alpha/beta = detect +/-
};

enum class BinaryKind : int32_t {
  kAdd,
  kSub,
  kMul,
  kDiv,
  kPow,
  kMod,
  kFmod,
  kMin,
  kMax,
  kAnd,
  kOr,
  kXor,
  kEqual,
  kLess,
  kLessOrEqual,
  kGreater,
  kGreaterOrEqual,
  kBitwiseAnd,
  kBitwiseOr,
  kBitwiseXor,
  kShiftLeft,
  kShiftRight,
  kPRelu,
  kSiluMul,  // silu(a) * b
  kMean,     // of all operands
};
struct BinaryParams {
  BinaryKind kind;
};

struct CastParams {
  bool saturate;  // float8 destinations: overflow becomes the largest number, not NaN or infinity
};

struct ClipParams {
  double min, max;  // used when operands 1 / 2 are absent
};

enum class ReduceKind : int32_t { kSum, kMean, kMax, kMin, kProd, kL1, kL2, kSumSquare, kLogSum, kLogSumExp };
struct ReduceParams {
  ReduceKind kind;
  uint32_t axes;  // bit i: input axis i is reduced
  bool keep_dims;
};
struct ArgReduceParams {
  int32_t axis;
  bool max;
  bool last;  // select_last_index
  bool keep_dims;
};
struct SoftmaxParams {
  int32_t axis;    // first normalised axis
  bool flattened;  // opset < 13: axes [axis..] are one
  bool log;
};
struct CumSumParams {
  bool exclusive, reverse;
};
struct ConvParams {
  int32_t axes;  // 1 to 3
  int64_t groups;
  int64_t strides[3], dilations[3], pads[3];  // pads: in front of each axis
};
struct PoolParams {
  int32_t axes;                                                   // 1 to 3
  int64_t kernel[3], strides[3], dilations[3], begin[3], end[3];  // begin, end: of the padding
  bool average;                                                   // else the largest
  bool count_pad;                                                 // of the average: padding counts as zeros
};
struct TopKParams {
  int32_t axis;
  bool largest, sorted;
};

struct AxisParams {
  int32_t axis;
};
struct GatherNdParams {
  int32_t batch_dims;
};
enum class ScatterKind : int32_t { kNone, kAdd, kMul, kMax, kMin };
struct ScatterParams {
  int32_t axis;
  ScatterKind kind;
};
struct FillParams {
  DType type;
  alignas(8) unsigned char value[16];  // one element of the output type
};
struct ShapeParams {
  int32_t start, end;  // dims start .. end - 1
  bool product;        // their product instead of the list
};
struct TriluParams {
  bool upper;
};
struct EyeLikeParams {
  int64_t k;
};
struct PadParams {
  int32_t mode;          // 0 constant, 1 reflect, 2 edge, 3 wrap
  bool from_attributes;  // opset < 11: `before` and `value` count, not operands 1.. (pads, value, axes)
  int64_t before[8];     // elements in front of each axis; negative: cropped
  double value;
};

// Norms over the last axes [axis..]: y = (x - mean) / sqrt(var + epsilon) * scale + bias, or without mean.
struct NormParams {
  int32_t axis;
  float epsilon;
};
struct LpNormParams {
  int32_t axis;
  int32_t p;
};

// y[.., m, n] = alpha * sum_k a[.., m, k] * b[.., k, n] + beta * c (c: operand 2, broadcast, optional).
// Any strides; transposes have become strides. b of rank 3 in a projection: see situ.Project in ops.
struct MatMulParams {
  float alpha = 1;
  float beta = 1;
  bool transpose_a = false, transpose_b = false;
  bool project = false;  // situ.Project: b is [K, N1, .., Nr], y [.., N1, .., Nr]
};

// Numbers that digits of 4 bits stand for, those of bitsandbytes; kNone: digits are numbers (kernels/packed_layout.h).
enum class DigitTable : uint8_t { kNone, kFp4, kNf4 };
// com.microsoft.MatMulNBits: y = a * w^T, w[n][k] = (q[n][k] - zero[n][b]) * scale[n][b], or table[q[n][k]] *
// scale[n][b]; b = k / block, or, with operand g_idx, g_idx[k]. high_first: of two digits in a byte the first is the
// higher one.
struct MatMulNBitsParams {
  int64_t k, n;
  int32_t bits;   // 2, 4 or 8
  int32_t block;  // power of two >= 16
  int32_t accuracy_level;
  bool float_zero_points;
  DigitTable table;
  bool high_first;
};
// What digits of packed weights are before they are scaled: less 2^(bits - 1), less what is stored for each block, or
// the numbers of a DigitTable.
enum class ZeroPoints : uint8_t { kMiddle, kIntegers, kFloats, kTable };
constexpr bool has_zeros(ZeroPoints zeros) { return zeros == ZeroPoints::kIntegers || zeros == ZeroPoints::kFloats; }
// situ.PackedMatMul and the packing of its weights (kernels/packed_layout.h).
//   y = f(n(x) g^T) * (n(x) w^T + bias) + residual
// operands x, w, bias?, residual?, norm? [K], g?, order?; n(x) = x / sqrt(mean(x^2) + epsilon) * norm, or x; f(..) is 1
// without g. order int32 [K]: row k of w meets element order[k] of x, or 0 where it is -1, and x may have other
// elements than K.
struct PackedMatMulParams {
  int64_t k, n;
  int32_t bits;            // 4 or 8
  int32_t block;           // power of two >= 16
  int32_t accuracy_level;  // 4: activations rounded to int8 per block
  bool half_scales;
  ZeroPoints zeros;
  UnaryKind activation = UnaryKind::kSilu;  // f: kSilu or kGeluTanh
  float epsilon = 0;
  DigitTable table = DigitTable::kNone;  // of kTable
  bool high_first = false;               // of the digits that are packed
};
// Products of the same rows; `shared` has what they have in common.
constexpr int kMaxProjections = 4;
struct PackedProjectionsParams {
  PackedMatMulParams shared;
  int32_t count;
  int64_t n[kMaxProjections];
  bool half_scales[kMaxProjections];
};
// Float weights in panels of columns, situ.DenseMatMul.
constexpr int64_t kDensePanelColumns = 32;
struct DenseMatMulParams {
  int64_t k, n;
  // Elements of the packed weights.
  constexpr int64_t packed_count() const {
    return (n + kDensePanelColumns - 1) / kDensePanelColumns * kDensePanelColumns * k;
  }
};
struct PackDenseParams {
  DenseMatMulParams product;
  int64_t first_k, last_k, first_panel, last_panel;
};
struct PackNBitsParams {
  PackedMatMulParams product;
  int64_t first_unit, last_unit;  // units [first, last) of 32 columns are packed
};
// Matrices of experts: y[r, j] = x[r] * w[e]^T + bias[e] with e = index[r, j]. Operands x [.., K], or [.., choices, K]
// where each choice has a row of its own, index [.., choices], bias? [experts, N], then the weights; y [.., choices,
// N].
constexpr int64_t kMaxExperts = 16384;
// situ.ExpertMatMul, weights as a file has them: one stack of all experts, or an operand (of digits three: digits,
// scales, zero points?) for each.
struct ExpertMatMulParams {
  int64_t experts, k, n;
  bool transposed;  // float matrices are [N, K], else [K, N]
  int32_t bits;     // of digits, which lie as MatMulNBits has them; 0: the weights are floats
  int32_t block;    // 0: a column has one scale, and zero points are packed along the columns

  int64_t blocks() const { return block > 0 ? (k + block - 1) / block : 1; }
  // Bytes of the digits of a column, and of the zero points of a matrix.
  int64_t column_bytes() const { return ((block > 0 ? blocks() * block : k) * bits + 7) / 8; }
  int64_t zero_bytes() const { return block > 0 ? n * ((blocks() * bits + 7) / 8) : (n * bits + 7) / 8; }
  int64_t operands() const { return bits > 0 ? 3 : 1; }
};
// situ.PackedExperts and situ.DenseExperts: the matrices of all experts side by side, packed as one of experts * N
// columns; N is a multiple of the columns of a unit.
struct PackedExpertsParams {
  int64_t experts;
  PackedMatMulParams product;  // of one expert
};
struct DenseExpertsParams {
  int64_t experts;
  DenseMatMulParams product;  // of one expert
};
// Rows of a block-quantised table, com.microsoft.GatherBlockQuantized.
struct GatherBlockQuantizedParams {
  int32_t bits;
  int32_t block;
  int32_t gather_axis, quantize_axis;
  bool packed_bytes;  // data is uint8 holding 8 / bits elements, low bits first; else uint4 / int4 elements
  int32_t default_zero;
};
struct DequantizeParams {
  int32_t axis;
  int64_t block;  // 0: per tensor or per axis
};
struct QuantizeParams {
  DequantizeParams scales;
  float low, high;  // the range of the integers
};

// situ.EncodeRows(x, factors?) -> y (kernels/encode_rows.cc).
struct EncodeRowsParams {
  RowEncoding encoding;  // not kPlain
};

// situ.Attention, operands q [B,Hq,S,D], k [B,Hk,T,D], v [B,Hk,T,Dv] (either as RowEncoding has its rows), bias?
// (float: added, bool: true = attend; broadcast to [B,Hq,S,T]), slopes? f32 [Hq] (ALiBi: adds slope * (key position -
// query position)), sink? [Hq] (adds exp(sink) to the softmax denominator), distance_bias? f32 [Hq or 1, N] (adds
// column key position - query position - least_distance, or the one at the nearer end). y [B,Hq,S,Dv], workspace? f32
// (kernels/attention_blocks.h), which nobody reads afterwards. Query i stands at position T - S + i. s = softcap(scale
// * q.k) + bias; keys with position > query's are left out when causal, keys with position <= query's - window when
// window > 0. A row that attends to nothing is 0.
struct AttentionParams {
  float scale;
  float softcap;           // 0: none, else s = softcap * tanh(s / softcap)
  int64_t window;          // <= 0: none, else the last `window` keys, the query's own included
  int64_t first;           // and so many of the first keys; 0 without a window
  int64_t least_distance;  // of the first column of distance_bias
  bool causal;
  bool smooth_sink;                                                      // sink of 0 for every head (smooth softmax)
  RowEncoding keys = RowEncoding::kPlain, values = RowEncoding::kPlain;  // of k and of v
};

// situ.Rotary, operands x [B,H,S,D], cos, sin, positions? [B,S] or [1] int64 (then cos and sin are tables
// [M,C]; a single position is the first one), else cos and sin broadcast to [B,H,S,C]. C is R or R / 2.
// half: y[i] = x[i]*cos[i] - x[i+R/2]*sin[i],  y[i+R/2] = x[i+R/2]*cos[i+R/2] + x[i]*sin[i+R/2], i < R/2
// interleaved: the same on pairs (2i, 2i+1); with C == R the tables are read at 2i and 2i+1.
// pairs_to_halves: half, where x[i] stands at 2i and x[i+R/2] at 2i+1.
// Elements R.. of each row pass unchanged: nothing happens to them when y and x are the same memory,
// else they are copied and booked so. y may be x.
struct RotaryParams {
  int64_t rotary_dim;  // R, even
  bool interleaved;
  bool pairs_to_halves = false;
};

// situ.LinearAttention (kernels/linear_attention.cc has the formula). Heads of q, of k and of v, which the states have.
// delta: what the state knows of a key is replaced, else added to. columns_first: states are [1, H, V, K].
struct LinearAttentionParams {
  int64_t q_heads, k_heads, v_heads;
  float scale;
  bool delta;
  bool columns_first;
};
// Numbers of one key of a state, and its factor, in scratch: a thread's has room for so many keys.
constexpr int64_t kMostLinearKeys = 8192;

// What the choice of a token looks at (kernels/choose.cc).
struct ExpTermsParams {
  float temperature, largest;  // of the scores
};
struct AboveParams {
  float least;
};
// Elements behind those of list_above's destination that it may write.
constexpr int64_t kAboveSlack = 16;
struct RandomWordsParams {
  uint64_t seed, position;
};

}  // namespace situ
