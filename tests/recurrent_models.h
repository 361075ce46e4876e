// Small decoders with recurrent states, of plain operators, as ONNX files. Shapes in comments: S new tokens, P past
// ones, T = P + S, C width, H heads, D and E numbers in a head, K taps.
#pragma once

#include <array>
#include <cmath>
#include <limits>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "onnx/test_model.h"

namespace situ::test {

class RecurrentModel {
 public:
  static constexpr int64_t kVocabulary = 61, kWidth = 16, kHeads = 2, kSize = kWidth / kHeads, kTaps = 4;

  RecurrentModel() {
    g_.inputs.push_back(onnx::test::value("input_ids", DType::kI64, {"batch", "sequence"}));
    x_ = op("Gather", {weight({kVocabulary, kWidth}, 1), "input_ids"});
    tokens_ = extent("input_ids", 1);
  }

  // From here on products round what they read, as onnxruntime's quantize_dynamic has them: weights of int8 or uint8,
  // which has a zero point, with one scale or one for each column.
  void round_products(DType weights, bool by_column) {
    rounds_ = weights;
    by_column_ = by_column;
  }

  // x += GELU(x w1 + b1) w2 + b2, GELU spelt out.
  void feed_forward() {
    const int64_t wide = 3 * kWidth;
    const std::string h = op("Add", {product(x_, kWidth, wide, 1.2), weight({wide}, 0.3)});
    const std::string erf = op("Erf", {op("Div", {h, f32(std::sqrt(2.0f))})});
    const std::string y = op("Mul", {op("Mul", {h, op("Add", {erf, f32(1)})}), f32(0.5f)});
    add(op("Add", {product(y, wide, kWidth, 1.2), weight({kWidth}, 0.3)}));
  }

  // x += (causal convolution of B * h) * C, where B, C and h come from x: the state is the last `window` >= K - 1 rows
  // of B * h, zeros before the first. `groups`: of the convolution; C: each channel by itself. `moves`: else the state
  // is the first rows of what the convolution reads, and stays what it was.
  void convolution(int64_t window = kTaps - 1, int64_t groups = kWidth, bool moves = true, int64_t taps = kTaps) {
    const std::string h = op("Transpose", {op("Mul", {linear(x_), linear(x_)})}, {ints("perm", {0, 2, 1})});
    const auto [past, present] = state("conv", {number(kWidth), number(window)});
    const std::string both = op("Concat", {past, h}, {integer("axis", 2)});
    slice_rows(both, moves ? -window : 0, moves ? kEnd : window, present);
    std::string y = convolve(both, groups, taps);
    if (window > taps - 1)
      y = op("Slice", {y, op("Neg", {op("Unsqueeze", {tokens_, i64({0})})}), i64({kEnd}), i64({2})});
    mix(y);
  }

  // The same of columns of a projection that a number for each column scales, as Falcon-H1 has them.
  void convolution_of_packed() {
    const std::string all = op("Mul", {product(x_, kWidth, 2 * kWidth, 1.2), weight({1, 1, 2 * kWidth}, 1)});
    const std::string rows = name(), gate = name();
    g_.nodes.push_back(
        onnx::test::node("Split", {all, i64({kWidth, kWidth})}, {rows, gate}, {integer("axis", -1)}, "/Split" + rows));
    const auto [past, present] = state("conv", {number(kWidth), number(kTaps)});
    const std::string both =
        op("Concat", {past, op("Transpose", {rows}, {ints("perm", {0, 2, 1})})}, {integer("axis", 2)});
    slice_rows(both, -kTaps, kEnd, present);
    const std::string y = convolve(slice_rows(both, 1, kEnd), kWidth);
    add(linear(op("Mul", {op("Transpose", {y}, {ints("perm", {0, 2, 1})}), gate})));
  }

  // The same with a state of `window` rows, of which the convolution reads the last K - 1 alone: the others are left
  // out before it, of what it reads or of the past.
  enum class LeftOut { kOfAll, kOfAllBySplit, kOfPast, kOfPastAlone, kLastOfAll };
  void convolution_of_part(LeftOut where, int64_t window = kTaps) {
    const std::string h = op("Transpose", {op("Mul", {linear(x_), linear(x_)})}, {ints("perm", {0, 2, 1})});
    const auto [past, present] = state("conv", {number(kWidth), number(window)});
    const int64_t more = window - (kTaps - 1);
    const auto joined_with = [&](const std::string& rows) { return op("Concat", {rows, h}, {integer("axis", -1)}); };
    std::string read;
    if (where == LeftOut::kOfPastAlone) {  // of which one row more stays than is left out: the state is what is read
      read = joined_with(slice_rows(past, 1, kEnd));
      slice_rows(read, -window, kEnd, present);
      if (more > 1) read = slice_rows(read, more - 1, kEnd);
    } else {
      const std::string both = joined_with(past);
      if (where == LeftOut::kOfAllBySplit) {
        const std::string sizes =
            op("Concat", {op("Unsqueeze", {tokens_, i64({0})}), i64({window})}, {integer("axis", 0)});
        g_.nodes.push_back(onnx::test::node("Split", {both, sizes}, {name(), present}, {integer("axis", 2)}));
      } else {
        slice_rows(both, -window, kEnd, present);
      }
      read = where == LeftOut::kOfPast      ? joined_with(slice_rows(past, more - window, kEnd))
             : where == LeftOut::kLastOfAll ? slice_rows(both, 0, -more)
                                            : slice_rows(both, more, kEnd);
    }
    mix(convolve(read, kWidth));
  }

  void convolution_by_rows() {  // of a state [1, K, C], gathered; what the padding of Conv gives is left out
    const auto [past, present] = state("conv", {number(kTaps), number(kWidth)});
    const std::string both = op("Concat", {past, linear(x_)}, {integer("axis", 1)});
    const std::string last = op("Add", {i64({0, 1, 2, 3}), tokens_});
    g_.nodes.push_back(onnx::test::node("Gather", {both, last}, {present}, {integer("axis", 1)}));
    const std::string turned = op("Transpose", {both}, {ints("perm", {0, 2, 1})}), w = weight({kWidth, 1, kTaps}, 1);
    const std::string y = op("Conv", {turned, w}, {integer("group", kWidth), ints("pads", {kTaps - 1, kTaps - 1})});
    mix(slice_rows(slice_rows(y, 0, 1 - kTaps), kTaps, kEnd));
  }

  // The same of one token alone, as a sum of products with the last K rows. `rolled`: these are the old ones, turned by
  // one, of which the last is written over: by ScatterElements, or `by_place` by ScatterND.
  void convolution_of_one_token(bool rolled, bool by_place = false) {
    const std::string h = op("Transpose", {op("Mul", {linear(x_), linear(x_)})}, {ints("perm", {0, 2, 1})});
    const auto [past, present] = state("conv", {number(kWidth), number(kTaps)});
    const std::string kept = slice_rows(past, 1, kEnd);
    if (by_place) {
      const std::string turned = op("Concat", {kept, slice_rows(past, 0, 1)}, {integer("axis", 2)});
      std::vector<int64_t> places;
      for (int64_t c = 0; c < kWidth; ++c) places.insert(places.end(), {0, c, -1});
      const std::string last = constant(DType::kI64, {1, kWidth, 3}, onnx::test::raw(places));
      const std::string row = op("Squeeze", {h, i64({2})});
      g_.nodes.push_back(onnx::test::node("ScatterND", {turned, last, row}, {present}));
    } else if (rolled) {
      const std::string turned = op("Concat", {kept, slice_rows(past, 0, 1)}, {integer("axis", 2)});
      const std::string last = constant(DType::kI64, {1, kWidth, 1}, onnx::test::raw(std::vector<int64_t>(kWidth, -1)));
      g_.nodes.push_back(onnx::test::node("ScatterElements", {turned, last, h}, {present}, {integer("axis", 2)}));
    } else {
      g_.nodes.push_back(onnx::test::node("Concat", {kept, h}, {present}, {integer("axis", 2)}));
    }
    const std::string products = op("Mul", {present, weight({kWidth, kTaps}, 2)});
    mix(unsqueeze(op("ReduceSum", {products, i64({-1})}, {integer("keepdims", 0)}), 2));
  }

  // The same as one operator: CausalConvWithState of com.microsoft, or of ONNX 27.
  void convolution_with_state(bool onnx, int64_t dilation = 1, bool channels_last = false, int64_t taps = kTaps) {
    const std::string rows = op("Mul", {linear(x_), linear(x_)});
    const std::string h = channels_last ? rows : op("Transpose", {rows}, {ints("perm", {0, 2, 1})});
    const std::string kept = number((taps - 1) * dilation);
    const auto [past, present] =
        channels_last ? state("conv", {kept, number(kWidth)}) : state("conv", {number(kWidth), kept});
    std::vector<std::string> attributes{onnx::test::string_attribute("activation", "silu")};
    if (!onnx) attributes.insert(attributes.end(), {integer("dilation", dilation), integer("ndim", 1)});
    if (channels_last) attributes.push_back(integer("channels_last", 1));
    const std::string y = fused("CausalConvWithState", onnx,
                                {h, weight({kWidth, 1, taps}, 0.7), weight({kWidth}, 0.2), past}, present, attributes);
    if (!channels_last) return mix(y);
    add(linear(op("Mul", {y, linear(x_)})));
  }

  // x += LinearAttention of H heads of keys and values, with `queries` heads of queries.
  void linear_attention(const std::string& rule, bool onnx, int64_t queries = kHeads) {
    const auto [past, present] = state("recurrent", {number(kHeads), number(kSize), number(kSize)});
    const std::string q = product(x_, kWidth, queries * kSize, 1.2), k = unit(linear(x_)), v = linear(x_);
    std::vector<std::string> in{q, k, v, past};
    const bool decays = rule.starts_with("gated"), delta = rule.ends_with("delta");
    in.push_back(decays ? op("Neg", {op("Softplus", {product(x_, kWidth, kHeads, 1)})}) : "");
    if (delta) in.push_back(op("Sigmoid", {product(x_, kWidth, kHeads, 1)}));
    const std::string y = fused("LinearAttention", onnx, in, present,
                                {onnx::test::string_attribute("update_rule", rule), integer("q_num_heads", queries),
                                 integer("kv_num_heads", kHeads)});
    add(product(y, std::max(queries, kHeads) * kSize, kWidth, 1.2));
  }

  // x += y, where h_t = a_t h_(t-1) + k_t v_t' and y_t = q_t h_t for each head, a_t in (0, 1), h [H, D, E]; for any
  // number of tokens at once: with c_t = log a_1 + .. + log a_t
  //   y = exp(c) q h_0 + (q k' * exp(c_t - c_s), s <= t) v,   h_S = exp(c_S) h_0 + (k exp(c_S - c))' v
  // `causal`: else a_t follows from the mean of all tokens of the step. `half`: the state is kept in half precision.
  void recurrence(bool causal = true, bool half = false) {
    const auto [past, present] =
        state("recurrent", {number(kHeads), number(kSize), number(kSize)}, "", half ? DType::kF16 : DType::kF32);
    const std::string before = half ? op("Cast", {past}, {integer("to", 1)}) : past;
    const std::string q = heads(linear(x_)), k = heads(linear(x_)), v = heads(linear(x_));
    const std::string gated = causal ? x_ : op("Add", {x_, op("ReduceMean", {x_, i64({1})}, {integer("keepdims", 1)})});
    const std::string gate = op("Sigmoid", {op("Add", {op("MatMul", {gated, weight({kWidth, kHeads}, 1)}), f32(1)})});
    const std::string log_a = op("Transpose", {op("Log", {gate})}, {ints("perm", {0, 2, 1})});  // [1, H, S]
    const std::string c = op("CumSum", {log_a, scalar(2)});
    const std::string sum = op("ReduceSum", {log_a, i64({2})}, {integer("keepdims", 1)});  // [1, H, 1]
    const std::string steps = op("Range", {scalar(0), tokens_, scalar(1)});
    const std::string earlier = op("LessOrEqual", {unsqueeze(steps, 0), unsqueeze(steps, 1)});
    const std::string between = op("Sub", {unsqueeze(c, 3), unsqueeze(c, 2)});  // [1, H, S, S]
    const std::string decay = op("Exp", {op("Where", {earlier, between, f32(-1e9f)})});
    const std::string scores = op("MatMul", {q, op("Transpose", {k}, {ints("perm", {0, 1, 3, 2})})});
    const std::string of_new = op("MatMul", {op("Mul", {scores, decay}), v}),
                      of_past = op("Mul", {op("MatMul", {q, before}), unsqueeze(op("Exp", {c}), 3)});
    const std::string left = op("Mul", {k, unsqueeze(op("Exp", {op("Sub", {sum, c})}), 3)});
    const std::string made = op("MatMul", {op("Transpose", {left}, {ints("perm", {0, 1, 3, 2})}), v});
    const std::string kept = op("Mul", {before, unsqueeze(op("Exp", {sum}), 3)});
    if (half)
      g_.nodes.push_back(onnx::test::node("Cast", {op("Add", {kept, made})}, {present}, {integer("to", 10)}));
    else
      g_.nodes.push_back(onnx::test::node("Add", {kept, made}, {present}));
    add(linear(joined(op("Add", {of_past, of_new}))));
  }

  // The same with a number for each channel, h_t = a_t h_(t-1) + b_t, of any number of tokens at once:
  //   h = exp(c) h_0 + sum over s <= t of exp(c_t - c_s) b_s
  // kSlice, kGather: the state, [1, 1, C] or [1, C], is cut out of h, as the last of its rows.
  enum class Left { kSum, kSlice, kGather };
  void recurrence_by_channel(Left left_by = Left::kSum) {
    const auto [past, present] = left_by == Left::kGather ? state("recurrent", {number(kWidth)})
                                                          : state("recurrent", {number(1), number(kWidth)});
    const std::string log_a = op("Log", {op("Sigmoid", {op("Add", {linear(x_), f32(1)})})}),
                      b = linear(x_);  // [1, S, C]
    const std::string c = op("CumSum", {log_a, scalar(1)});
    const std::string between = op("Sub", {unsqueeze(c, 2), unsqueeze(c, 1)});  // [1, S, S, C]
    const std::string mask = unsqueeze(unsqueeze(earlier(tokens_, false), 0), 3);
    const std::string decay = op("Exp", {op("Where", {mask, between, f32(-1e9f)})});
    const std::string made = op("ReduceSum", {op("Mul", {decay, unsqueeze(b, 1)}), i64({2})}, {integer("keepdims", 0)});
    const std::string h = op("Add", {made, op("Mul", {op("Exp", {c}), past})});
    if (left_by != Left::kSum) {
      g_.nodes.push_back(left_by == Left::kSlice
                             ? onnx::test::node("Slice", {h, i64({-1}), i64({kEnd}), i64({1})}, {present})
                             : onnx::test::node("Gather", {h, scalar(-1)}, {present}, {integer("axis", 1)}));
      add(linear(op("Mul", {h, linear(x_)})));
      return;
    }
    const std::string sum = op("ReduceSum", {log_a, i64({1})}, {integer("keepdims", 1)});  // [1, 1, C]
    const std::string left = op("ReduceSum", {op("Mul", {op("Exp", {op("Sub", {sum, c})}), b}), i64({1})});
    g_.nodes.push_back(onnx::test::node("Add", {op("Mul", {op("Exp", {sum}), past}), left}, {present}));
    add(linear(op("Mul", {h, linear(x_)})));
  }

  // x += y, Mamba-1's scan of C channels with N numbers each, of any number of tokens at once:
  //   h_t = exp(dt_t A) h_(t-1) + dt_t B_t x_t, y_t = h_t C_t + D x_t        dt, x, D [C], A [C, N], B, C [N]
  void mamba_of_channels() {
    constexpr int64_t kNumbers = 3;
    const auto [past, present] = state("ssm", {number(kWidth), number(kNumbers)});
    const std::string dt = op("Softplus", {op("Add", {linear(x_), f32(-0.5f)})}), x = linear(x_);
    const std::string a = op("Mul", {unsqueeze(dt, 3), op("Neg", {op("Exp", {weight({kWidth, kNumbers}, 0.5)})})});
    const std::string b = unsqueeze(product(x_, kWidth, kNumbers, 1.2), 2),
                      c = unsqueeze(product(x_, kWidth, kNumbers, 1.2), 2);
    const std::string added = op("Mul", {op("Mul", {unsqueeze(dt, 3), b}), unsqueeze(x, 3)});  // [1, S, C, N]
    const std::string sums = op("CumSum", {a, scalar(1)});
    const std::string between = op("Sub", {unsqueeze(sums, 2), unsqueeze(sums, 1)});  // [1, S, S, C, N]
    const std::string mask = unsqueeze(unsqueeze(unsqueeze(earlier(tokens_, false), 0), 3), 4);
    const std::string decay = op("Exp", {op("Where", {mask, between, f32(-1e9f)})});
    const std::string made = sum_of_products(decay, unsqueeze(added, 1), 2);
    const std::string h = op("Add", {made, op("Mul", {op("Exp", {sums}), unsqueeze(past, 1)})});
    g_.nodes.push_back(onnx::test::node("Gather", {h, scalar(-1)}, {present}, {integer("axis", 1)}));
    const std::string y = op("Add", {sum_of_products(h, c, -1), op("Mul", {x, weight({kWidth}, 1)})});
    add(linear(y));
  }

  // x += y, Mamba-2's scan of H heads of E values with N keys, all of which have the same B and C:
  //   h_t = exp(dt_t A) h_(t-1) + dt_t x_t B_t', y_t = h_t C_t + D x_t
  // kWhole: as onnxruntime-genai's builder has it, of all tokens of a step at once. kChunks: as transformers has it, in
  // chunks of 4 tokens, the last one padded.
  enum class Scan { kWhole, kChunks };
  void mamba(Scan scan, int64_t keys = 6) {
    const auto [past, present] = state("ssm", {number(kHeads), number(kSize), number(keys)});
    const std::string x = op("Reshape", {linear(x_), i64({0, 0, kHeads, kSize})});
    const auto repeated = [&](const std::string& rows) {
      return op("Reshape", {op("Expand", {unsqueeze(unsqueeze(rows, 2), 3), i64({1, 1, 1, kHeads, 1})}),
                            i64({0, 0, kHeads, keys})});
    };
    const std::string b = repeated(product(x_, kWidth, keys, 1.2)), c = repeated(product(x_, kWidth, keys, 1.2));
    const std::string dt = op("Softplus", {op("Add", {product(x_, kWidth, kHeads, 1), f32(-0.5f)})});
    const std::string a = op("Mul", {dt, op("Neg", {op("Exp", {weight({kHeads}, 0.5)})})});
    const std::string d = unsqueeze(weight({kHeads}, 1), 1), of_input = op("Mul", {x, unsqueeze(dt, 3)});
    const std::string y = scan == Scan::kWhole ? scan_whole(past, present, x, of_input, dt, a, b, c, d)
                                               : scan_in_chunks(past, present, x, of_input, a, b, c, d, keys);
    add(linear(op("Reshape", {y, i64({0, 0, kWidth})})));
  }

  // The same with a number for each channel, h_t = a_t h_(t-1) + b_t x_t, for steps of one token alone.
  void recurrence_of_one_token() {
    const auto [past, present] = state("recurrent", {number(1), number(kWidth)});
    const std::string kept = op("Mul", {op("Sigmoid", {linear(x_)}), past}), made = op("Mul", {linear(x_), linear(x_)});
    g_.nodes.push_back(onnx::test::node("Add", {kept, made}, {present}));
    add(linear(op("Mul", {present, linear(x_)})));
  }

  // x += the largest h of the last `rows` before the step, and of the step's up to the token; h >= 0 comes from x, and
  // the state is the last rows of h. Of a prompt in parts, rows further back are forgotten.
  void largest(int64_t rows) {
    const auto [past, present] = state("largest", {number(rows), number(kWidth)});
    const std::string both = op("Concat", {past, op("Abs", {linear(x_)})}, {integer("axis", 1)});
    g_.nodes.push_back(onnx::test::node("Slice", {both, i64({-rows}), i64({kEnd}), i64({1})}, {present}));
    const std::string all = op("Range", {scalar(0), op("Add", {tokens_, scalar(rows)}), scalar(1)}),
                      own = op("Range", {scalar(rows), op("Add", {tokens_, scalar(rows)}), scalar(1)});
    const std::string seen = op("LessOrEqual", {unsqueeze(all, 0), unsqueeze(own, 1)});  // [S, rows + S]
    const std::string chosen = op("Where", {unsqueeze(seen, 2), unsqueeze(both, 1), f32(-1)});
    add(linear(op("ReduceMax", {chosen, i64({2})}, {integer("keepdims", 0)})));
  }

  // x += 1 in steps of more than so many tokens.
  void longer_steps(int64_t tokens) { add(op("Cast", {op("Greater", {tokens_, scalar(tokens)})}, {integer("to", 1)})); }

  // How a graph may choose between rotary factors by the length of the whole.
  enum class LongRope {
    kWhere,        // between factors, by P + S
    kWhereTables,  // between tables of cosines, by a mask's extent as [1, 1] of floats
    kConstants,    // If with two constants, by a mask's extent
    kPositions,    // If with two tables of cosines by max(position_ids) + 1, the short one ends where it does
    kComputed,     // If, both branches compute alike of factors of their own
    kUnlike,       // If, one branch does more
    kMoved,        // rows of one table, further down for long ones, by position_ids
    kBlend,        // a sum of both, times a clipped number and 1 less it
    kRows,         // a row of a table by a clipped quotient of max(position_ids)
    kDynamic,      // factors that are made of the length
    kEvery,        // one or the other, by every other length
    kPast,         // by P alone
    kUnknown,      // by the largest of position_ids, of TopK
  };
  // Before attention: it turns queries and keys by tables [S, E / 2] that are other ones for more than `trained`
  // tokens.
  void long_rope(LongRope spelling, int64_t trained) {
    const int64_t half = kSize / 2, most = 256;
    std::vector<float> near, far, cosines[2], sines[2];
    for (int64_t i = 0; i < half; ++i) {
      near.push_back(std::pow(100.0f, -static_cast<float>(i) / static_cast<float>(half)));
      far.push_back(near.back() * 0.3f);
    }
    for (int kind = 0; kind < 2; ++kind)
      for (int64_t p = 0; p < most; ++p)
        for (int64_t i = 0; i < half; ++i) {
          const float angle = static_cast<float>(p) * (kind ? far : near)[static_cast<size_t>(i)];
          cosines[kind].push_back(std::cos(angle));
          sines[kind].push_back(std::sin(angle));
        }
    const auto floats = [&](std::vector<float> v, std::vector<int64_t> dims) {
      return constant(DType::kF32, dims, onnx::test::raw(v));
    };
    const bool by_position = spelling == LongRope::kPositions || spelling == LongRope::kMoved ||
                             spelling == LongRope::kRows || spelling == LongRope::kUnknown;
    const bool by_mask = spelling == LongRope::kWhereTables || spelling == LongRope::kConstants;
    std::string positions, total, past;
    if (by_position) {
      g_.inputs.push_back(onnx::test::value("position_ids", DType::kI64, {"batch", "sequence"}));
      positions = op("Reshape", {"position_ids", i64({-1})});
      total = op("Add", {op("ReduceMax", {"position_ids"}, {integer("keepdims", 0)}), scalar(1)});
    } else {
      if (by_mask) g_.inputs.push_back(onnx::test::value("attention_mask", DType::kI64, {"batch", "total"}));
      past = extent("past_key.0", 2);
      const std::string end = op("Add", {past, tokens_});
      positions = op("Range", {past, end, scalar(1)});
      total = by_mask ? extent("attention_mask", 1) : end;
    }
    const std::string is_long = op("Greater", {total, scalar(trained)});
    const auto tables_of = [&](const std::string& factors) {
      const std::string angles = op("Mul", {unsqueeze(op("Cast", {positions}, {integer("to", 1)}), 1), factors});
      cos_ = op("Cos", {angles});
      sin_ = op("Sin", {angles});
    };
    const auto branch = [&](const std::string& prefix, const std::vector<float>& factors, bool compute, float scale) {
      onnx::test::GraphText b;
      const auto add_node = [&](const std::string& type, const std::vector<std::string>& in,
                                const std::vector<std::string>& attributes = {}) {
        const std::string y = prefix + std::to_string(b.nodes.size());
        b.nodes.push_back(onnx::test::node(type, in, {y}, attributes));
        return y;
      };
      const auto number = [&](const std::vector<float>& v, const std::vector<int64_t>& dims) {
        return add_node(
            "Constant", {},
            {onnx::test::tensor_attribute("value", onnx::test::raw_tensor("", DType::kF32, dims, onnx::test::raw(v)))});
      };
      const int64_t rows = std::ssize(factors) / half;
      std::string y = number(factors, rows > 1 ? std::vector<int64_t>{rows, half} : std::vector<int64_t>{half});
      std::vector<std::string> outputs{y};
      if (compute) {
        const std::string angles = add_node("Mul", {column_, y});
        outputs = {add_node("Cos", {angles}), add_node("Sin", {angles})};
        if (scale != 1)
          for (std::string& o : outputs) o = add_node("Mul", {o, number({scale}, {})});
      }
      for (const std::string& o : outputs) b.outputs.push_back(onnx::test::bare_value(o));
      return onnx::test::graph_attribute(prefix == "t" ? "then_branch" : "else_branch", b.bytes());
    };
    switch (spelling) {
      case LongRope::kWhere:
        return tables_of(op("Where", {is_long, floats(far, {half}), floats(near, {half})}));
      case LongRope::kWhereTables: {
        const std::string length = op("Reshape", {op("Cast", {total}, {integer("to", 1)}), i64({1, 1})});
        const std::string is_short = op("LessOrEqual", {length, f32(static_cast<float>(trained))});
        cos_ = op(
            "Gather",
            {op("Where", {is_short, floats(cosines[0], {most, half}), floats(cosines[1], {most, half})}), positions});
        sin_ = op("Gather",
                  {op("Where", {is_short, floats(sines[0], {most, half}), floats(sines[1], {most, half})}), positions});
        return;
      }
      case LongRope::kMoved: {
        const std::string offset =
            op("Mul",
               {op("Cast", {op("GreaterOrEqual", {total, scalar(trained + 1)})}, {integer("to", 7)}), scalar(most)});
        const std::string rows = op("Add", {positions, offset});
        cosines[0].insert(cosines[0].end(), cosines[1].begin(), cosines[1].end());
        sines[0].insert(sines[0].end(), sines[1].begin(), sines[1].end());
        cos_ = op("Gather", {floats(cosines[0], {2 * most, half}), rows});
        sin_ = op("Gather", {floats(sines[0], {2 * most, half}), rows});
        return;
      }
      case LongRope::kBlend: {
        const std::string more = op("Sub", {op("Cast", {total}, {integer("to", 1)}), f32(static_cast<float>(trained))});
        const std::string s = op("Clip", {more, f32(0), f32(1)});
        return tables_of(op(
            "Add", {op("Mul", {floats(far, {half}), s}), op("Mul", {floats(near, {half}), op("Sub", {f32(1), s})})}));
      }
      case LongRope::kRows: {
        const std::string row = op("Min", {op("Div", {op("Sub", {total, scalar(1)}), scalar(trained)}), scalar(1)});
        near.insert(near.end(), far.begin(), far.end());
        return tables_of(op("Gather", {floats(near, {2, half}), row}));
      }
      case LongRope::kDynamic: {
        const std::string longest = op("Cast", {op("Max", {total, scalar(trained)})}, {integer("to", 1)});
        return tables_of(op("Mul", {floats(near, {half}), op("Div", {f32(static_cast<float>(trained)), longest})}));
      }
      case LongRope::kEvery:
        return tables_of(op("Where", {op("Cast", {op("Mod", {total, scalar(2)})}, {integer("to", 9)}),
                                      floats(far, {half}), floats(near, {half})}));
      case LongRope::kPast:
        return tables_of(op("Where", {op("Less", {past, scalar(trained)}), floats(near, {half}), floats(far, {half})}));
      case LongRope::kUnknown: {
        const std::string largest = name();
        g_.nodes.push_back(onnx::test::node("TopK", {positions, i64({1})}, {largest, name()}, {}, "/TopK"));
        return tables_of(
            op("Where", {op("Less", {largest, scalar(trained)}), floats(near, {half}), floats(far, {half})}));
      }
      case LongRope::kConstants: {
        const std::string factors = op("If", {is_long}, {branch("t", far, false, 1), branch("e", near, false, 1)});
        return tables_of(factors);
      }
      case LongRope::kPositions: {
        const auto gathered = [&](std::vector<float>* tables) {
          tables[0].resize(static_cast<size_t>(trained * half));
          return op(
              "Gather",
              {op("If", {is_long}, {branch("t", tables[1], false, 1), branch("e", tables[0], false, 1)}), positions});
        };
        cos_ = gathered(cosines);
        sin_ = gathered(sines);
        return;
      }
      case LongRope::kComputed:
      case LongRope::kUnlike: {
        column_ = unsqueeze(op("Cast", {positions}, {integer("to", 1)}), 1);
        cos_ = name();
        sin_ = name();
        const float scale = spelling == LongRope::kUnlike ? 1.2f : 1;
        g_.nodes.push_back(onnx::test::node("If", {is_long}, {cos_, sin_},
                                            {branch("t", far, true, scale), branch("e", near, true, 1)}, "/If"));
        return;
      }
    }
  }

  // x += attention over all tokens, with a cache.
  void attention() {
    const auto [past_key, present_key] = state("key", {number(kHeads), "past", number(kSize)}, "total");
    const auto [past_value, present_value] = state("value", {number(kHeads), "past", number(kSize)}, "total");
    const std::string q = turned(heads(linear(x_))), k = turned(heads(linear(x_)));
    g_.nodes.push_back(onnx::test::node("Concat", {past_key, k}, {present_key}, {integer("axis", 2)}));
    g_.nodes.push_back(
        onnx::test::node("Concat", {past_value, heads(linear(x_))}, {present_value}, {integer("axis", 2)}));
    const std::string past = extent(past_key, 2), total = op("Add", {past, tokens_});
    const std::string queries = op("Range", {past, total, scalar(1)}),
                      keys = op("Range", {scalar(0), total, scalar(1)});
    const std::string hidden = op("Greater", {unsqueeze(keys, 0), unsqueeze(queries, 1)});
    const std::string mask = op("Where", {hidden, f32(std::numeric_limits<float>::lowest()), f32(0)});
    const std::string scores = op("MatMul", {q, op("Transpose", {present_key}, {ints("perm", {0, 1, 3, 2})})});
    const std::string scaled = op("Mul", {scores, f32(1 / std::sqrt(static_cast<float>(kSize)))});
    const std::string p = op("Softmax", {op("Add", {scaled, mask})}, {integer("axis", -1)});
    add(linear(joined(op("MatMul", {p, present_value}))));
  }

  // The file.
  std::string bytes() {
    if (rounds_ == DType::kNone)
      g_.nodes.push_back(onnx::test::node("MatMul", {x_, weight({kWidth, kVocabulary}, 1)}, {"logits"}));
    else
      product(x_, kWidth, kVocabulary, 1, "logits");
    g_.outputs.push_back(onnx::test::value("logits", DType::kF32, {"batch", "sequence", number(kVocabulary)}));
    return onnx::test::model(g_.bytes(), {}, {{"", onnx_27_ ? 27 : 18}, {"com.microsoft", 1}});
  }

 private:
  static constexpr int64_t kEnd = std::numeric_limits<int64_t>::max();
  static std::string number(int64_t n) { return std::to_string(n); }
  static std::string integer(const std::string& name, int64_t v) { return onnx::test::int_attribute(name, v); }
  static std::string ints(const std::string& name, const std::vector<int64_t>& v) {
    return onnx::test::ints_attribute(name, v);
  }
  std::string name() { return "v" + std::to_string(count_++); }

  std::string op(const std::string& type, const std::vector<std::string>& in,
                 const std::vector<std::string>& attributes = {}) {
    const std::string y = name();
    g_.nodes.push_back(onnx::test::node(type, in, {y}, attributes, "/" + type + y));
    return y;
  }
  std::string constant(DType type, const std::vector<int64_t>& dims, const std::string& data) {
    const std::string v = name();
    g_.initializers.push_back(onnx::test::raw_tensor(v, type, dims, data));
    return v;
  }
  std::string i64(const std::vector<int64_t>& v) {
    return constant(DType::kI64, {static_cast<int64_t>(v.size())}, onnx::test::raw(v));
  }
  std::string scalar(int64_t v) { return constant(DType::kI64, {}, onnx::test::raw(std::vector<int64_t>{v})); }
  std::string f32(float v) { return constant(DType::kF32, {}, onnx::test::raw(std::vector<float>{v})); }
  // Products with it keep the size of numbers times `scale`.
  std::string weight(const std::vector<int64_t>& dims, double scale) {
    int64_t count = 1;
    for (const int64_t d : dims) count *= d;
    std::normal_distribution<float> normal(
        0, static_cast<float>(
               scale / (dims.size() == 2 && dims[0] != kVocabulary ? std::sqrt(static_cast<double>(dims[0])) : 1)));
    std::vector<float> data;
    for (int64_t i = 0; i < count; ++i) data.push_back(normal(random_));
    return constant(DType::kF32, dims, onnx::test::raw(data));
  }
  std::string linear(const std::string& x) { return product(x, kWidth, kWidth, 1.2); }
  // x [.., k] * w [k, n]; `y`: the name of the result.
  std::string product(const std::string& x, int64_t k, int64_t n, double scale, std::string y = "") {
    if (rounds_ == DType::kNone) return op("MatMul", {x, weight({k, n}, scale)});
    if (y.empty()) y = name();
    if (!rounded_.count(x)) {
      rounded_[x] = {name(), name(), name()};
      g_.nodes.push_back(
          onnx::test::node("DynamicQuantizeLinear", {x}, {rounded_[x][0], rounded_[x][1], rounded_[x][2]}));
    }
    const auto& [bytes, x_scale, x_zero] = rounded_[x];
    const bool is_signed = rounds_ == DType::kI8;
    const int64_t columns = by_column_ ? n : 1;
    std::uniform_int_distribution<int> byte(is_signed ? -128 : 0, is_signed ? 127 : 255), zero(100, 150);
    std::uniform_real_distribution<float> factor(0.5f, 1.5f);
    std::string w, zeros;
    std::vector<float> scales;
    for (int64_t i = 0; i < k * n; ++i) w += static_cast<char>(byte(random_));
    for (int64_t i = 0; i < columns; ++i) {
      zeros += static_cast<char>(is_signed ? 0 : zero(random_));
      scales.push_back(factor(random_) * static_cast<float>(scale / (74 * std::sqrt(static_cast<double>(k)))));
    }
    const std::vector<int64_t> dims = by_column_ ? std::vector<int64_t>{n} : std::vector<int64_t>{};
    const std::string sums =
        op("MatMulInteger", {bytes, constant(rounds_, {k, n}, w), x_zero, constant(rounds_, dims, zeros)});
    const std::string both = op("Mul", {x_scale, constant(DType::kF32, dims, onnx::test::raw(scales))});
    g_.nodes.push_back(onnx::test::node("Mul", {op("Cast", {sums}, {integer("to", 1)}), both}, {y}));
    return y;
  }
  std::string unsqueeze(const std::string& x, int64_t axis) { return op("Unsqueeze", {x, i64({axis})}); }
  std::string extent(const std::string& x, int64_t axis) { return op("Gather", {op("Shape", {x}), scalar(axis)}); }
  // [1, S, C] -> [1, H, S, C / H], and back.
  std::string heads(const std::string& x) {
    return op("Transpose", {op("Reshape", {x, i64({0, 0, kHeads, kSize})})}, {ints("perm", {0, 2, 1, 3})});
  }
  std::string joined(const std::string& x) {
    return op("Reshape", {op("Transpose", {x}, {ints("perm", {0, 2, 1, 3})}), i64({0, 0, kWidth})});
  }
  // [1, H, S, E], by the tables of long_rope(), if there are any.
  std::string turned(const std::string& x) {
    if (cos_.empty()) return x;
    const std::string a = op("Slice", {x, i64({0}), i64({kSize / 2}), i64({3})}),
                      b = op("Slice", {x, i64({kSize / 2}), i64({kSize}), i64({3})});
    const std::string first = op("Sub", {op("Mul", {a, cos_}), op("Mul", {b, sin_})}),
                      second = op("Add", {op("Mul", {b, cos_}), op("Mul", {a, sin_})});
    return op("Concat", {first, second}, {integer("axis", 3)});
  }
  // Each head's row of length 1.
  std::string unit(const std::string& x) {
    const std::string rows = op("Reshape", {x, i64({0, 0, kHeads, kSize})});
    return op("Reshape", {op("LpNormalization", {rows}, {integer("axis", -1)}), i64({0, 0, kWidth})});
  }
  std::string fused(const std::string& type, bool onnx, const std::vector<std::string>& in, const std::string& present,
                    const std::vector<std::string>& attributes) {
    const std::string y = name();
    onnx_27_ = onnx_27_ || onnx;
    g_.nodes.push_back(
        onnx::test::node(type, in, {y, present}, attributes, "/" + type + y, onnx ? "" : "com.microsoft"));
    return y;
  }
  // [n, n]: whether column j stands before row i, or is i itself.
  std::string earlier(const std::string& n, bool strictly) {
    const std::string places = op("Range", {scalar(0), n, scalar(1)});
    return op(strictly ? "Greater" : "GreaterOrEqual", {unsqueeze(places, 1), unsqueeze(places, 0)});
  }
  std::string transposed(const std::string& x, const std::vector<int64_t>& perm) {
    return op("Transpose", {x}, {ints("perm", perm)});
  }
  std::string sum_of_products(const std::string& x, const std::string& y, int64_t axis) {
    return op("ReduceSum", {op("Mul", {x, y}), i64({axis})}, {integer("keepdims", 0)});
  }

  // x, of_input = dt x [1, S, H, E], dt and a [1, S, H], b and c [1, S, H, N], d [H, 1] -> [1, S, H, E]
  std::string scan_whole(const std::string& past, const std::string& present, const std::string& x,
                         const std::string& of_input, const std::string& dt, const std::string& a, const std::string& b,
                         const std::string& c, const std::string& d) {
    const std::vector<int64_t> heads_first{0, 2, 1, 3}, turned{0, 1, 3, 2};
    const std::string sums = transposed(op("CumSum", {a, scalar(1)}), {0, 2, 1});  // [1, H, S]
    const std::string keys = transposed(b, heads_first), queries = transposed(c, heads_first),
                      values = transposed(of_input, heads_first), inputs = transposed(x, heads_first);
    const std::string hidden = op("Where", {earlier(tokens_, false), f32(0), f32(-1e9f)});
    const std::string between = op("Sub", {unsqueeze(sums, 3), unsqueeze(sums, 2)});
    const std::string decay = op("Exp", {op("Add", {between, hidden})});
    const std::string of_new =
        op("MatMul", {op("Mul", {op("MatMul", {queries, transposed(keys, turned)}), decay}), values});
    const std::string of_past =
        op("Mul", {op("MatMul", {past, transposed(queries, turned)}), unsqueeze(op("Exp", {sums}), 2)});
    const std::string last = op("Slice", {sums, i64({-1}), i64({kEnd}), i64({-1})});
    const std::string left = op("Mul", {transposed(dt, {0, 2, 1}), op("Exp", {op("Sub", {last, sums})})});
    const std::string made = op("MatMul", {transposed(inputs, turned), op("Mul", {keys, unsqueeze(left, 3)})});
    g_.nodes.push_back(onnx::test::node("Add", {op("Mul", {past, unsqueeze(op("Exp", {last}), 3)}), made}, {present}));
    const std::string y =
        op("Add", {op("Add", {of_new, transposed(of_past, turned)}), op("Mul", {unsqueeze(d, 1), inputs})});
    return transposed(y, heads_first);
  }

  // Exp of x [.., n] summed between two places: [.., n, n].
  std::string decays_between(const std::string& x, int64_t rank, const std::string& n) {
    const std::string rows = op("Where", {earlier(n, true), unsqueeze(x, rank), f32(0)});
    const std::string sums = op("CumSum", {rows, scalar(rank - 1)});
    return op("Exp", {op("Where", {earlier(n, false), sums, f32(-std::numeric_limits<float>::infinity())})});
  }

  std::string scan_in_chunks(const std::string& past, const std::string& present, const std::string& x,
                             const std::string& of_input, const std::string& a, const std::string& b,
                             const std::string& c, const std::string& d, int64_t numbers) {
    constexpr int64_t kChunk = 4;
    const std::string size = scalar(kChunk);
    const std::string more =
        op("Unsqueeze", {op("Mod", {op("Sub", {size, op("Mod", {tokens_, size})}), size}), i64({0})});
    const auto padded = [&](const std::string& rows, size_t rank) {
      const std::vector<int64_t> none(rank, 0), others(rank - 2, 0);
      const std::string pads = op("Concat", {i64(none), i64({0}), more, i64(others)}, {integer("axis", 0)});
      return op("Pad", {rows, pads});
    };
    const auto cut = [&](const std::string& rows, std::vector<int64_t> dims) {
      const size_t rank = dims.size() + 2;
      dims.insert(dims.begin(), {1, -1, kChunk});
      return op("Reshape", {padded(rows, rank), i64(dims)});
    };
    const std::string skipped = op("Mul", {d, padded(x, 4)});
    const std::string values = cut(of_input, {kHeads, kSize}), keys = cut(b, {kHeads, numbers}),
                      queries = cut(c, {kHeads, numbers});
    const std::string decay = transposed(cut(a, {kHeads}), {0, 3, 1, 2}), sums = op("CumSum", {decay, scalar(3)});
    const std::string scores = sum_of_products(unsqueeze(queries, 3), unsqueeze(keys, 2), -1);
    const std::string weights = op("Mul", {scores, transposed(decays_between(decay, 4, size), {0, 2, 3, 4, 1})});
    const std::string inside = sum_of_products(unsqueeze(weights, 5), unsqueeze(values, 2), 3);
    const std::string last = op("Slice", {sums, i64({-1}), i64({kEnd}), i64({3})});
    const std::string left = unsqueeze(transposed(op("Exp", {op("Sub", {last, sums})}), {0, 2, 3, 1}), 4);
    const std::string made = sum_of_products(unsqueeze(op("Mul", {keys, left}), 4), unsqueeze(values, 5), 2);
    const std::string states = op("Concat", {unsqueeze(past, 1), made}, {integer("axis", 1)});
    const std::string ends =
        op("Pad", {op("Gather", {sums, scalar(-1)}, {integer("axis", 3)}), i64({0, 0, 1, 0, 0, 0})});
    const std::string count = op("Add", {extent(values, 1), scalar(1)});
    const std::string across = transposed(decays_between(ends, 3, count), {0, 3, 2, 1});
    const std::string next =
        sum_of_products(unsqueeze(unsqueeze(across, 4), 5), unsqueeze(states, 2), 1);  // [1, chunks + 1, H, E, N]
    g_.nodes.push_back(
        onnx::test::node("Gather", {next, scalar(-1)}, {present}, {integer("axis", 1)}, "/Gather" + next));
    const std::string before = op("Slice", {next, i64({0}), i64({-1}), i64({1})});
    const std::string of_past = op("Mul", {sum_of_products(unsqueeze(queries, 4), unsqueeze(before, 2), -1),
                                           unsqueeze(transposed(op("Exp", {sums}), {0, 2, 3, 1}), 4)});
    const std::string y =
        op("Add", {op("Reshape", {op("Add", {inside, of_past}), i64({1, -1, kHeads, kSize})}), skipped});
    return op("Slice", {y, i64({0}), op("Unsqueeze", {tokens_, i64({0})}), i64({1})});
  }

  void add(const std::string& y) { x_ = op("Tanh", {op("Add", {x_, y})}); }

  // x [1, C, rows], from `begin` on.
  std::string slice_rows(const std::string& x, int64_t begin, int64_t end, std::string y = "") {
    if (y.empty()) y = name();
    g_.nodes.push_back(onnx::test::node("Slice", {x, i64({begin}), i64({end}), i64({2})}, {y}, {}, "/Slice" + y));
    return y;
  }
  std::string convolve(const std::string& x, int64_t groups, int64_t taps = kTaps) {
    return op("Conv", {x, weight({kWidth, kWidth / groups, taps}, 0.7), weight({kWidth}, 0.2)},
              {integer("group", groups), ints("kernel_shape", {taps})});
  }
  // x += y C, y [1, C, S]
  void mix(const std::string& y) {
    add(linear(op("Mul", {op("Transpose", {y}, {ints("perm", {0, 2, 1})}), linear(x_)})));
  }

  // Input and output of a state of the next layer; "past" among the dims of the input is `grown` in the output.
  std::pair<std::string, std::string> state(const std::string& kind, std::vector<std::string> dims,
                                            const std::string& grown = "", DType type = DType::kF32) {
    const std::string layer = std::to_string(states_++), past = "past_" + kind + "." + layer,
                      present = "present_" + kind + "." + layer;
    dims.insert(dims.begin(), "batch");
    g_.inputs.push_back(onnx::test::value(past, type, dims));
    for (std::string& d : dims)
      if (d == "past") d = grown;
    g_.outputs.push_back(onnx::test::value(present, type, dims));
    return {past, present};
  }

  onnx::test::GraphText g_;
  std::mt19937 random_{7};
  std::string x_, tokens_, cos_, sin_, column_;
  int count_ = 0, states_ = 0;
  DType rounds_ = DType::kNone;
  bool by_column_ = false, onnx_27_ = false;
  std::map<std::string, std::array<std::string, 3>> rounded_;  // bytes, scale and zero point
};

}  // namespace situ::test
