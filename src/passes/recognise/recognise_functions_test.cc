// Functions whose constants are another function's but for a little: what half precision rounds is forgiven where it
// was rounded, and there alone.
#include "passes/compile/test_graph.h"
#include "passes/context/pass_context.h"
#include "passes/host/infer.h"
#include "passes/lower/passes.h"
#include "passes/module/passes.h"
#include "passes/module/window_extents.h"
#include "passes/recognise/passes.h"
#include "passes/states/passes.h"
#include "passes/states/unrolled_conv.h"

namespace situ {
namespace {

using test::S, test::TestGraph;

constexpr int64_t kWidth = 24;

class Functions {
 public:
  explicit Functions(DType type) : type_(type) {}

  ValueId op(const std::string& name, const std::vector<ValueId>& in) { return g.op(name, in); }
  // As the file has it: in its own type, rounded.
  ValueId number(float x) {
    if (type_ == DType::kF32) return g.number(x);
    Tensor one = Tensor::allocate(DType::kF32, {});
    one.view().as<float>()[0] = x;
    ThreadPool pool(1);
    return g.constant(*Evaluator(pool).cast(one, type_));
  }
  // Operators that are left where `make` was applied to x. `table`: another value of the graph is in half precision.
  std::string recognised(const std::function<ValueId(Functions&, ValueId)>& make, bool table = false) {
    g = TestGraph();
    const ValueId x = g.input("x", {Dim(1), rows, Dim(kWidth)}, type_);
    g.graph_.outputs = {make(*this, x)};
    if (table) {
      const ValueId rows = g.constant(Tensor::allocate(DType::kF16, {7, kWidth}));
      g.graph_.outputs.push_back(g.op("Add", {x, g.cast(g.op("Gather", {rows, g.integer(3)}), DType::kF32)}));
    }
    test::TestContext at(g.graph_, 64);
    g.infer(at.context);
    for (Status (*pass)(PassContext&) : {widen_half, recognise_functions}) {
      const Status passed = pass(at.context);
      EXPECT_TRUE(passed.is_ok()) << passed.message();
      const Status inferred = infer_shapes(at.context);
      EXPECT_TRUE(inferred.is_ok()) << inferred.message();
    }
    std::string found;
    for (const Finding& f : at.context.found) found += (found.empty() ? "" : ", ") + f.what;
    return found;
  }

  static auto sigmoid(float slope) {
    return [slope](Functions& f, ValueId x) {
      return f.op("Mul", {x, f.op("Sigmoid", {f.op("Mul", {x, f.number(slope)})})});
    };
  }
  static auto erf(float root) {
    return [root](Functions& f, ValueId x) {
      const ValueId y = f.op("Add", {f.op("Erf", {f.op("Div", {x, f.number(root)})}), f.number(1)});
      return f.op("Mul", {f.op("Mul", {x, y}), f.number(0.5f)});
    };
  }
  static auto tanh(float root, float cube) {
    return [root, cube](Functions& f, ValueId x) {
      const ValueId third = f.op("Mul", {f.op("Pow", {x, f.number(3)}), f.number(cube)});
      const ValueId y = f.op("Tanh", {f.op("Mul", {f.op("Add", {x, third}), f.number(root)})});
      return f.op("Mul", {f.op("Mul", {x, f.number(0.5f)}), f.op("Add", {y, f.number(1)})});
    };
  }
  static auto rms(float epsilon) {
    return [epsilon](Functions& f, ValueId x) {
      const ValueId mean = f.op("ReduceMean", {f.op("Pow", {x, f.number(2)})});
      f.g.graph_.nodes.back().set_ints("axes", {-1});
      return f.op("Div", {x, f.op("Sqrt", {f.op("Add", {mean, f.number(epsilon)})})});
    };
  }

  TestGraph g;
  Dim rows = S();

 private:
  DType type_;
};

TEST(RecogniseFunctions, HalfElsewhereForgivesNothing) {
  Functions f(DType::kF32);
  for (const bool table : {false, true}) {
    EXPECT_EQ(f.recognised(Functions::sigmoid(1.702f), table), "QuickGelu");
    EXPECT_EQ(f.recognised(Functions::sigmoid(1.7f), table), "");
    EXPECT_EQ(f.recognised(Functions::erf(1.41421356f), table), "Gelu");
    EXPECT_EQ(f.recognised(Functions::erf(1.4141f), table), "");
    EXPECT_EQ(f.recognised(Functions::tanh(0.7978845608f, 0.044715f), table), "Gelu (tanh)");
    EXPECT_EQ(f.recognised(Functions::tanh(0.798f, 0.0447f), table), "");
    EXPECT_EQ(f.recognised(Functions::rms(1e-5f), table), "RMSNormalization");
  }
}

TEST(RecogniseFunctions, WhatIsRoundedIsForgiven) {
  for (const DType type : {DType::kF16, DType::kBF16}) {
    Functions f(type);
    EXPECT_EQ(f.recognised(Functions::sigmoid(1)), "Swish");
    EXPECT_EQ(f.recognised(Functions::sigmoid(1.702f)), "QuickGelu");
    EXPECT_EQ(f.recognised(Functions::erf(1.41421356f)), "Gelu");
    EXPECT_EQ(f.recognised(Functions::rms(1e-5f)), "RMSNormalization");
  }
  EXPECT_EQ(Functions(DType::kF16).recognised(Functions::tanh(0.7978845608f, 0.044715f)), "Gelu (tanh)");
}

// More than a rounding away.
TEST(RecogniseFunctions, WhatIsNotRoundedIsNot) {
  Functions f(DType::kF16);
  EXPECT_EQ(f.recognised(Functions::sigmoid(1.7f)), "");
  EXPECT_EQ(f.recognised(Functions::sigmoid(1.001f)), "");
  EXPECT_EQ(f.recognised(Functions::erf(1.41f)), "");
  EXPECT_EQ(f.recognised(Functions::tanh(0.797f, 0.044715f)), "");
}

// A row for sixteen tokens, say: a small step has none, and no rows are like those of any function.
TEST(RecogniseFunctions, RowsThatASmallStepHasNot) {
  Functions f(DType::kF32);
  f.rows = dim_div(S(), Dim(16));
  EXPECT_EQ(f.recognised(Functions::rms(1e-5f)), "RMSNormalization");
  EXPECT_EQ(f.recognised(Functions::sigmoid(1.7f)), "");
}

// A chunk of four rows of which a step of one token has one, the others padding; y and the state behind it:
//   c = g_1 + .. + g_t,  y = (q k' exp(c_t - c_s), s <= t) v + exp(c) q h,  h' = exp(c_4) h + (k exp(c_4 - c))' v
class Chunk {
 public:
  static constexpr int64_t kHeads = 2, kKeys = 3, kValues = 5, kRows = 4;

  explicit Chunk(bool by_key) {
    state = g.input("state", {Dim(1), Dim(kHeads), Dim(kKeys), Dim(kValues)});
    const ValueId q = padded(rows("q", kKeys)), k = padded(rows("k", kKeys)), v = padded(rows("v", kValues));
    const ValueId gate = padded(rows("g", 1));  // [1, H, R, 1]
    const ValueId c = g.op("CumSum", {gate, g.integer(2)});
    const ValueId last = g.op("Slice", {c, g.integers({-1}), g.integers({kRows}), g.integers({2})});
    Tensor later = Tensor::allocate(DType::kF32, {kRows, kRows});
    for (int64_t i = 0; i < kRows; ++i)
      for (int64_t j = i + 1; j < kRows; ++j) later.view().as<float>()[i * kRows + j] = -1e9f;
    const ValueId between = g.op("Sub", {c, turned(c)});
    const ValueId decay = g.op("Exp", {g.op("Add", {between, g.constant(later)})});
    const ValueId scores = g.op("Mul", {g.op("MatMul", {q, turned(k)}), decay});
    const ValueId before = g.op("Mul", {g.op("MatMul", {q, state}), g.op("Exp", {c})});
    const ValueId all = g.op("Add", {g.op("MatMul", {scores, v}), before});
    y = g.op("Slice", {all, g.integers({0}), g.integers({1}), g.integers({2})});
    const ValueId left = g.op("Mul", {k, g.op("Exp", {g.op("Sub", {last, c})})});
    const ValueId added = g.op("MatMul", {turned(left), v});
    // Not the recurrence: what is kept of a key is not what others keep.
    const ValueId keeps = by_key ? g.op("Add", {last, g.floats_of({0, -1, -2}, {3, 1})}) : last;
    present = g.op("Add", {g.op("Mul", {state, g.op("Exp", {keeps})}), added});
    g.graph_.outputs = {y, present};
  }
  ValueId rows(const std::string& name, int64_t width) {
    leaves.push_back(g.input(name, {Dim(1), Dim(1), Dim(kHeads * width)}));
    return g.op("Transpose", {g.op("Reshape", {leaves.back(), g.integers({1, 1, kHeads, width})})}, {}, {0, 2, 1, 3});
  }
  ValueId padded(ValueId x) { return g.op("Pad", {x, g.integers({0, 0, 0, 0, 0, 0, kRows - 1, 0})}); }
  ValueId turned(ValueId x) { return g.op("Transpose", {x}, {}, {0, 1, 3, 2}); }

  TestGraph g;
  std::vector<ValueId> leaves;
  ValueId state = kNoValue, y = kNoValue, present = kNoValue;
};

TEST(RecogniseRecurrence, OfOneTokenInAPaddedChunk) {
  for (const bool by_key : {false, true}) {
    Chunk chunk(by_key);
    Graph& graph = chunk.g.graph_;
    test::TestContext at(graph, 64);
    at.context.phase = Phase::kDecode;
    at.binding.inputs[chunk.state] = InputRole::kState;
    at.binding.states = {StatePair{chunk.state, chunk.present, StateRule::kReplace}};
    chunk.g.infer(at.context);
    const Graph before = graph;
    const Status passed = recognise_recurrence(at.context);
    ASSERT_TRUE(passed.is_ok()) << passed.message();
    const auto count = [&](const char* op, const char* domain) {
      return std::count_if(graph.nodes.begin(), graph.nodes.end(), [&](const Node& n) { return n.is(op, domain); });
    };
    EXPECT_EQ(count("LinearAttention", "situ"), by_key ? 0 : 1);
    EXPECT_EQ(count("Pad", "") == 0, !by_key);
    if (by_key) continue;
    chunk.g.infer(at.context);
    Prober was(before, at.binding, at.evaluator), is(graph, at.binding, at.evaluator);
    std::map<ValueId, Tensor> numbers;
    std::vector<ValueId> leaves = chunk.leaves;
    leaves.push_back(chunk.state);
    for (const ValueId v : leaves) numbers[v] = was.random(was.dims(v, 1, 0), static_cast<uint32_t>(v));
    for (const ValueId out : {chunk.y, chunk.present}) {
      const std::vector<double> wanted = was.evaluate(out, numbers, 1, 0)->to_f64(),
                                found = is.evaluate(out, numbers, 1, 0)->to_f64();
      ASSERT_EQ(wanted.size(), found.size());
      for (size_t i = 0; i < wanted.size(); ++i) EXPECT_NEAR(wanted[i], found[i], 1e-5);
    }
  }
}

// h' = exp(g) h + k' v, y = q h': what is on the way to the state, exp(g) h, is the state less k' v, and no result.
TEST(RecogniseRecurrence, OfOneTokenReadFromTheStateBehindIt) {
  for (const bool read : {true, false}) {  // or by what is no product with a row
    TestGraph g;
    const auto rows = [&](const char* name, int64_t width) {
      return g.input(name, {Dim(1), Dim(2), Dim(1), Dim(width)});
    };
    const ValueId state = g.input("state", {Dim(1), Dim(2), Dim(3), Dim(5)}), k = rows("k", 3), v = rows("v", 5);
    const ValueId kept = g.op("Mul", {state, g.op("Exp", {g.op("Transpose", {rows("g", 3)}, {}, {0, 1, 3, 2})})});
    const ValueId present = g.op("Add", {kept, g.op("MatMul", {g.op("Transpose", {k}, {}, {0, 1, 3, 2}), v})});
    g.graph_.outputs = {read ? g.op("MatMul", {rows("q", 3), present}) : g.op("Exp", {present}), present};
    test::TestContext at(g.graph_, 64);
    at.context.phase = Phase::kDecode;
    at.binding.inputs[state] = InputRole::kState;
    at.binding.states = {StatePair{state, present, StateRule::kReplace}};
    g.infer(at.context);
    ASSERT_TRUE(recognise_recurrence(at.context).is_ok());
    g.infer(at.context);
    EXPECT_EQ(std::count_if(g.graph_.nodes.begin(), g.graph_.nodes.end(),
                            [](const Node& n) { return n.is("LinearAttention", "situ"); }),
              read ? 1 : 0);
  }
}

// y = x_(t-3) w0 + x_(t-1) w2 + x_t w3 (+ b), each with a number for each channel; the last rows are those of the step.
TEST(AppendWindows, ConvolutionsThatAreWrittenOutTapByTap) {
  constexpr int64_t kChannels = 4, kKept = 3;
  for (const bool by_rows : {false, true})
    for (const bool other : {false, true}) {  // a tap that reads another value
      TestGraph g;
      const int64_t axis = by_rows ? 1 : 2;
      const auto shape = [&](const Dim& rows) {
        return by_rows ? Shape{Dim(1), rows, Dim(kChannels)} : Shape{Dim(1), Dim(kChannels), rows};
      };
      const ValueId past = g.input("past", shape(Dim(kKept))), x = g.input("x", shape(S()));
      const ValueId both = g.op("Concat", {past, x}, {{"axis", axis}}), two = other ? g.op("Neg", {both}) : both;
      const std::vector<int64_t> number_dims =
          by_rows ? std::vector<int64_t>{kChannels} : std::vector<int64_t>{kChannels, 1};
      const auto numbers = [&](float first) { return g.floats_of({first, 2, -1, 0.5f}, number_dims); };
      const auto rows = [&](ValueId of, int64_t first, const Dim& end) {
        return g.op("Slice", {of, g.integers({first}), g.graph_.add_shape("end", {end}), g.integers({axis})});
      };
      const auto tap = [&](ValueId of, int64_t first) {
        return g.op("Mul", {rows(of, first, Dim(first) + S()), numbers(static_cast<float>(first))});
      };
      const ValueId sum = g.op("Add", {g.op("Add", {tap(both, 0), tap(two, 2)}), g.op("Mul", {numbers(3), x})});
      const ValueId y = g.op("Add", {sum, numbers(7)}), present = rows(both, -kKept, Dim(int64_t{1} << 40));
      g.graph_.outputs = {y, present};
      test::TestContext at(g.graph_, 16);
      at.binding.inputs[past] = InputRole::kState;
      at.binding.states = {StatePair{past, present, StateRule::kReplace}};
      g.infer(at.context);
      const Graph before = g.graph_;
      const auto count = [&](const char* op, const char* domain = "") {
        return std::count_if(g.graph_.nodes.begin(), g.graph_.nodes.end(),
                             [&](const Node& n) { return n.is(op, domain); });
      };
      const Result<bool> joined = join_taps(at.context);
      ASSERT_TRUE(joined.is_ok()) << joined.status().message();
      g.infer(at.context);
      Prober was(before, at.binding, at.evaluator), is(g.graph_, at.binding, at.evaluator);
      const std::map<ValueId, Tensor> leaves{{past, was.random(was.dims(past, 3, 0), 1)},
                                             {x, was.random(was.dims(x, 3, 0), 2)}};
      const std::vector<double> wanted = was.evaluate(y, leaves, 3, 0)->to_f64(),
                                found = is.evaluate(y, leaves, 3, 0)->to_f64();
      ASSERT_EQ(wanted.size(), found.size());
      for (size_t i = 0; i < wanted.size(); ++i) EXPECT_NEAR(wanted[i], found[i], 1e-5);
      EXPECT_EQ(count("Conv"), other ? 0 : 1);
      ASSERT_TRUE(append_windows(at.context).is_ok());
      EXPECT_EQ(count("CausalConv", "situ"), other ? 0 : 1);
      EXPECT_EQ(at.binding.states[0].rule, other ? StateRule::kReplace : StateRule::kAppend);
    }
}

// The rows of the new tokens are no tap of what ends before the last of them, whether the first or the last is left
// out.
TEST(AppendWindows, NewRowsAreTheLastOfWhatIsConvolved) {
  for (const bool first : {true, false}) {
    TestGraph g;
    const ValueId past = g.input("past", {Dim(1), Dim(4), Dim(3)}), x = g.input("x", {Dim(1), Dim(4), S()});
    const ValueId joined = g.op("Concat", {past, x}, {{"axis", 2}});
    const auto rows = [&](ValueId of, int64_t begin, ValueId end) {
      return g.op("Slice", {of, g.integers({begin}), end, g.integers({2})});
    };
    const ValueId last = g.integers({INT64_MAX}), both = rows(joined, first, first ? last : g.integers({-1}));
    const auto tap = [&](ValueId of, float w) { return g.op("Mul", {of, g.floats_of({w, 2, -1, 0.5f}, {4, 1})}); };
    const auto from = [&](int64_t k) { return rows(both, k, g.graph_.add_shape("end", {Dim(k) + S()})); };
    const ValueId y = g.op("Add", {g.op("Add", {tap(from(0), 3), tap(from(1), 5)}), tap(x, 7)});
    g.graph_.outputs = {y, rows(joined, -3, last)};
    test::TestContext at(g.graph_, 16);
    at.binding.inputs[past] = InputRole::kState;
    at.binding.states = {StatePair{past, g.graph_.outputs[1], StateRule::kReplace}};
    g.infer(at.context);
    const Graph before = g.graph_;
    ASSERT_TRUE(join_taps(at.context).is_ok());
    g.infer(at.context);
    EXPECT_EQ(g.graph_.producer(y, "Add") == nullptr, first);
    Prober was(before, at.binding, at.evaluator), is(g.graph_, at.binding, at.evaluator);
    const std::map<ValueId, Tensor> leaves{{past, was.random({1, 4, 3}, 1)}, {x, was.random({1, 4, 3}, 2)}};
    const std::vector<double> wanted = was.evaluate(y, leaves, 3, 0)->to_f64(),
                              found = is.evaluate(y, leaves, 3, 0)->to_f64();
    ASSERT_EQ(wanted.size(), found.size());
    for (size_t i = 0; i < wanted.size(); ++i) EXPECT_NEAR(wanted[i], found[i], 1e-5);
  }
}

// A state of as many rows as the host likes, of which a convolution of one token reads three.
TEST(BindInputs, AWindowOfAnyNumberOfRowsHasThoseThatAreRead) {
  for (const auto& [padded, half] : {std::pair(false, false), {true, false}, {false, true}}) {
    TestGraph g;
    const Dim rows = Dim::symbol(g.graph_.symbol("rows"));
    const ValueId past = g.input("past", {Dim(1), Dim(4), rows}), x = g.input("x", {Dim(1), Dim(4), Dim(1)});
    const ValueId both = g.op("Concat", {past, x}, {{"axis", -1}});
    const ValueId extent = g.op("Gather", {g.op("Shape", {past}), g.integers({2})});
    const auto from = [&](ValueId of, ValueId first) {
      return g.op("Slice", {of, first, g.integers({int64_t{1} << 40}), g.integers({2})});
    };
    const ValueId present = from(both, g.op("Neg", {extent}));
    g.graph_.values[present].info = g.graph_.values[past].info;
    const ValueId wide = half ? g.cast(both, DType::kF32) : both;
    ValueId conv = g.op("Conv", {wide, g.constant(Tensor::allocate(DType::kF32, {4, 1, 4}))}, {{"group", 4}});
    if (padded) g.graph_.nodes.back().set_ints("pads", {1, 0});
    if (half) conv = g.cast(conv, DType::kBF16);
    g.graph_.outputs = {from(conv, g.integers({-1})), present};
    g.graph_.rebuild_links();
    EXPECT_EQ(bind_window(g.graph_, g.graph_.users(), past, 2), !padded);
    EXPECT_EQ(g.graph_.values[present].info.shape[2], padded ? rows : Dim(3));
  }
}

// What an input means does not depend on which others were told before: a mask, and a number that has two dims.
TEST(BindInputs, EveryPlaceIsTold) {
  TestGraph g;
  const Dim tokens = Dim::symbol(g.graph_.symbol("sequence"));
  const ValueId ids = g.input("input_ids", {Dim(1), tokens}, DType::kI64),
                mask = g.input("attention_mask", {Dim(1), Dim::symbol(g.graph_.symbol("total"))}, DType::kI64);
  const ValueId places[] = {g.input("start", {Dim(1), Dim(1)}, DType::kI64), g.input("begin", {Dim(1)}, DType::kI64),
                            g.input("from", {Dim(1), Dim(1)}, DType::kI64)};
  const ValueId x = g.op("Gather", {g.floats_of(std::vector<float>(64), {16, 4}), ids});
  const ValueId rows = g.op("Reshape", {x, g.integers({-1, 4})});
  g.graph_.outputs = {g.op("MatMul", {x, g.floats_of(std::vector<float>(64), {4, 16})}),
                      g.op("Neg", {g.cast(mask, DType::kF32)})};
  for (const ValueId place : places) {
    const ValueId cache = g.floats_of(std::vector<float>(32), {8, 4});
    const ValueId at = g.op("Add", {g.op("Reshape", {place, g.integers({-1})}), g.range(Dim(0), tokens)});
    g.graph_.outputs.push_back(g.op("ScatterND", {g.op("Neg", {cache}), g.unsqueeze(at, 1), rows}));
  }
  g.graph_.inputs.resize(5);  // without what ranges count by
  test::TestContext at(g.graph_, 16);
  g.graph_.rebuild_links();
  const Status bound = bind_inputs(at.context);
  ASSERT_TRUE(bound.is_ok()) << bound.message();
  EXPECT_EQ(g.graph_.inputs, std::vector<ValueId>{ids});
  EXPECT_EQ(g.graph_.values[places[1]].info.content, Shape{test::P()});
  for (const ValueId v : {places[0], places[2]}) {
    const Node* made = g.graph_.producer(v, "Reshape");
    ASSERT_TRUE(made);
    EXPECT_EQ(g.graph_.values[made->in[0]].info.content, Shape{test::P()});
  }
}

// A mask with a row for each token and a column for each place of a cache that steps write into.
TEST(BindInputs, AMaskOfPlacesForEachToken) {
  TestGraph g;
  const Dim tokens = Dim::symbol(g.graph_.symbol("sequence"));
  const ValueId ids = g.input("input_ids", {Dim(1), tokens}, DType::kI64),
                mask = g.input("attention_mask", {Dim(1), Dim(1), tokens, Dim(8)}, DType::kBool),
                places = g.input("position_ids", {Dim(1), tokens}, DType::kI64),
                past = g.input("past_key_values.0.key", {Dim(1), Dim(8), Dim(4)});
  const ValueId x = g.op("Gather", {g.floats_of(std::vector<float>(64), {16, 4}), ids}),
                at = g.unsqueeze(g.op("Reshape", {places, g.integers({-1})}), 1),
                written = g.op("ScatterND", {g.op("Squeeze", {past, g.integers({0})}), at,
                                             g.op("Reshape", {x, g.integers({-1, 4})})}),
                present = g.unsqueeze(written, 0);
  g.graph_.values[present].name = "present.0.key";
  g.graph_.outputs = {g.op("MatMul", {x, g.floats_of(std::vector<float>(64), {4, 16})}), present,
                      g.op("Neg", {g.cast(mask, DType::kF32)})};
  test::TestContext context(g.graph_, 8);
  g.graph_.rebuild_links();
  const Status bound = bind_inputs(context.context);
  ASSERT_TRUE(bound.is_ok()) << bound.message();
  g.infer(context.context);
  const Prober prober(g.graph_, context.binding, context.evaluator);
  const Result<Tensor> shown = prober.host_value(mask, 2, 3);
  ASSERT_TRUE(shown.is_ok()) << shown.status().message();
  EXPECT_EQ(shown->dims(), (std::vector<int64_t>{1, 1, 2, 8}));
  EXPECT_EQ(shown->to_f64(), (std::vector<double>{1, 1, 1, 1, 0, 0, 0, 0, 1, 1, 1, 1, 1, 0, 0, 0}));
}

// Layers in one tensor, of which two are read and written by their numbers; not where one is counted from behind.
TEST(BindInputs, ATensorOfAllLayersHasThoseThatAreUsed) {
  for (const int64_t second : {1, -1}) {
    TestGraph g;
    const Dim layers = Dim::symbol(g.graph_.symbol("layers"));
    const ValueId past = g.input("past", {Dim(1), Dim(3), layers});
    ValueId state = past;
    for (const int64_t i : {int64_t{0}, second}) {
      const ValueId row = g.op("Gather", {state, g.integer(i)}, {{"axis", 2}});
      Tensor places = Tensor::allocate(DType::kI64, {1, 3, 1});
      std::fill_n(places.view().as<int64_t>(), 3, i);
      state = g.op("ScatterElements", {state, g.constant(places), g.unsqueeze(row, 2)}, {{"axis", 2}});
    }
    g.graph_.values[state].info = g.graph_.values[past].info;
    g.graph_.outputs = {state};
    g.graph_.rebuild_links();
    EXPECT_EQ(bind_numbered(g.graph_, g.graph_.users(), past, 2), second == 1);
    EXPECT_EQ(g.graph_.values[state].info.shape[2], second == 1 ? Dim(2) : layers);
  }
}

}  // namespace
}  // namespace situ
