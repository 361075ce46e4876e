// situ.Attention against the textbook formula in double.
#include "kernels/attention_blocks.h"
#include "kernels/params.h"
#include "kernels/strided_test.h"

namespace situ {
namespace {

enum class Bias { kNone, kFloat, kBool };

struct Case {
  int64_t batch = 1, heads = 1, kv_heads = 1, queries = 1, keys = 1, depth = 16, value_depth = 16;
  DType q_type = DType::kF32, kv_type = DType::kF32;
  int bits = 0;  // of keys and values that are integers without a scale of their own
  AttentionParams params{.scale = 0.3f, .softcap = 0, .window = 0, .causal = true, .smooth_sink = false};
  Bias bias = Bias::kNone;
  std::vector<int64_t> bias_dims;
  bool slopes = false, sink = false;
  int64_t dropped = 0, distances = 0, distance_rows = 0;  // columns and rows of the bias by distance
  std::vector<Run> runs;                                  // empty: contiguous keys
  std::vector<int> kv_order;                              // layout of k
};

RowEncoding encoding_of(DType type, int bits = 0) {
  if (bits > 0) return bits == 4 ? RowEncoding::kDigits : RowEncoding::kBytes;
  return type == DType::kI8 ? RowEncoding::kRowScale : RowEncoding::kPlain;
}
// The largest magnitude of keys and values.
int64_t largest_of(const Case& t) { return t.bits == 8 ? 128 : t.bits == 4 ? 8 : 2; }
// Keys or values: a tensor of floats, or rows of integers, with their scales or without.
struct Rows {
  StridedTensor data;
  int64_t size;
  RowEncoding encoding;

  static int64_t stored(const Case& t, int64_t size) {
    return t.bits == 4 ? (size + 1) / 2 : t.kv_type == DType::kI8 && t.bits == 0 ? size + kRowScaleBytes : size;
  }
  Rows(const Case& t, std::vector<int64_t> dims, const std::vector<int>& order)
      : data(t.kv_type, {dims[0], dims[1], dims[2], stored(t, dims[3])}, order, random_int(0, 2), random_int(0, 2)),
        size(dims[3]),
        encoding(encoding_of(t.kv_type, t.bits)) {
    const bool scaled = encoding == RowEncoding::kRowScale;
    if (encoding == RowEncoding::kPlain)
      data.fill(-2, 2);
    else if (encoding == RowEncoding::kDigits)
      data.fill_integers(0, 255);
    else
      data.fill_integers(scaled ? -127 : -128, 127);
    for (int64_t row = 0; scaled && row < dims[0] * dims[1] * dims[2]; ++row) {
      const float scale = 0.004f + 0.001f * static_cast<float>(random_int(0, 10));
      for (int64_t i = 0; i < kRowScaleBytes; ++i)
        data.set(row * (size + kRowScaleBytes) + size + i, reinterpret_cast<const int8_t*>(&scale)[i]);
    }
  }
  double at(int64_t b, int64_t h, int64_t slot, int64_t d) const {
    if (encoding == RowEncoding::kDigits)
      return static_cast<double>(static_cast<int64_t>(data.at({b, h, slot, d / 2})) >> (d % 2 * 4) & 15) - 8;
    const double x = data.at({b, h, slot, d});
    if (encoding != RowEncoding::kRowScale) return x;
    float scale;
    for (int64_t i = 0; i < kRowScaleBytes; ++i)
      reinterpret_cast<int8_t*>(&scale)[i] = static_cast<int8_t>(data.at({b, h, slot, size + i}));
    return x * scale;
  }
  // Row j is what lies in slot slots[j] of `other`.
  void gather(const Rows& other, const std::vector<int64_t>& slots) {
    const int64_t heads = data.view().dims[1], keys = data.view().dims[2], row = data.view().dims[3];
    for (int64_t i = 0; i < data.count(); ++i)
      data.set(i, other.data.at({i / row / keys / heads, i / row / keys % heads,
                                 slots[static_cast<size_t>(i / row % keys)], i % row}));
  }
};

// One output row; `slots[j]` is where key j lies.
std::vector<double> expected_row(const Case& t, const StridedTensor& q, const Rows& k, const Rows& v,
                                 const StridedTensor& bias, const StridedTensor& slopes, const StridedTensor& sink,
                                 const StridedTensor& distances, const std::vector<int64_t>& slots, int64_t b,
                                 int64_t h, int64_t i) {
  const int64_t kv = h / (t.heads / t.kv_heads), position = t.keys - t.queries + i;
  std::vector<double> s(static_cast<size_t>(t.keys), -INFINITY);
  double largest = -INFINITY;
  for (int64_t j = 0; j < t.keys; ++j) {
    if (t.params.causal && j > position) continue;
    if (t.params.window > 0 && j <= position - t.params.window && j >= t.params.first) continue;
    double x = 0;
    for (int64_t d = 0; d < t.depth; ++d) x += q.at({b, h, i, d}) * k.at(b, kv, slots[static_cast<size_t>(j)], d);
    x *= t.params.scale;
    if (t.params.softcap > 0) x = t.params.softcap * std::tanh(x / t.params.softcap);
    if (t.bias != Bias::kNone) {
      std::vector<int64_t> index = {b, h, i, j};
      index.erase(index.begin(), index.begin() + (4 - bias.view().rank));
      for (size_t d = 0; d < index.size(); ++d) index[d] = bias.view().dims[d] == 1 ? 0 : index[d];
      const double value = bias.at(index);
      x = t.bias == Bias::kFloat ? x + value : (value != 0 ? x : -INFINITY);
    }
    if (t.slopes) x += slopes.get(h) * static_cast<double>(j - position - (j < t.params.first ? t.dropped : 0));
    if (t.distances > 0) {
      const int64_t distance = j - position - (j < t.params.first ? t.dropped : 0);
      x += distances.at(
          {t.distance_rows == 1 ? 0 : h, std::clamp<int64_t>(distance - t.params.least_distance, 0, t.distances - 1)});
    }
    s[static_cast<size_t>(j)] = x;
    largest = std::max(largest, x);
  }
  const bool sinks = t.sink || t.params.smooth_sink;
  const double sink_score = t.sink ? sink.get(h) : 0;
  if (sinks) largest = std::max(largest, sink_score);
  std::vector<double> y(static_cast<size_t>(t.value_depth), 0);
  if (largest == -INFINITY) return y;
  double sum = sinks ? std::exp(sink_score - largest) : 0;
  for (double x : s) sum += std::exp(x - largest);
  for (int64_t j = 0; j < t.keys; ++j) {
    const double p = std::exp(s[static_cast<size_t>(j)] - largest) / sum;
    for (int64_t d = 0; d < t.value_depth; ++d)
      y[static_cast<size_t>(d)] += p * v.at(b, kv, slots[static_cast<size_t>(j)], d);
  }
  return y;
}

// What integers of 16 bits may change (kernels/attention_pairs.h), where queries, keys and values reach 2: four
// standard deviations of what half a step of queries and keys does to scores, and half a step of the weights of up to a
// block of keys to their mean, and half a step of the values.
double integer_error(const Case& t) {
  if (t.kv_type == DType::kF32 || t.bits > 0) return 0;
  const double most = std::min(32767.0, std::sqrt(2147483000.0 / static_cast<double>(t.depth))),
               uniform = 1 / std::sqrt(12.0), rms = 2 / std::sqrt(3.0);
  const double score = t.params.scale * static_cast<double>(largest_of(t)) / 2 *
                       std::sqrt(2.0 * static_cast<double>(t.depth)) * rms * 2 / most * uniform;
  const double weights = std::sqrt(static_cast<double>(std::min<int64_t>(t.keys, 128))) * rms / 4095 * uniform;
  return 4 * std::hypot(2 * score, weights) + 1 / 4095.0;
}

// What threads need to share the keys of a token.
struct SharedKeys {
  static constexpr int kMostThreads = 8;
  StridedTensor space;
  uint32_t arrivals[kMostThreads] = {};

  SharedKeys(int64_t heads, int64_t kv_heads, int64_t keys, int64_t value_depth, int64_t tokens = 1)
      : space(DType::kF32,
              {kMostThreads - 1, attention_blocks(keys), attention_rows_together(heads, kv_heads, tokens),
               attention_partial_floats(value_depth)},
              {}) {}
  void run(const KernelTable& table, KernelCall call, int threads) {
    space.reset();
    View out[2] = {call.out[0], space.view()};
    out[1].dims[0] = std::max(1, threads - 1);
    call.out = out;
    call.out_count = 2;
    call.arrivals = arrivals;
    run_kernel(table, &KernelTable::attention, call, threads);
    ASSERT_TRUE(space.untouched_outside());
    for (const uint32_t left : arrivals) ASSERT_EQ(left, 0u);
  }
};

void check(const Case& t) {
  SCOPED_TRACE("heads " + std::to_string(t.heads) + "/" + std::to_string(t.kv_heads) + " queries " +
               std::to_string(t.queries) + " keys " + std::to_string(t.keys) + " depth " + std::to_string(t.depth) +
               "/" + std::to_string(t.value_depth));
  std::vector<int64_t> slots;
  int64_t capacity = t.keys;
  for (const Run& run : t.runs) {
    for (int64_t i = 0; i < run.length; ++i) slots.push_back(run.first_slot + i);
    capacity = std::max(capacity, run.first_slot + run.length);
  }
  for (int64_t j = 0; t.runs.empty() && j < t.keys; ++j) slots.push_back(j);
  ASSERT_EQ(static_cast<int64_t>(slots.size()), t.keys);
  StridedTensor q = StridedTensor::random_layout(t.q_type, {t.batch, t.heads, t.queries, t.depth});
  const Rows k(t, {t.batch, t.kv_heads, capacity, t.depth}, t.kv_order),
      v(t, {t.batch, t.kv_heads, capacity, t.value_depth}, {});
  StridedTensor y = StridedTensor::random_layout(t.q_type, {t.batch, t.heads, t.queries, t.value_depth});
  StridedTensor bias(t.bias == Bias::kBool ? DType::kBool : DType::kF32,
                     t.bias_dims.empty() ? std::vector<int64_t>{t.queries, t.keys} : t.bias_dims);
  StridedTensor slopes(DType::kF32, {t.heads}), sink(DType::kF32, {t.heads});
  const int64_t distance_rows = t.distance_rows > 0 ? t.distance_rows : t.heads;
  StridedTensor distances(DType::kF32, {distance_rows, std::max<int64_t>(1, t.distances)});
  distances.fill(-3, 3);
  q.fill(-2, 2);
  slopes.fill(0, 0.3);
  sink.fill(-2, 2);
  if (t.bias == Bias::kBool)
    bias.fill_integers(0, 1);
  else
    bias.fill(-3, 3);
  View kv[2] = {k.data.view(), v.data.view()};
  kv[0].dims[2] = kv[1].dims[2] = t.keys;
  const View in[7] = {q.view(),
                      kv[0],
                      kv[1],
                      t.bias != Bias::kNone ? bias.view() : View{},
                      t.slopes ? slopes.view() : View{},
                      t.sink ? sink.view() : View{},
                      t.distances > 0 ? distances.view() : View{}};
  KernelCall call;
  call.in = in;
  call.in_count = 7;
  call.out = &y.view();
  call.out_count = 1;
  AttentionParams params = t.params;
  params.keys = params.values = k.encoding;
  call.params = &params;
  StepSegment segment;
  segment.rows = t.queries;
  segment.runs = t.runs.empty() ? nullptr : t.runs.data();
  segment.run_count = static_cast<int>(t.runs.size());
  segment.keys = t.keys;
  segment.dropped = t.dropped;
  call.segments = &segment;
  call.segment_count = 1;
  std::vector<std::vector<double>> rows;
  for (int64_t b = 0; b < t.batch; ++b) {
    for (int64_t h = 0; h < t.heads; ++h) {
      for (int64_t i = 0; i < t.queries; ++i)
        rows.push_back(expected_row(t, q, k, v, bias, slopes, sink, distances, slots, b, h, i));
    }
  }
  auto verify = [&](const char* what) {
    ASSERT_TRUE(y.untouched_outside()) << what;
    for (int64_t b = 0; b < t.batch; ++b) {
      for (int64_t h = 0; h < t.heads; ++h) {
        for (int64_t i = 0; i < t.queries; ++i) {
          const std::vector<double>& row = rows[static_cast<size_t>((b * t.heads + h) * t.queries + i)];
          for (int64_t d = 0; d < t.value_depth; ++d) {
            ASSERT_NEAR(y.at({b, h, i, d}), row[static_cast<size_t>(d)],
                        (1e-5 + rounding(t.q_type) + integer_error(t)) * static_cast<double>(largest_of(t)) / 2)
                << what << " b " << b << " h " << h << " i " << i << " d " << d;
          }
        }
      }
    }
  };
  // The same keys and values in consecutive slots give the same bits.
  Rows k_in_order(t, {t.batch, t.kv_heads, t.keys, t.depth}, t.kv_order),
      v_in_order(t, {t.batch, t.kv_heads, t.keys, t.value_depth}, {});
  k_in_order.gather(k, slots);
  v_in_order.gather(v, slots);
  View in_order[7];
  std::copy(in, in + 7, in_order);
  in_order[1] = k_in_order.data.view();
  in_order[2] = v_in_order.data.view();
  auto numbers = [](const StridedTensor& x) {
    std::vector<double> list;
    for (int64_t i = 0; i < x.count(); ++i) list.push_back(x.get(i));
    return list;
  };
  // With a workspace, threads share the keys of a token; how many they are changes no bit.
  SharedKeys shared(t.heads, t.kv_heads, t.keys, t.value_depth);
  std::vector<double> of_one;
  for_each_isa(
      [&](const KernelTable& table, int threads) {
        y.reset();
        run_kernel(table, &KernelTable::attention, call, threads);
        verify("whole");
        const std::vector<double> whole = numbers(y);
        if (threads == 1) of_one = whole;
        ASSERT_EQ(whole, of_one);
        if (!t.runs.empty()) {
          KernelCall other = call;
          StepSegment contiguous = segment;
          contiguous.runs = nullptr;
          other.in = in_order;
          other.segments = &contiguous;
          run_kernel(table, &KernelTable::attention, other, threads);
          ASSERT_EQ(numbers(y), whole);
        }
        for (const int workers : threads == 1 ? std::vector<int>{1, 4, 7} : std::vector<int>{threads}) {
          y.reset();
          shared.run(table, call, workers);
          ASSERT_TRUE(y.untouched_outside());
          ASSERT_EQ(numbers(y), whole) << workers << " threads";
        }
      },
      emulated_tables());
}

TEST(Attention, Decode) {
  for (int64_t keys : {0, 1, 2, 15, 16, 17, 127, 128, 129, 300}) {
    for (int64_t group : {1, 2, 3, 5, 8})
      check({.heads = 3 * group, .kv_heads = 3, .keys = keys, .depth = 20, .value_depth = 33});
  }
}

// Around the numbers of keys at which there is a block more.
TEST(Attention, BlocksOfKeys) {
  for (int64_t keys : {4, 35, 95, 96, 191, 192, 193, 512, 513, 1030})
    for (int64_t group : {1, 3, 12}) check({.heads = 2 * group, .kv_heads = 2, .keys = keys, .value_depth = 40});
  check({.heads = 60, .kv_heads = 1, .keys = 300, .depth = 70, .value_depth = 90});
  check({.heads = 22, .kv_heads = 11, .keys = 300});
  check({.heads = 1, .keys = 64 * 128 + 7});
}

TEST(Attention, Prefill) {
  check({.heads = 2, .kv_heads = 1, .queries = 150, .keys = 150, .depth = 40, .value_depth = 24});
  check({.heads = 4, .kv_heads = 2, .queries = 70, .keys = 200, .depth = 64, .value_depth = 64});
  check({.batch = 2, .heads = 3, .kv_heads = 3, .queries = 50, .keys = 50, .depth = 7, .value_depth = 5});
}

TEST(Attention, DepthsAroundTheVectorSize) {
  for (int64_t depth = 1; depth <= 35; ++depth) {
    check({.heads = 2, .kv_heads = 1, .keys = 5, .depth = depth, .value_depth = 36 - depth});
    check({.heads = 1, .queries = 9, .keys = 9, .depth = depth, .value_depth = 36 - depth});
  }
}

TEST(Attention, MasksAndScores) {
  for (int64_t queries : {1, 3, 60}) {
    Case t{.heads = 4, .kv_heads = 2, .queries = queries, .keys = 150};
    Case u = t;
    u.params.causal = false;
    check(u);
    u = t;
    for (int64_t first : {0, 5, 130}) {
      u = t;
      u.params.window = 40;
      u.params.first = first;
      check(u);
      u.params.causal = false;
      check(u);
    }
    u = t;
    u.params.softcap = 5;
    check(u);
    u = t;
    u.params.smooth_sink = true;
    u.slopes = true;
    check(u);
    u = t;
    u.sink = true;
    u.bias = Bias::kFloat;
    u.bias_dims = {1, 4, 1, 150};
    check(u);
    u.bias_dims = {queries, 150};
    check(u);
    u = t;
    u.bias = Bias::kBool;
    u.bias_dims = {1, 1, queries, 150};
    check(u);
    u.bias_dims = {1};
    check(u);
  }
}

TEST(Attention, RowsOfIntegers) {
  for (const int bits : {8, 4}) {
    Case t{.heads = 4, .kv_heads = 2, .kv_type = bits == 8 ? DType::kI8 : DType::kU8, .bits = bits};
    t.params.scale = bits == 8 ? 0.3f / 64 : 0.3f / 4;
    for (const int64_t queries : {1, 9})
      for (t.queries = queries, t.keys = 130, t.depth = 1; t.depth < 67; t.depth += 13) check(t);
    t.runs = {{40, 90}, {0, 30}, {300, 10}};
    check(t);
  }
}

// Rows before the first key, and rows that a mask leaves nothing, are zero.
TEST(Attention, NothingToAttendTo) {
  check({.heads = 2, .kv_heads = 2, .queries = 5, .keys = 3});
  Case t{.heads = 1, .queries = 2, .keys = 4};
  t.params.window = 1;
  t.bias = Bias::kBool;
  check(t);
}

// A token of a prompt has the same numbers, to the bit, in whatever pieces the prompt comes, how many threads there
// are, and whether tokens that have left the window are still kept.
TEST(Attention, PromptsInPieces) {
  struct Prompt {
    DType kv_type;
    int64_t window;
    float softcap;
    bool sink;
    int64_t depth;
  };
  const int64_t tokens = 300, heads = 4, kv_heads = 2;
  for (const Prompt& t : {Prompt{DType::kF16, 0, 0, false, 64}, Prompt{DType::kF16, 0, 5, true, 20},
                          Prompt{DType::kBF16, 90, 0, false, 32}, Prompt{DType::kI8, 70, 0, true, 24},
                          Prompt{DType::kI8, 0, 0, false, 64}, Prompt{DType::kF32, 0, 0, false, 64},
                          Prompt{DType::kF32, 33, 0, false, 40}}) {
    SCOPED_TRACE(std::string(dtype_name(t.kv_type)) + " window " + std::to_string(t.window));
    AttentionParams params{.scale = 0.2f, .softcap = t.softcap, .window = t.window, .causal = true};
    params.keys = params.values = encoding_of(t.kv_type);
    StridedTensor q(DType::kF32, {1, heads, tokens, t.depth}, {}), sink(DType::kF32, {heads}),
        y(DType::kF32, {1, heads, tokens, t.depth}, {});
    const Rows k({.kv_type = t.kv_type}, {1, kv_heads, tokens, t.depth}, {}),
        v({.kv_type = t.kv_type}, {1, kv_heads, tokens, t.depth}, {});
    q.fill(-2, 2);
    sink.fill(-2, 2);
    for_each_isa(
        [&](const KernelTable& table, int threads) {
          // Queries [begin, end), by what is kept of the keys up to them.
          auto run = [&](int64_t begin, int64_t end, int64_t keep, int workers) {
            View q_rows = q.view(), y_rows = y.view();
            for (View* view : {&q_rows, &y_rows}) {
              view->data += begin * view->strides[2] * 4;
              view->dims[2] = end - begin;
            }
            const int64_t dropped = std::max<int64_t>(0, end - keep);
            const situ::Run kept{dropped, end - dropped};
            const View in[7] = {q_rows, k.data.view(), v.data.view(), {}, {}, t.sink ? sink.view() : View{}};
            KernelCall call;
            call.in = in;
            call.in_count = 6;
            call.out = &y_rows;
            call.out_count = 1;
            call.params = &params;
            const StepSegment piece{0, end - begin, true, &kept, 1, end - dropped, dropped};
            call.segments = &piece;
            call.segment_count = 1;
            run_kernel(table, &KernelTable::attention, call, workers);
          };
          y.reset();
          run(0, tokens, tokens, threads);
          std::vector<double> whole;
          for (int64_t i = 0; i < y.count(); ++i) whole.push_back(y.get(i));
          for (const int64_t piece : {1, 2, 5, 17, 64, 129}) {
            y.reset();
            for (int64_t begin = 0; begin < tokens; begin += piece) {
              const int64_t end = std::min(begin + piece, tokens);
              run(begin, end, t.window > 0 ? t.window - 1 + piece + kKeysBefore : tokens, threads == 1 ? 2 : 1);
            }
            for (int64_t i = 0; i < y.count(); ++i)
              ASSERT_EQ(y.get(i), whole[static_cast<size_t>(i)])
                  << "pieces of " << piece << ", token " << i / t.depth % tokens;
          }
        },
        emulated_tables());
  }
}

// Values far apart: the integers of one key's say nothing of another's. Who attends to one that is no number has none.
TEST(Attention, ValuesFarApart) {
  const int64_t tokens = 70, depth = 16, loud = 5;
  const AttentionParams params{
      .scale = 0.2f, .softcap = 0, .window = 0, .first = 0, .causal = true, .smooth_sink = false};
  for (const DType type : {DType::kF16, DType::kBF16, DType::kF32}) {
    StridedTensor q(DType::kF32, {1, 2, tokens, depth}, {}), k(type, {1, 1, tokens, depth}, {}),
        v(type, {1, 1, tokens, depth}, {}), y(DType::kF32, {1, 2, tokens, depth}, {});
    q.fill(-2, 2);
    k.fill(-2, 2);
    v.fill(-1e-3, 1e-3);
    for (int64_t d = 0; d < depth; ++d) v.set(loud * depth + d, d % 2 != 0 ? 0 : 3e4);
    for (const int64_t broken : {tokens, int64_t{40}}) {
      if (broken < tokens) v.set(broken * depth, INFINITY);
      for_each_isa(
          [&](const KernelTable& table, int threads) {
            y.reset();
            const View in[3] = {q.view(), k.view(), v.view()};
            KernelCall call;
            call.in = in;
            call.in_count = 3;
            call.out = &y.view();
            call.out_count = 1;
            call.params = &params;
            run_kernel(table, &KernelTable::attention, call, threads);
            for (int64_t h = 0; h < 2; ++h)
              for (int64_t i = 0; i < tokens; ++i) {
                double sum = 0, largest = 0;
                std::vector<double> weights, expected(static_cast<size_t>(depth), 0);
                for (int64_t j = 0; j <= i; ++j) {
                  double s = 0;
                  for (int64_t d = 0; d < depth; ++d) s += q.at({0, h, i, d}) * k.at({0, 0, j, d});
                  weights.push_back(std::exp(0.2 * s));
                  sum += weights.back();
                }
                for (int64_t j = 0; j <= i; ++j)
                  for (int64_t d = 0; d < depth; ++d)
                    expected[static_cast<size_t>(d)] += weights[static_cast<size_t>(j)] / sum * v.at({0, 0, j, d});
                for (const double x : expected) largest = std::max(largest, std::fabs(x));
                for (int64_t d = 0; d < depth; ++d) {
                  const double got = y.at({0, h, i, d});
                  if (broken < tokens) {
                    ASSERT_TRUE(i < broken || d > 0 || !std::isfinite(got)) << i;
                  } else {
                    ASSERT_NEAR(got, expected[static_cast<size_t>(d)], largest * 2e-3)
                        << dtype_name(type) << ", query " << i << ", column " << d;
                  }
                }
              }
          },
          emulated_tables());
    }
  }
}

// Distances to the first tokens count those that are not kept.
TEST(Attention, SlopesBesideAWindow) {
  for (int64_t queries : {1, 3, 9, 40})
    for (int64_t first : {0, 3, 130}) {
      Case t{.heads = 4, .kv_heads = 2, .queries = queries, .keys = 200, .slopes = true, .dropped = 1000};
      t.params.window = 60;
      t.params.first = first;
      check(t);
    }
}

// Columns before, within and behind the keys that there are; with and without a causal mask and sinks of a window.
TEST(Attention, BiasByDistance) {
  for (DType kv : {DType::kF32, DType::kF16})
    for (int64_t queries : {1, 3, 40})
      for (auto [least, count] : {std::pair<int64_t, int64_t>{-40, 60}, {-300, 20}, {-200, 500}, {5, 30}, {-7, 1}}) {
        Case t{.heads = 4, .kv_heads = 2, .queries = queries, .keys = 120, .kv_type = kv, .distances = count};
        t.params.least_distance = least;
        check(t);
        t.distance_rows = 1;
        t.params.causal = false;
        check(t);
        t.distance_rows = 4;
        t.params.causal = true;
        t.params.window = 60;
        for (int64_t first : {0, 130}) {
          t.params.first = first;
          t.dropped = first > 0 ? 50 : 0;
          check(t);
        }
      }
}

TEST(Attention, Runs) {
  std::vector<situ::Run> backwards, uneven;  // the test has a Run of its own
  for (int64_t i = 0; i < 150; ++i) backwards.push_back({149 - i, 1});
  for (int64_t i = 0, length = 1; i < 150; i += length++) uneven.push_back({2 * i, std::min(length, 150 - i)});
  for (DType kv : {DType::kF32, DType::kF16, DType::kI8}) {
    for (const auto& [queries, group] : {std::pair<int64_t, int64_t>{1, 1}, {1, 9}, {3, 3}, {20, 1}, {20, 3}}) {
      Case t{.heads = 2 * group, .kv_heads = 2, .queries = queries, .keys = 150, .depth = 24, .value_depth = 43};
      t.kv_type = kv;
      t.runs = {{200, 100}, {3, 49}, {60, 1}};
      check(t);
      t.params.window = 30;
      check(t);
      t.runs = backwards;
      check(t);
      t.params.window = 0;
      t.runs = uneven;
      check(t);
    }
  }
}

std::vector<double> numbers_of(const StridedTensor& y) {
  std::vector<double> list;
  for (int64_t i = 0; i < y.count(); ++i) list.push_back(y.get(i));
  return list;
}

// Sequences in one step have the numbers that each has alone, to the bit, whatever the threads are.
TEST(Attention, SegmentsTogetherAreAsAlone) {
  const int64_t heads = 12, kv_heads = 4, depth = 24;
  for (const DType kv : {DType::kF32, DType::kF16, DType::kI8})
    for (const int64_t window : {0, 100}) {
      AttentionParams params{.scale = 0.2f, .window = window, .causal = true};
      params.keys = params.values = encoding_of(kv);
      const std::vector<std::pair<int64_t, int64_t>> sizes{{7, 40},  {1, 1},   {1, 3}, {1, 35},
                                                           {1, 700}, {1, 130}, {1, 36}};
      std::vector<std::vector<situ::Run>> runs;
      std::vector<StepSegment> segments;
      int64_t rows = 0, slots = 0;
      for (const auto& [queries, keys] : sizes) {  // in two runs each, the later one first
        const int64_t half = keys / 2;
        runs.push_back({{slots + keys - half, half}, {slots, keys - half}});
        segments.push_back({rows, queries, rows == 0, nullptr, 2, keys, 0});
        rows += queries;
        slots += keys;
      }
      for (size_t i = 0; i < segments.size(); ++i) {
        if (runs[i][0].length == 0) runs[i].erase(runs[i].begin());
        segments[i].runs = runs[i].data();
        segments[i].run_count = static_cast<int>(runs[i].size());
      }
      StridedTensor q = StridedTensor::random_layout(DType::kF32, {1, heads, rows, depth}),
                    y = StridedTensor::random_layout(DType::kF32, {1, heads, rows, depth});
      const Rows k({.kv_type = kv}, {1, kv_heads, slots, depth}, {}),
          v({.kv_type = kv}, {1, kv_heads, slots, depth}, {});
      q.fill(-2, 2);
      const View in[3] = {q.view(), k.data.view(), v.data.view()};
      KernelCall call;
      call.in = in;
      call.in_count = 3;
      call.out = &y.view();
      call.out_count = 1;
      call.params = &params;
      SharedKeys shared(heads, kv_heads, 700, depth);
      const auto numbers = [&] { return numbers_of(y); };
      for_each_isa(
          [&](const KernelTable& table, int threads) {
            y.reset();
            for (const StepSegment& s : segments) {
              call.segments = &s;
              call.segment_count = 1;
              shared.run(table, call, threads);
            }
            const std::vector<double> alone = numbers();
            call.segments = segments.data();
            call.segment_count = static_cast<int>(segments.size());
            for (const int workers : {1, 2, 3, 4, 7}) {
              y.reset();
              shared.run(table, call, workers);
              ASSERT_EQ(numbers(), alone) << workers << " threads";
            }
          },
          emulated_tables());
    }
}

// Beams: tokens that share all keys (one source), some (one prompt), or fewer than a block; each as alone, to the bit.
TEST(Attention, TokensThatShareKeysAreAsAlone) {
  for (const auto& [heads, kv_heads] : {std::pair<int64_t, int64_t>{9, 3}, {12, 12}, {24, 2}, {60, 1}})
    for (const int64_t keys : {3, 40, 700})
      for (const DType kv : {DType::kF32, DType::kI8}) {
        const int64_t depth = 20, tokens = 7, slots = 2 * tokens * keys;
        AttentionParams params{.scale = 0.2f, .causal = true};
        params.keys = params.values = encoding_of(kv);
        std::vector<std::vector<situ::Run>> runs;
        std::vector<StepSegment> segments;
        const int64_t shared[tokens] = {0, keys, keys, keys / 2, keys / 2 + 1, 1, 0};
        for (int64_t i = 0; i < tokens; ++i) {  // behind the shared keys each has slots of its own
          const int64_t common = shared[i];
          std::vector<situ::Run> own;
          for (int64_t j = 0; j < keys; ++j) {
            const situ::Run* before = nullptr;
            int64_t at = j;
            if (j < common)
              for (before = runs.back().data(); at >= before->length; ++before) at -= before->length;
            own.push_back({before != nullptr ? before->first_slot + at : i * keys + j, 1});
          }
          runs.push_back(own);
        }
        for (int64_t i = 0; i < tokens; ++i)
          segments.push_back({i, 1, false, runs[i].data(), static_cast<int>(keys), keys, 0, shared[i]});
        StridedTensor q = StridedTensor::random_layout(DType::kF32, {1, heads, tokens, depth}),
                      y = StridedTensor::random_layout(DType::kF32, {1, heads, tokens, depth});
        const Rows k({.kv_type = kv}, {1, kv_heads, slots, depth}, {}),
            v({.kv_type = kv}, {1, kv_heads, slots, depth}, {});
        q.fill(-2, 2);
        const View in[3] = {q.view(), k.data.view(), v.data.view()};
        KernelCall call;
        call.in = in;
        call.in_count = 3;
        call.out = &y.view();
        call.out_count = 1;
        call.params = &params;
        SharedKeys space(heads, kv_heads, keys, depth, tokens);
        const auto numbers = [&] { return numbers_of(y); };
        for_each_isa(
            [&](const KernelTable& table, int threads) {
              y.reset();
              for (StepSegment s : segments) {
                s.shared = 0;
                call.segments = &s;
                call.segment_count = 1;
                space.run(table, call, threads);
              }
              const std::vector<double> alone = numbers();
              call.segments = segments.data();
              call.segment_count = tokens;
              for (const int workers : {1, 2, 3, 5}) {
                y.reset();
                space.run(table, call, workers);
                ASSERT_EQ(numbers(), alone) << workers << " threads";
              }
              y.reset();
              run_kernel(table, &KernelTable::attention, call, 3);  // without a workspace
              ASSERT_EQ(numbers(), alone);
            },
            emulated_tables());
      }
}

TEST(Attention, TypesAndLayouts) {
  for (DType q : {DType::kF32, DType::kF16, DType::kBF16}) {
    for (DType kv : {DType::kF32, DType::kF16, DType::kBF16, DType::kI8}) {
      for (int64_t queries : {1, 5, 20, 70}) {
        Case t{.heads = 4, .kv_heads = 2, .queries = queries, .keys = 40, .depth = 24, .value_depth = 40, .q_type = q};
        t.kv_type = kv;
        check(t);
        // Keys stored as [D, T], as in old BLOOM exports.
        check({.heads = 2,
               .kv_heads = 2,
               .queries = queries,
               .keys = 40,
               .depth = 24,
               .value_depth = 8,
               .q_type = q,
               .kv_type = kv,
               .kv_order = {0, 1, 3, 2}});
      }
    }
  }
}

TEST(Attention, LargeHeads) {
  Case t{.heads = 2, .queries = 60, .keys = 60, .depth = 1024, .value_depth = 1024};
  t.params.scale = 1.0f / 32;
  check(t);
}

}  // namespace
}  // namespace situ
