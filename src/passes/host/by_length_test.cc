// Numbers that follow the length of a sequence, in all spellings: at which lengths they become other ones.
#include "passes/host/by_length.h"
#include "passes/compile/test_graph.h"
#include "passes/context/binding.h"

#include <cmath>
#include <functional>

namespace situ {
namespace {

using test::P, test::S, test::TestGraph;

using Turns = std::vector<int64_t>;

struct Spelled {
  const char* name;
  std::function<ValueId(TestGraph&, ValueId length)> make;  // of the length, an integer without axes
  Turns turns;                                              // within 300 tokens
  bool few = true;
};

ValueId real(TestGraph& g, ValueId x) { return g.cast(x, DType::kF32); }
ValueId rows(TestGraph& g, ValueId index) {
  return g.op("Gather", {g.floats_of({1, 2, 3, 4, 5, 6, 7, 8, 9, 10}, {5, 2}), index});
}
ValueId quotient(TestGraph& g, ValueId x, int64_t by) { return g.op("Div", {x, g.integer(by)}); }
ValueId less(TestGraph& g, ValueId x, int64_t by) { return g.op("Sub", {x, g.integer(by)}); }

const Spelled kSpelled[] = {
    {"greater", [](TestGraph& g, ValueId n) { return g.op("Greater", {n, g.integer(64)}); }, {65}},
    {"half_of_it", [](TestGraph& g, ValueId n) { return g.op("Greater", {quotient(g, n, 2), g.integer(32)}); }, {66}},
    {"times_a_half",
     [](TestGraph& g, ValueId n) {
       return g.op("Greater", {g.op("Mul", {real(g, n), g.number(0.5f)}), g.number(32.2f)});
     },
     {65}},
    {"logarithm",
     [](TestGraph& g, ValueId n) { return g.op("Greater", {g.op("Log", {real(g, n)}), g.number(std::log(64.5f))}); },
     {65}},
    {"clipped",
     [](TestGraph& g, ValueId n) { return g.op("Min", {g.op("Max", {less(g, n, 64), g.integer(0)}), g.integer(1)}); },
     {65}},
    {"clipped_float",
     [](TestGraph& g, ValueId n) {
       return g.op("Clip", {g.op("Sub", {real(g, n), g.number(64)}), g.number(0), g.number(1)});
     },
     {65}},
    {"sign",
     [](TestGraph& g, ValueId n) { return g.op("Relu", {g.op("Sign", {g.op("Sub", {real(g, n), g.number(64.5f)})})}); },
     {65}},
    {"row_of_a_table",
     [](TestGraph& g, ValueId n) { return rows(g, g.op("Min", {quotient(g, less(g, n, 1), 64), g.integer(1)})); },
     {65}},
    {"five_rows",
     [](TestGraph& g, ValueId n) { return rows(g, g.op("Clip", {quotient(g, n, 50), g.integer(0), g.integer(4)})); },
     {50, 100, 150, 200}},
    {"often_between_two",
     [](TestGraph& g, ValueId n) {
       return g.op("Greater", {g.op("Mod", {quotient(g, n, 50), g.integer(2)}), g.integer(0)});
     },
     {50, 100, 150, 200, 250, 300}},
    {"floor_of_a_logarithm",
     [](TestGraph& g, ValueId n) {
       const ValueId log = g.op("Div", {g.op("Log", {real(g, n)}), g.number(std::log(4.0f))});
       return g.op("Floor", {g.op("Add", {log, g.number(1e-4f)})});
     },
     {4, 16, 64, 256}},
    {"beyond_which_limits",
     [](TestGraph& g, ValueId n) {
       const ValueId beyond = g.op("Greater", {g.unsqueeze(n, 0), g.integers({20, 40, 280})});
       return g.op("ReduceSum", {g.cast(beyond, DType::kI64), g.integers({0})}, {{"keepdims", 0}});
     },
     {21, 41, 281}},
    {"blended_factors",
     [](TestGraph& g, ValueId n) {
       const ValueId s = g.cast(g.op("Greater", {n, g.integer(7)}), DType::kF32);
       const ValueId far = g.op("Mul", {g.floats_of({1, 2}, {2}), s});
       return g.op("Add", {far, g.op("Mul", {g.floats_of({3, 4}, {2}), g.op("Sub", {g.number(1), s})})});
     },
     {8}},
    {"in_no_context", [](TestGraph& g, ValueId n) { return g.op("Greater", {n, g.integer(300)}); }, {}},
    {"dynamic",  // NTK: by each length beyond 64
     [](TestGraph& g, ValueId n) { return g.op("Div", {g.number(64), real(g, g.op("Max", {n, g.integer(64)}))}); },
     {65, 66, 67},
     false},
    {"the_length", [](TestGraph& g, ValueId n) { return real(g, n); }, {2, 3, 4}, false},
    {"every_other", [](TestGraph& g, ValueId n) { return g.op("Mod", {n, g.integer(2)}); }, {2, 3, 4}, false},
};

ValueId mask_of_ones(TestGraph& g) { return g.filled({Dim(1), P() + S()}, Tensor::vector_i64({1})); }

// How graphs come to the length.
const std::pair<const char*, std::function<ValueId(TestGraph&, Binding&)>> kLengths[] = {
    {"of shapes", [](TestGraph& g, Binding&) { return g.dim(P() + S()); }},
    {"of positions",
     [](TestGraph& g, Binding& b) {
       const ValueId positions = g.input("positions", {Dim(1), S()}, DType::kI64);
       b.inputs[positions] = InputRole::kPositions;
       return g.op("Add", {g.op("ReduceMax", {positions}, {{"keepdims", 0}}), g.integer(1)});
     }},
    {"of the last position",
     [](TestGraph& g, Binding& b) {
       const ValueId positions = g.input("positions", {S()}, DType::kI64);
       b.inputs[positions] = InputRole::kPositions;
       return g.op("Add", {g.op("Gather", {positions, g.integer(-1)}), g.integer(1)});
     }},
    {"of a mask's sum",
     [](TestGraph& g, Binding&) {
       return g.op("ReduceSum", {mask_of_ones(g), g.integers({0, 1})}, {{"keepdims", 0}});
     }},
    {"of counted positions",
     [](TestGraph& g, Binding&) {
       const ValueId positions = g.op("Sub", {g.op("CumSum", {mask_of_ones(g), g.integer(1)}), g.integer(1)});
       return g.op("Add", {g.op("ReduceMax", {positions}, {{"keepdims", 0}}), g.integer(1)});
     }},
};

TEST(ByLength, EverySpelling) {
  constexpr int64_t kContext = 300;
  for (const auto& [how, length] : kLengths)
    for (const Spelled& spelled : kSpelled) {
      SCOPED_TRACE(std::string(spelled.name) + " " + how);
      TestGraph g;
      Binding binding;
      const ValueId v = spelled.make(g, length(g, binding));
      test::TestContext at(g.graph_, kContext);
      at.binding = binding;
      g.infer(at.context);
      Prober prober(g.graph_, at.binding, at.evaluator);
      if (!prober.changes(v)) {
        EXPECT_EQ(spelled.turns, Turns());
        continue;
      }
      LengthValues values(g.graph_, prober, at.evaluator, Phase::kAny, kContext);
      const ByLength* few = values.few(v);
      ASSERT_EQ(few != nullptr, spelled.few);
      if (few) {
        EXPECT_EQ(few->turns, spelled.turns);
        EXPECT_TRUE(values.often(v).empty());
        for (const int64_t n : {1, 7, 8, 49, 50, 64, 65, 66, 255, 256, 300})
          EXPECT_EQ(few->at(n).to_f64(), prober.host_value(v, 1, n - 1)->to_f64()) << n;
      } else {
        Turns first = values.often(v);
        ASSERT_GE(first.size(), spelled.turns.size());
        first.resize(spelled.turns.size());
        EXPECT_EQ(first, spelled.turns);
      }
    }
}

// What changes behind a length that is looked at nowhere else.
TEST(ByLength, InALongContext) {
  constexpr int64_t kContext = 200000;
  TestGraph g;
  const ValueId n = g.dim(P() + S());
  const ValueId half = g.op("Greater", {quotient(g, n, 2), g.integer(75000)});
  const ValueId log = g.op("Greater", {g.op("Log", {real(g, n)}), g.number(std::log(150000.5f))});
  const ValueId past = g.op("Greater", {g.dim(P()), g.integer(64)}), step = g.op("Greater", {g.dim(S()), g.integer(1)});
  test::TestContext at(g.graph_, kContext);
  g.infer(at.context);
  Prober prober(g.graph_, at.binding, at.evaluator);
  LengthValues values(g.graph_, prober, at.evaluator, Phase::kAny, kContext);
  ASSERT_TRUE(values.few(half) && values.few(log));
  EXPECT_EQ(values.few(half)->turns, (Turns{150002}));
  EXPECT_EQ(values.few(log)->turns, (Turns{150001}));
  for (const ValueId v : {past, step}) {
    EXPECT_EQ(values.few(v), nullptr);
    EXPECT_TRUE(values.often(v).empty());
  }
}

TEST(ByLength, AsDims) {
  ByLength number;
  number.turns = {5, 9};
  for (const int64_t n : {7, 0, 3}) number.values.push_back(Tensor::scalar_i64(n));
  SymbolValues symbols;
  for (const auto& [length, stage, value] : {std::tuple{1, 0, 7}, {4, 0, 7}, {5, 1, 0}, {8, 1, 0}, {9, 2, 3}}) {
    symbols[kSymT] = length;
    EXPECT_EQ(number.stage(Dim::symbol(kSymT)).eval(symbols), stage);
    EXPECT_EQ(number.of(Dim::symbol(kSymT)).eval(symbols), value);
  }
}

}  // namespace
}  // namespace situ
