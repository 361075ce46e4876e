// Speed of what stands beside products and attention: on one token, which is mostly the price of a call, and on 512.
#include "kernels/kernel_bench.h"

namespace situ {
namespace {

constexpr int64_t kHidden = 576, kInner = 1536, kVocabulary = 49152, kHeads = 9, kKvHeads = 3, kSize = 64, kKeys = 2048;
constexpr double kMostMs = 60;  // of all runs of a case

std::string str(const std::vector<int64_t>& dims) {
  std::string text;
  for (const int64_t d : dims) text += (text.empty() ? "[" : ",") + std::to_string(d);
  return text.empty() ? "[]" : text + "]";
}

// Integers first, first + step, first + 2 step .., modulo `limit`.
Buffer integers(const std::vector<int64_t>& dims, int64_t first, int64_t step, int64_t limit) {
  Buffer b(DType::kI64, dims);
  for (int64_t i = 0; i < b.view.count(); ++i) b.view.as<int64_t>()[i] = (first + i * step) % limit;
  return b;
}

Buffer bools(const std::vector<int64_t>& dims) {
  Buffer b(DType::kBool, dims);
  for (int64_t i = 0; i < b.view.count(); ++i) b.view.as<uint8_t>()[i] = i % 3 != 0;
  return b;
}

std::vector<int64_t> shape_of(const View& v) { return {v.dims, v.dims + v.rank}; }

double bytes_of(const View& v) { return static_cast<double>(v.count()) * dtype_bits(v.type) / 8; }

class Others {
 public:
  explicit Others(Bench& bench) : bench_(bench) {}

  void elements() {
    for (const int64_t rows : {1, 512}) {
      for (const auto& [kind, name] : {std::pair{UnaryKind::kSilu, "silu"},
                                       {UnaryKind::kGeluTanh, "gelu tanh"},
                                       {UnaryKind::kGeluErf, "gelu erf"},
                                       {UnaryKind::kTanh, "tanh"},
                                       {UnaryKind::kSigmoid, "sigmoid"},
                                       {UnaryKind::kExp, "exp"},
                                       {UnaryKind::kErf, "erf"},
                                       {UnaryKind::kSqrt, "sqrt"},
                                       {UnaryKind::kNeg, "neg"}})
        for (const DType type : {DType::kF32, DType::kF16}) {
          if (type == DType::kF16 && kind != UnaryKind::kSilu) continue;
          const UnaryParams params{kind};
          const Buffer x(type, {rows, kInner}), y(type, {rows, kInner});
          time(&KernelTable::unary, "unary", name, {x.view}, {y.view}, &params);
        }
      const Buffer a(DType::kF32, {rows, kInner}), b(DType::kF32, {rows, kInner}), c(DType::kF32, {kInner}),
          y(DType::kF32, {rows, kInner}), half(DType::kF16, {rows, kInner});
      for (const auto& [kind, name] : {std::pair{BinaryKind::kAdd, "add"},
                                       {BinaryKind::kMul, "mul"},
                                       {BinaryKind::kDiv, "div"},
                                       {BinaryKind::kSiluMul, "silu mul"}}) {
        const BinaryParams params{kind};
        time(&KernelTable::binary, "binary", name, {a.view, b.view}, {y.view}, &params);
      }
      const BinaryParams mul{BinaryKind::kMul};
      time(&KernelTable::binary, "binary", "mul by a row", {a.view, c.view}, {y.view}, &mul);
      const Buffer keep = bools({rows, kInner});
      time(&KernelTable::where, "where", "", {keep.view, a.view, b.view}, {y.view}, nullptr);
      const CastParams cast{true};
      time(&KernelTable::cast, "cast", "f32 to f16", {a.view}, {half.view}, &cast);
      time(&KernelTable::cast, "cast", "f16 to f32", {half.view}, {y.view}, &cast);
      const ClipParams clip{-1, 1};
      time(&KernelTable::clip, "clip", "", {a.view}, {y.view}, &clip);
    }
  }

  void axes() {
    for (const int64_t rows : {1, 512}) {
      const Buffer x(DType::kF32, {rows, kHidden}), y(DType::kF32, {rows, kHidden}), scale(DType::kF32, {kHidden}),
          bias(DType::kF32, {kHidden}), one(DType::kF32, {rows, 1});
      for (const auto& [kind, name] : {std::pair{ReduceKind::kMean, "mean"},
                                       {ReduceKind::kSumSquare, "sum of squares"},
                                       {ReduceKind::kMax, "max"}}) {
        const ReduceParams params{kind, 2, true};
        time(&KernelTable::reduce, "reduce", name, {x.view}, {one.view}, &params);
      }
      const NormParams norm{1, 1e-5f};
      time(&KernelTable::layer_norm, "layer_norm", "", {x.view, scale.view, bias.view}, {y.view}, &norm);
      const LpNormParams lp{1, 2};
      time(&KernelTable::lp_norm, "lp_norm", "", {x.view}, {y.view}, &lp);
      const int64_t keys = rows == 1 ? kKeys : rows;
      const Buffer scores(DType::kF32, {kHeads, rows, keys}), weights(DType::kF32, {kHeads, rows, keys});
      const SoftmaxParams softmax{2, false, false};
      time(&KernelTable::softmax, "softmax", "", {scores.view}, {weights.view}, &softmax);
      const Buffer mask = integers({1, rows}, 1, 0, 2), positions(DType::kI64, {1, rows}),
                   axis = integers({1}, 1, 0, 2);
      const Buffer pixels(DType::kF32, {1, 3, 32, 32}), taps(DType::kF32, {64, 3, 4, 4}),
          patches(DType::kF32, {1, 64, 8, 8});
      const ConvParams conv{2, 1, {4, 4, 1}, {1, 1, 1}, {0, 0, 0}};
      time(&KernelTable::conv, "conv", "patches", {pixels.view, taps.view}, {patches.view}, &conv);
      const PoolParams pool{2, {4, 4, 1}, {4, 4, 1}, {1, 1, 1}, {}, {}, true, false};
      time(&KernelTable::pool, "pool", "mean of 4 x 4", {patches.view}, {Buffer(DType::kF32, {1, 64, 2, 2}).view},
           &pool);
      Buffer bytes(DType::kU8, shape_of(pixels.view)), byte_taps(DType::kU8, shape_of(taps.view)),
          sums(DType::kI32, shape_of(patches.view)), byte_scale(DType::kF32, {}), byte_zero(DType::kU8, {});
      time(&KernelTable::conv_integer, "conv_integer", "patches", {bytes.view, byte_taps.view}, {sums.view}, &conv);
      time(&KernelTable::dynamic_quantize_linear, "dynamic_quantize_linear", "", {pixels.view},
           {bytes.view, byte_scale.view, byte_zero.view}, nullptr);
      const Buffer channels(DType::kF32, {1, rows + 3, kHidden}), short_taps(DType::kF32, {4, kHidden}),
          convolved(DType::kF32, {1, rows, kHidden});
      View all = channels.view, out = convolved.view;  // [1, C, rows] of rows side by side
      for (View* v : {&all, &out}) {
        std::swap(v->dims[1], v->dims[2]);
        std::swap(v->strides[1], v->strides[2]);
      }
      View last = all;
      last.data += 3 * all.strides[2] * 4;
      last.dims[2] = rows;
      time(&KernelTable::causal_conv, "causal_conv", "4 taps", {all, last, short_taps.view}, {out}, nullptr);
      const LinearAttentionParams linear{16, 16, 16, 1, true, false};
      const Buffer q(DType::kF32, {1, rows, 2048}), k(DType::kF32, {1, rows, 2048}), v(DType::kF32, {1, rows, 2048}),
          past(DType::kF32, {1, 16, 128, 128}), gates(DType::kF32, {1, rows, 16}), o(DType::kF32, {1, rows, 2048}),
          present(DType::kF32, {1, 16, 128, 128});
      time(&KernelTable::linear_attention, "linear_attention", "16 states of 128 x 128",
           {q.view, k.view, v.view, past.view, gates.view, gates.view}, {o.view, present.view}, &linear);
      const CumSumParams cumsum{false, false};
      time(&KernelTable::cumsum, "cumsum", "", {mask.view, axis.view}, {positions.view}, &cumsum);
    }
    const Buffer logits(DType::kF32, {1, kVocabulary}), id(DType::kI64, {1, 1}), best(DType::kF32, {1, 50}),
        ids(DType::kI64, {1, 50});
    const ArgReduceParams arg{1, true, false, true};
    time(&KernelTable::arg_reduce, "arg_reduce", "", {logits.view}, {id.view}, &arg);
    const TopKParams top{1, true, true};
    time(&KernelTable::top_k, "top_k", "k=50", {logits.view}, {best.view, ids.view}, &top);
  }

  void indices() {
    const Buffer table(DType::kF32, {kVocabulary, kHidden}), digits(DType::kU8, {kVocabulary, kHidden / 2}),
        scales(DType::kF32, {kVocabulary, kHidden / 32});
    for (const int64_t rows : {1, 512}) {
      const Buffer ids = integers({rows}, 7, 4099, kVocabulary), tuples = integers({rows, 1}, 7, 4099, kVocabulary),
                   y(DType::kF32, {rows, kHidden});
      const double moved = 2 * bytes_of(y.view);
      const AxisParams axis{0};
      time(&KernelTable::gather, "gather", "rows of a table", {table.view, ids.view}, {y.view}, &axis, moved);
      const GatherNdParams nd{0};
      time(&KernelTable::gather_nd, "gather_nd", "rows of a table", {table.view, tuples.view}, {y.view}, &nd, moved);
      const GatherBlockQuantizedParams blocks{4, 32, 0, 1, true, 8};
      time(&KernelTable::gather_block_quantized, "gather_block_quantized", "rows of a table",
           {digits.view, ids.view, scales.view}, {y.view}, &blocks, moved / 2 * 1.25);
      const Buffer x(DType::kF32, {rows, kHidden}), places = integers({rows, kHidden}, 0, 7, kHidden);
      const AxisParams last{1};
      time(&KernelTable::gather_elements, "gather_elements", "", {x.view, places.view}, {y.view}, &last);
      // Rows of a state, in place: what lies between is not touched.
      const Buffer state(DType::kF32, {kKeys, kKvHeads * kSize}),
          row = integers({rows, 1}, 5, 1, kKeys), column = integers({rows, kKvHeads * kSize}, 0, 1, kKeys),
          update(DType::kF32, {rows, kKvHeads * kSize});
      const ScatterParams scatter{0, ScatterKind::kNone};
      time(&KernelTable::scatter_nd, "scatter_nd", "rows, in place", {state.view, row.view, update.view}, {state.view},
           &scatter, 2 * bytes_of(update.view));
      time(&KernelTable::scatter_elements, "scatter_elements", "in place", {state.view, column.view, update.view},
           {state.view}, &scatter, 2 * bytes_of(update.view) + bytes_of(column.view));
    }
  }

  void generated() {
    const Buffer square(DType::kF32, {512, 512}), other(DType::kF32, {512, 512}),
        zero = integers({1}, 0, 0, 1), one = integers({1}, 1, 0, 2), limit = integers({1}, kKeys, 0, kKeys + 1);
    FillParams fill{DType::kF32, {}};
    time(&KernelTable::fill, "fill", "", {}, {square.view}, &fill);
    const Buffer positions(DType::kI64, {kKeys});
    time(&KernelTable::range, "range", "", {scalar(zero), scalar(limit), scalar(one)}, {positions.view}, nullptr);
    const TriluParams trilu{true};
    time(&KernelTable::trilu, "trilu", "", {square.view, scalar(one)}, {other.view}, &trilu);
    const EyeLikeParams eye{0};
    time(&KernelTable::eye_like, "eye_like", "", {square.view}, {other.view}, &eye);
    const Buffer ids = integers({512}, 0, 5, 64), depth = integers({1}, 64, 0, 65), values(DType::kF32, {2}),
                 hot(DType::kF32, {512, 64});
    const AxisParams axis{1};
    time(&KernelTable::one_hot, "one_hot", "", {ids.view, scalar(depth), values.view}, {hot.view}, &axis);
    const Buffer mask = bools({512, 64}), places(DType::kI64, {2, 512 * 64 - (512 * 64 + 2) / 3}),
                 dims(DType::kI64, {2});
    time(&KernelTable::nonzero, "nonzero", "", {mask.view}, {places.view}, nullptr);
    const ShapeParams shape{0, 2, false};
    time(&KernelTable::shape, "shape", "", {square.view}, {dims.view}, &shape, bytes_of(dims.view));
  }

  void moved() {
    for (const int64_t rows : {1, 512}) {
      const Buffer x(DType::kF32, {rows, kHeads, kSize}), y(DType::kF32, {rows, kHeads, kSize}),
          heads(DType::kF32, {kHeads, rows, kSize});
      View turned = x.view;
      std::swap(turned.dims[0], turned.dims[1]);
      std::swap(turned.strides[0], turned.strides[1]);
      time(&KernelTable::move, "move", "", {x.view}, {y.view}, nullptr);
      time(&KernelTable::move, "move", "heads in front of tokens", {turned}, {heads.view}, nullptr);
      const Buffer kv(DType::kF32, {kKvHeads, 1, rows, kSize}),
          repeated(DType::kF32, {kKvHeads, kHeads / kKvHeads, rows, kSize}), times(DType::kI64, {4});
      time(&KernelTable::move_tile, "move_tile", "heads", {kv.view, times.view}, {repeated.view}, nullptr,
           bytes_of(kv.view) + bytes_of(repeated.view));
      PadParams pad{0, true, {}, 0};
      pad.before[0] = 16;
      const Buffer padded(DType::kF32, {rows + 32, kHeads, kSize});
      time(&KernelTable::move_pad, "move_pad", "16 rows on either side", {x.view}, {padded.view}, &pad);
    }
  }

  // What is fused with products, and what lays out their weights.
  void weights() {
    const bool packs =
        bench_.wants("pack_nbits") || bench_.wants("packed_matmul") || bench_.wants("packed_projections");
    for (const int64_t rows : {1, 512}) {
      if (!packs) break;
      const Buffer x(DType::kF32, {rows, kHidden}), inner(DType::kF32, {rows, kInner}), norm(DType::kF32, {kHidden});
      const PackedMatMulParams gated{kHidden, kInner, 4, 32, 4, true, ZeroPoints::kMiddle, UnaryKind::kSilu, 1e-5f},
          down{kInner, kHidden, 4, 32, 4, true, ZeroPoints::kMiddle};
      const Buffer up = packed(gated), gate = packed(gated), back = packed(down);
      const double products = 2.0 * static_cast<double>(rows * kHidden * kInner);
      time(&KernelTable::packed_matmul, "packed_matmul", "level=4 norm, silu of a gate",
           {x.view, up.view, {}, {}, norm.view, gate.view}, {inner.view}, &gated, 0, 2 * products);
      time(&KernelTable::packed_matmul, "packed_matmul", "level=4 added to", {inner.view, back.view, {}, x.view},
           {x.view}, &down, 0, products);
      const PackedProjectionsParams qkv{gated, 3, {kHidden, kKvHeads * kSize, kKvHeads * kSize}, {true, true, true}};
      std::vector<View> in = {x.view, norm.view};
      std::vector<Buffer> memory;
      std::vector<View> out;
      memory.reserve(6);
      int64_t columns = 0;
      for (int i = 0; i < qkv.count; ++i) {
        PackedMatMulParams one = gated;
        one.n = qkv.n[i];
        columns += one.n;
        memory.push_back(packed(one));
        in.push_back(memory.back().view);
        in.push_back({});
        memory.emplace_back(DType::kF32, std::vector<int64_t>{rows, one.n});
        out.push_back(memory.back().view);
      }
      time(&KernelTable::packed_projections, "packed_projections", "level=4 norm, q k v", in, out, &qkv, 0,
           2.0 * static_cast<double>(rows * kHidden * columns));
    }
    if (packs) {
      const PackedMatMulParams product{kHidden, kInner, 4, 32, 4, true, ZeroPoints::kMiddle};
      const PackedLayout layout(kInner, kHidden, 4, 32, true, ZeroPoints::kMiddle);
      const PackNBitsParams params{product, 0, layout.units()};
      const Buffer q(DType::kU8, {kInner, kHidden / 32, 16}), scales(DType::kF32, {kInner, kHidden / 32}),
          to = packed(product);
      time(&KernelTable::pack_nbits, "pack_nbits", "", {q.view, scales.view, {}}, {to.view}, &params);
    }
    const DenseMatMulParams dense{kHidden, kInner};
    const PackDenseParams pack{dense, 0, kHidden, 0, (kInner + kDensePanelColumns - 1) / kDensePanelColumns};
    const Buffer w(DType::kF32, {kHidden, kInner}), to(DType::kF32, {dense.packed_count()});
    time(&KernelTable::pack_dense, "pack_dense", "", {w.view}, {to.view}, &pack);
    const Buffer bytes(DType::kI8, {kInner, kHidden}), rows(DType::kF32, {kInner}),
        floats(DType::kF32, {kInner, kHidden});
    const DequantizeParams dequantize{0, 0};
    time(&KernelTable::dequantize_linear, "dequantize_linear", "a scale for each row", {bytes.view, rows.view},
         {floats.view}, &dequantize);
    const QuantizeParams quantize{{0, 0}, -128, 127};
    time(&KernelTable::quantize_linear, "quantize_linear", "a scale for each row", {floats.view, rows.view},
         {bytes.view}, &quantize);
    time(&KernelTable::round_linear, "round_linear", "a scale for each row", {floats.view, rows.view}, {floats.view},
         &quantize);
    const Buffer scores(DType::kF32, {49152}), sum(DType::kF64, {1}), count(DType::kI64, {1}),
        above(DType::kU32, {49152 + kAboveSlack}), ids(DType::kU32, {49152}), words(DType::kU32, {49152});
    for (int64_t i = 0; i < 49152; ++i) ids.view.as<uint32_t>()[i] = static_cast<uint32_t>(i);
    const Buffer terms(DType::kF32, {49152}), of_terms(DType::kF32, {1});
    const ExpTermsParams exp{0.8f, 1};
    time(&KernelTable::exp_terms, "exp_terms", "", {scores.view}, {terms.view, of_terms.view}, &exp);
    const AboveParams least{0.5f};
    time(&KernelTable::sum_above, "sum_above", "", {scores.view}, {sum.view}, &least);
    time(&KernelTable::list_above, "list_above", "", {scores.view}, {above.view, count.view}, &least);
    const RandomWordsParams random{1, 2};
    time(&KernelTable::random_words, "random_words", "", {ids.view}, {words.view}, &random);
    if (bench_.wants("read_stream")) {
      const Buffer much(DType::kU8, {int64_t{64} << 20}), sums(DType::kU32, {bench_.threads()});
      time(&KernelTable::read_stream, "read_stream", "", {much.view}, {sums.view}, nullptr);
    }
  }

 private:
  static Buffer packed(const PackedMatMulParams& p) {
    return Buffer(DType::kU8, {PackedLayout(p.n, p.k, p.bits, p.block, p.half_scales, p.zeros).bytes()});
  }
  static View scalar(const Buffer& b) {
    View v = b.view;
    v.rank = 0;
    return v;
  }

  // `bytes` that must be read or written; 0: all of the operands.
  void time(KernelFn KernelTable::* kernel, const char* name, const std::string& what, const std::vector<View>& in,
            const std::vector<View>& out, const void* params, double bytes = 0, double flops = 0) {
    if (!bench_.wants(name)) return;
    KernelCall call = make_call(in, out.data(), params);
    call.out_count = static_cast<int>(out.size());
    double all = 0;
    for (const auto* views : {&in, &out})
      for (const View& v : *views) all += v.present() ? bytes_of(v) : 0;
    const View& shown = in.empty() ? out[0] : in[0];
    const double ms = bench_.time(kernel, {call}, kMostMs);
    bench_.report(
        std::string(name) + (what.empty() ? "" : " " + what) + " " + str({shown.dims, shown.dims + shown.rank}), ms,
        bytes > 0 ? bytes : all, flops);
  }

  Bench& bench_;
};

}  // namespace

void bench_others(Bench& bench) {
  Others others(bench);
  others.elements();
  others.axes();
  others.indices();
  others.generated();
  others.moved();
  others.weights();
}

}  // namespace situ
