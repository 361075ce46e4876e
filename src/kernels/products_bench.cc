// Speed of products and attention on the shapes of a small language model (SmolLM2-135M).
#include "kernels/attention_blocks.h"
#include "kernels/integer_layout.h"
#include "kernels/kernel_bench.h"

namespace situ {
namespace {

double bench_nbits(Bench& bench, int64_t m, int64_t k, int64_t n, int bits, int level, bool zeros, bool print = true) {
  if (!bench.wants("matmul_nbits")) return 0;
  const int block = 32;
  const int64_t blocks = (k + block - 1) / block;
  Buffer a(DType::kF32, {m, k}), q(DType::kU8, {n, blocks, block * bits / 8}), scales(DType::kF32, {n, blocks}),
      zero(DType::kU8, {n, (blocks * bits + 7) / 8}), y(DType::kF32, {m, n});
  const MatMulNBitsParams params{k, n, bits, block, level, false};
  std::vector<View> in = {a.view, q.view, scales.view};
  if (zeros) in.push_back(zero.view);
  const double ms = bench.time(&KernelTable::matmul_nbits, {make_call(in, &y.view, &params)});
  const double bytes = static_cast<double>(n * blocks) * (block * bits / 8 + 4) + static_cast<double>(m * (n + k) * 4);
  if (print) {
    bench.report("matmul_nbits M=" + std::to_string(m) + " K=" + std::to_string(k) + " N=" + std::to_string(n) +
                     " bits=" + std::to_string(bits) + " level=" + std::to_string(level) + (zeros ? " zeros" : ""),
                 ms, bytes, 2.0 * static_cast<double>(m * n * k));
  }
  return ms;
}

void bench_packed(Bench& bench, int64_t m, int64_t k, int64_t n, int bits, int level, ZeroPoints zeros) {
  if (!bench.wants("packed_matmul")) return;
  const PackedMatMulParams params{k, n, bits, 32, level, true, zeros};
  const PackedLayout layout(n, k, bits, 32, true, zeros);
  Buffer a(DType::kF32, {m, k}), w(DType::kU8, {layout.bytes()}), y(DType::kF32, {m, n});
  const std::vector<View> in = {a.view, w.view};
  const double ms = bench.time(&KernelTable::packed_matmul, {make_call(in, &y.view, &params)});
  bench.report("packed_matmul M=" + std::to_string(m) + " K=" + std::to_string(k) + " N=" + std::to_string(n) +
                   " bits=" + std::to_string(bits) + " level=" + std::to_string(level) +
                   (zeros == ZeroPoints::kMiddle     ? ""
                    : zeros == ZeroPoints::kIntegers ? " zeros"
                                                     : " float zeros"),
               ms, static_cast<double>(layout.bytes() + m * (n + k) * 4), 2.0 * static_cast<double>(m * n * k));
}

const char* short_name(DType type) {
  return type == DType::kF32 ? "f32" : type == DType::kF16 ? "f16" : type == DType::kBF16 ? "bf16" : "q8";
}

void bench_matmul(Bench& bench, int64_t m, int64_t k, int64_t n, bool transposed, DType type = DType::kF32) {
  if (!bench.wants("matmul")) return;
  Buffer a(DType::kF32, {m, k}), b(type, {k, n}), y(DType::kF32, {m, n});
  if (transposed) {
    b.view.strides[0] = 1;
    b.view.strides[1] = k;
  }
  const MatMulParams params;
  const std::vector<View> in = {a.view, b.view};
  const double ms = bench.time(&KernelTable::matmul, {make_call(in, &y.view, &params)});
  bench.report(std::string("matmul ") + short_name(type) + " M=" + std::to_string(m) + " K=" + std::to_string(k) +
                   " N=" + std::to_string(n) + (transposed ? " B transposed" : " B row-major"),
               ms, static_cast<double>(k * n * dtype_bytes(type) + m * (n + k) * 4),
               2.0 * static_cast<double>(m * n * k));
}

void bench_dense(Bench& bench, int64_t m, int64_t k, int64_t n, DType type = DType::kF32) {
  if (!bench.wants("dense_matmul")) return;
  const DenseMatMulParams params{k, n};
  Buffer x(DType::kF32, {m, k}), w(type, {params.packed_count()}), y(DType::kF32, {m, n});
  const std::vector<View> in = {x.view, w.view};
  const double ms = bench.time(&KernelTable::dense_matmul, {make_call(in, &y.view, &params)});
  bench.report(std::string("dense_matmul ") + short_name(type) + " M=" + std::to_string(m) + " K=" + std::to_string(k) +
                   " N=" + std::to_string(n),
               ms, static_cast<double>(k * n * dtype_bytes(type) + m * (n + k) * 4),
               2.0 * static_cast<double>(m * n * k));
}

// One of 32 experts for each choice of m tokens.
void bench_experts(Bench& bench, int64_t m, int64_t choices, int64_t k, int64_t n, int bits, int level) {
  constexpr int64_t kExperts = 32;
  const std::string shape =
      " M=" + std::to_string(m) + "x" + std::to_string(choices) + " K=" + std::to_string(k) + " N=" + std::to_string(n);
  Buffer x(DType::kF32, {m, k}), index(DType::kI64, {m, choices}), y(DType::kF32, {m, choices, n});
  for (int64_t i = 0; i < m * choices; ++i) index.view.as<int64_t>()[i] = i * 7 % kExperts;
  const double read = static_cast<double>(std::min(kExperts, m * choices)), rows = static_cast<double>(m * choices);
  const auto time = [&](const char* name, KernelFn KernelTable::* kernel, const void* params, const View& w,
                        double bytes) {
    if (!bench.wants(name)) return;
    const std::vector<View> in = {x.view, index.view, View{}, w};
    const double ms = bench.time(kernel, {make_call(in, &y.view, params)});
    bench.report(name + shape + (bits > 0 ? " bits=" + std::to_string(bits) + " level=" + std::to_string(level) : ""),
                 ms, read * bytes + rows * static_cast<double>((k + n) * 4), 2 * rows * static_cast<double>(n * k));
  };
  if (bits == 0) {
    const DenseExpertsParams dense{kExperts, {k, n}};
    const ExpertMatMulParams stored{kExperts, k, n, true, 0, 0};
    Buffer w(DType::kBF16, {kExperts, n, k});
    View packed = w.view;
    packed.rank = 1;
    packed.dims[0] = kExperts * dense.product.packed_count();
    packed.strides[0] = 1;
    const double bytes = static_cast<double>(n * k * 2);
    time("dense_experts", &KernelTable::dense_experts, &dense, packed, bytes);
    time("expert_matmul", &KernelTable::expert_matmul, &stored, w.view, bytes);
    return;
  }
  const PackedExpertsParams params{kExperts, {k, n, bits, 32, level, true, ZeroPoints::kMiddle}};
  PackedMatMulParams all = params.product;
  all.n *= kExperts;
  Buffer w(DType::kU8, {packed_layout(all).bytes()});
  time("packed_experts", &KernelTable::packed_experts, &params, w.view,
       static_cast<double>(packed_layout(params.product).bytes()));
}

// Rows of bytes of Whisper base (512 and 2,048 numbers) times weights of bytes.
void bench_integer(Bench& bench, int64_t m, int64_t k, int64_t n) {
  const IntegerLayout layout{k, n};
  const std::string shape = " M=" + std::to_string(m) + " K=" + std::to_string(k) + " N=" + std::to_string(n);
  Buffer x(DType::kF32, {m, k}), rows(DType::kU8, {m, layout.row_bytes()}), w(DType::kU8, {k, n}),
      packed(DType::kU8, {layout.bytes()}), scale(DType::kF32, {1}), y(DType::kF32, {m, n});
  if (bench.wants("round_rows")) {
    const std::vector<View> in = {x.view};
    const double ms = bench.time(&KernelTable::round_rows, {make_call(in, &rows.view, nullptr)});
    bench.report("round_rows" + shape, ms, static_cast<double>(m * k * 5), 0);
  }
  if (bench.wants("pack_integer")) {
    const PackIntegerParams params{layout, 0, layout.units()};
    const std::vector<View> in = {w.view};
    const double ms = bench.time(&KernelTable::pack_integer, {make_call(in, &packed.view, &params)});
    bench.report("pack_integer" + shape, ms, static_cast<double>(2 * k * n), 0);
  }
  if (!bench.wants("integer_matmul")) return;
  const IntegerMatMulParams params{layout, false, false};
  const std::vector<View> in = {rows.view, packed.view, scale.view};
  const double ms = bench.time(&KernelTable::integer_matmul, {make_call(in, &y.view, &params)});
  bench.report("integer_matmul" + shape, ms, static_cast<double>(layout.bytes() + m * (layout.row_bytes() + n * 4)),
               2.0 * static_cast<double>(m * n * k));
}

void bench_literal_integer(Bench& bench, int64_t m, int64_t k, int64_t n) {
  if (!bench.wants("matmul_integer")) return;
  Buffer a(DType::kU8, {m, k}), b(DType::kU8, {k, n}), y(DType::kI32, {m, n});
  const std::vector<View> in = {a.view, b.view};
  const double ms = bench.time(&KernelTable::matmul_integer, {make_call(in, &y.view, nullptr)});
  bench.report("matmul_integer M=" + std::to_string(m) + " K=" + std::to_string(k) + " N=" + std::to_string(n), ms,
               static_cast<double>(k * n + m * (k + 4 * n)), 2.0 * static_cast<double>(m * n * k));
}

// Rows of keys or values, and the elements of one.
RowEncoding encoding_of(DType type) { return type == DType::kI8 ? RowEncoding::kRowScale : RowEncoding::kPlain; }
int64_t stored_size(DType type, int64_t size) { return type == DType::kI8 ? size + kRowScaleBytes : size; }

void bench_encode_rows(Bench& bench, int64_t rows, int64_t size) {
  if (!bench.wants("encode_rows")) return;
  Buffer x(DType::kF32, {rows, size}), y(DType::kI8, {rows, size + kRowScaleBytes});
  const std::vector<View> in = {x.view};
  const EncodeRowsParams params{RowEncoding::kRowScale};
  const double ms = bench.time(&KernelTable::encode_rows, {make_call(in, &y.view, &params)});
  bench.report("encode_rows rows=" + std::to_string(rows) + " D=" + std::to_string(size), ms,
               static_cast<double>(rows * (5 * size + kRowScaleBytes)), 0);
}

void bench_attention(Bench& bench, int64_t heads, int64_t kv_heads, int64_t queries, int64_t keys, int64_t size,
                     DType type = DType::kF32, bool causal = true) {
  if (!bench.wants("attention")) return;
  Buffer q(DType::kF32, {1, heads, queries, size}), k(type, {1, kv_heads, keys, stored_size(type, size)}),
      v(type, {1, kv_heads, keys, stored_size(type, size)}), y(DType::kF32, {1, heads, queries, size});
  AttentionParams params{.scale = 0.125f, .softcap = 0, .window = 0, .causal = causal, .smooth_sink = false};
  params.keys = params.values = encoding_of(type);
  const std::vector<View> in = {q.view, k.view, v.view};
  const double ms = bench.time(&KernelTable::attention, {make_call(in, &y.view, &params)});
  const double pairs = static_cast<double>(heads * queries) *
                       (static_cast<double>(keys) - (causal ? static_cast<double>(queries - 1) / 2 : 0));
  bench.report(std::string("attention ") + short_name(type) + " heads=" + std::to_string(heads) + "/" +
                   std::to_string(kv_heads) + " S=" + std::to_string(queries) + " T=" + std::to_string(keys) +
                   " D=" + std::to_string(size) + (causal ? "" : " all keys"),
               ms, static_cast<double>(2 * kv_heads * keys * size * dtype_bytes(type)),
               4.0 * pairs * static_cast<double>(size));
}

// One token's attention over all layers of a model, each with a state of its own as the runtime keeps it: slot by slot,
// all heads of a token next to each other. `sequences` have as many keys each, in one step, or share them as the beams
// of a source do.
void bench_state(Bench& bench, int64_t layers, int64_t heads, int64_t kv_heads, int64_t keys, int64_t size, DType type,
                 int64_t sequences = 1, bool shared = false) {
  if (!bench.wants("attention")) return;
  std::vector<Buffer> states;
  states.reserve(static_cast<size_t>(2 * layers));
  const Buffer q(DType::kF32, {1, heads, sequences, size}), y(DType::kF32, {1, heads, sequences, size}),
      space(DType::kF32, {std::max(1, bench.threads() - 1), attention_blocks(keys),
                          attention_rows_together(heads, kv_heads, sequences), attention_partial_floats(size)});
  const View out[2] = {y.view, space.view};
  AttentionParams params{};
  params.scale = 0.125f;
  params.causal = true;
  params.keys = params.values = encoding_of(type);
  std::vector<Run> runs;
  std::vector<StepSegment> segments;
  for (int64_t s = 0; s < sequences; ++s) runs.push_back({shared ? 0 : s * keys, keys});
  for (int64_t s = 0; s < sequences; ++s)
    segments.push_back({s, 1, false, &runs[static_cast<size_t>(s)], 1, keys, 0, shared && s > 0 ? keys : 0});
  std::vector<uint32_t> arrivals(static_cast<size_t>(bench.threads()));
  std::vector<std::vector<View>> in;
  std::vector<KernelCall> calls;
  for (int64_t i = 0; i < 2 * layers; ++i) {
    states.emplace_back(type,
                        std::vector<int64_t>{1, (shared ? 1 : sequences) * keys, kv_heads, stored_size(type, size)});
    View& v = states.back().view;
    std::swap(v.dims[1], v.dims[2]);
    std::swap(v.strides[1], v.strides[2]);
  }
  for (int64_t i = 0; i < layers; ++i)
    in.push_back({q.view, states[static_cast<size_t>(2 * i)].view, states[static_cast<size_t>(2 * i + 1)].view});
  for (int64_t i = 0; i < layers; ++i) {
    calls.push_back(make_call(in[static_cast<size_t>(i)], out, &params));
    calls.back().out_count = 2;
    calls.back().arrivals = arrivals.data();
    calls.back().segments = segments.data();
    calls.back().segment_count = static_cast<int>(sequences);
  }
  const double ms = bench.time(&KernelTable::attention, calls);
  bench.report(
      std::string("state of ") + std::to_string(layers) + " layers " + short_name(type) +
          " heads=" + std::to_string(heads) + "/" + std::to_string(kv_heads) + " T=" + std::to_string(keys) + " D=" +
          std::to_string(size) + (sequences > 1 ? " x" + std::to_string(sequences) : "") + (shared ? " shared" : ""),
      ms, static_cast<double>((shared ? 1 : sequences) * layers * 2 * kv_heads * keys * size * dtype_bytes(type)),
      4.0 * static_cast<double>(sequences * layers * heads * keys * size));
}

void bench_norm(Bench& bench, int64_t rows, int64_t size) {
  if (!bench.wants("rms_norm")) return;
  Buffer x(DType::kF32, {rows, size}), scale(DType::kF32, {size}), y(DType::kF32, {rows, size});
  const NormParams params{1, 1e-5f};
  const std::vector<View> in = {x.view, scale.view};
  const double ms = bench.time(&KernelTable::rms_norm, {make_call(in, &y.view, &params)});
  bench.report("rms_norm " + std::to_string(rows) + " x " + std::to_string(size), ms,
               static_cast<double>(rows * size * 8), 4.0 * static_cast<double>(rows * size));
}

void bench_rotary(Bench& bench, int64_t heads, int64_t tokens, int64_t size) {
  if (!bench.wants("rotary")) return;
  Buffer x(DType::kF32, {1, heads, tokens, size}), cos(DType::kF32, {4096, size / 2}),
      sin(DType::kF32, {4096, size / 2}), p(DType::kI64, {1});
  *p.view.as<int64_t>() = 7;
  const RotaryParams params{size, false};
  const std::vector<View> in = {x.view, cos.view, sin.view, p.view};
  const double ms = bench.time(&KernelTable::rotary, {make_call(in, &x.view, &params)});
  bench.report("rotary heads=" + std::to_string(heads) + " S=" + std::to_string(tokens), ms,
               static_cast<double>(heads * tokens * size * 8), 6.0 * static_cast<double>(heads * tokens * size));
}

// All quantised matrices of one SmolLM2-135M token, each layer with its own weights.
void bench_token(Bench& bench, int level, bool packed) {
  if (!bench.wants(packed ? "packed_matmul" : "matmul_nbits")) return;
  struct Layer {
    int64_t k, n;
  };
  const Layer layer[] = {{576, 576}, {576, 192}, {576, 192}, {576, 576}, {576, 1536}, {576, 1536}, {1536, 576}};
  std::vector<Buffer> buffers;
  std::vector<MatMulNBitsParams> params;
  std::vector<PackedMatMulParams> packed_params;
  std::vector<std::vector<View>> in;
  std::vector<View> out;
  buffers.reserve(2000);
  double bytes = 0;
  auto add = [&](int64_t k, int64_t n) {
    const PackedLayout layout(n, k, 4, 32, true, ZeroPoints::kMiddle);
    const size_t b = buffers.size();
    buffers.emplace_back(DType::kF32, std::vector<int64_t>{1, k});
    buffers.emplace_back(DType::kF32, std::vector<int64_t>{1, n});
    if (packed) {
      buffers.emplace_back(DType::kU8, std::vector<int64_t>{layout.bytes()});
    } else {
      buffers.emplace_back(DType::kU8, std::vector<int64_t>{n, k / 32, 16});
      buffers.emplace_back(DType::kF32, std::vector<int64_t>{n, k / 32});
    }
    in.push_back({buffers[b].view});
    for (size_t i = b + 2; i < buffers.size(); ++i) in.back().push_back(buffers[i].view);
    out.push_back(buffers[b + 1].view);
    params.push_back({k, n, 4, 32, level, false});
    packed_params.push_back({k, n, 4, 32, level, true, ZeroPoints::kMiddle});
    bytes += packed ? static_cast<double>(layout.bytes()) : static_cast<double>(k * n) * 20 / 32;
  };
  for (int i = 0; i < 30; ++i) {
    for (const Layer& l : layer) add(l.k, l.n);
  }
  add(576, 49152);
  std::vector<KernelCall> calls;
  double weights = 0;
  for (size_t i = 0; i < in.size(); ++i) {
    calls.push_back(make_call(in[i], &out[i], packed ? static_cast<const void*>(&packed_params[i]) : &params[i]));
    weights += static_cast<double>(params[i].k * params[i].n);
  }
  const double ms = bench.time(packed ? &KernelTable::packed_matmul : &KernelTable::matmul_nbits, calls);
  bench.report(std::string("SmolLM2-135M int4, all 211 matrices, ") + (packed ? "packed, " : "") +
                   "level=" + std::to_string(level),
               ms, bytes, 2 * weights);
}

}  // namespace

void bench_products(Bench& bench) {
  for (int level : {0, 4})
    for (int64_t m : {1, 64}) bench_experts(bench, m, 4, 1024, 1024, 4, level);
  for (int64_t m : {1, 64}) bench_experts(bench, m, 4, 512, 512, 0, 0);
  for (int level : {0, 4}) {
    for (bool packed : {false, true}) bench_token(bench, level, packed);
    for (auto [k, n] : {std::pair<int64_t, int64_t>{576, 576}, {576, 192}, {576, 1536}, {1536, 576}, {576, 49152}})
      bench_packed(bench, 1, k, n, 4, level, ZeroPoints::kMiddle);
    for (ZeroPoints zeros : {ZeroPoints::kIntegers, ZeroPoints::kFloats})
      bench_packed(bench, 1, 576, 49152, 4, level, zeros);
    bench_packed(bench, 1, 576, 49152, 8, level, ZeroPoints::kMiddle);
    bench_packed(bench, 4, 576, 1536, 4, level, ZeroPoints::kMiddle);
    bench_packed(bench, 128, 576, 1536, 4, level, ZeroPoints::kMiddle);
    for (auto [k, n] : {std::pair<int64_t, int64_t>{576, 576}, {576, 192}, {576, 1536}, {1536, 576}})
      bench_packed(bench, 512, k, n, 4, level, ZeroPoints::kMiddle);
    bench_packed(bench, 128, 2048, 8192, 4, level, ZeroPoints::kMiddle);
    if (level == 4)  // the 1B and 8B shapes
      for (auto [k, n] : {std::pair<int64_t, int64_t>{2048, 8192}, {8192, 2048}, {4096, 14336}, {14336, 4096}})
        for (int64_t m : {16, 64, 512}) bench_packed(bench, m, k, n, 4, level, ZeroPoints::kMiddle);
    for (auto [k, n] : {std::pair<int64_t, int64_t>{576, 576}, {576, 192}, {576, 1536}, {1536, 576}, {576, 49152}})
      bench_nbits(bench, 1, k, n, 4, level, false);
    bench_nbits(bench, 1, 576, 49152, 4, level, true);
    bench_nbits(bench, 1, 576, 49152, 8, level, false);
    bench_nbits(bench, 4, 576, 1536, 4, level, false);
    bench_nbits(bench, 128, 576, 1536, 4, level, false);
    bench_nbits(bench, 128, 1536, 576, 4, level, false);
  }
  for (bool transposed : {false, true}) {
    bench_matmul(bench, 1, 576, 1536, transposed);
    bench_matmul(bench, 1, 576, 49152, transposed);
    bench_matmul(bench, 1, 576, 49152, transposed, DType::kF16);
    bench_matmul(bench, 4, 576, 1536, transposed);
    bench_matmul(bench, 16, 576, 1536, transposed);
    bench_matmul(bench, 128, 576, 1536, transposed);
    bench_matmul(bench, 512, 1536, 576, transposed);
  }
  for (DType type : {DType::kF32, DType::kF16, DType::kBF16}) {
    for (int64_t m : {1, 4, 35, 128, 512}) bench_dense(bench, m, 576, 1536, type);
    bench_dense(bench, 1, 576, 49152, type);
  }
  for (auto [k, n] : {std::pair<int64_t, int64_t>{512, 512}, {512, 2048}, {2048, 512}, {1280, 1280}, {5120, 1280}})
    for (int64_t m : {1, 5, 16, 64, 1500}) bench_integer(bench, m, k, n);
  bench_integer(bench, 1, 512, 51865);
  bench_integer(bench, 512, 4096, 14336);
  for (int64_t m : {1, 128}) bench_literal_integer(bench, m, 512, 2048);
  for (DType type : {DType::kF32, DType::kF16})
    bench_attention(bench, 8, 8, 1500, 1500, 64, type, false);  // Whisper's encoder
  for (int64_t keys : {35, 512, 2048}) bench_attention(bench, 9, 3, 1, keys, 64);
  bench_attention(bench, 9, 3, 1, 2048, 64, DType::kF16);
  bench_attention(bench, 32, 8, 1, 2048, 128);
  for (int64_t tokens : {35, 128, 512}) bench_attention(bench, 9, 3, tokens, tokens, 64);
  bench_attention(bench, 9, 3, 512, 512, 64, DType::kF16);
  bench_attention(bench, 9, 3, 512, 2048, 64, DType::kF16);
  bench_attention(bench, 9, 3, 512, 2048, 64, DType::kI8);
  for (int64_t tokens : {1, 512}) bench_encode_rows(bench, 3 * tokens, 64);
  for (DType type : {DType::kF32, DType::kF16, DType::kI8})
    for (int64_t keys : {35, 2048, 2080}) bench_state(bench, 30, 9, 3, keys, 64, type);
  bench_state(bench, 16, 32, 8, 2048, 64, DType::kF16);
  bench_state(bench, 30, 9, 3, 300, 64, DType::kF16, 16);
  for (const bool shared : {false, true}) bench_state(bench, 12, 12, 12, 512, 64, DType::kF32, 4, shared);
  bench_norm(bench, 1, 576);
  bench_norm(bench, 128, 576);
  bench_rotary(bench, 9, 1, 64);
  bench_rotary(bench, 9, 128, 64);
}

}  // namespace situ
