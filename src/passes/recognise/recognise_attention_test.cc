// What recognise_attention makes of biases by distance, of keys that are no tokens and of rows that all see each other:
// the result is that of the graph as it was, for steps of all kinds, and the operands are those that were meant.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "base/sweep_for_tests.h"
#include "passes/compile/test_graph.h"
#include "passes/compile/token_order.h"
#include "passes/context/pass_context.h"
#include "passes/host/infer.h"
#include "passes/move/passes.h"
#include "passes/recognise/passes.h"

namespace situ {
namespace {

constexpr int64_t kHeads = 4, kSize = 8, kBuckets = 16, kContext = 300;
constexpr float kHidden = -3.4e38f;

// Attention of rows over keys, with whatever a test adds to the scores.
class AttentionGraph : public test::TestGraph {
 public:
  AttentionGraph(Dim queries, Dim keys, int64_t context = kContext)
      : queries_(std::move(queries)), keys_(std::move(keys)), context_(context) {
    graph_.symbol("E");  // the first of the file
  }

  using Adds = std::function<ValueId(AttentionGraph&, ValueId scores)>;
  void layer(const Adds& adds) {
    const ValueId q = rows_of("q", queries_), k = rows_of("k", keys_), v = rows_of("v", keys_);
    const ValueId scores = op("MatMul", {q, op("Transpose", {k}, {}, {0, 1, 3, 2})});
    const ValueId p = op("Softmax", {adds(*this, scores)}, {{"axis", -1}});
    graph_.outputs.push_back(op("MatMul", {p, v}));
  }

  ValueId ones(const Dim& n) { return op("ConstantOfShape", {graph_.add_shape("shape", {Dim(1), n})}); }

  // Key position - query position [rows, keys], of `rows` queries from position `first` on.
  ValueId distance(const Dim& first, const Dim& rows) {
    return op("Sub", {unsqueeze(range(Dim(0), keys_), 0), unsqueeze(range(first, first + rows), 1)});
  }
  Dim past() const { return keys_ - queries_; }

  // T5's buckets of `distance`: exact for small ones, then by their logarithm.
  ValueId buckets(ValueId distance, bool bidirectional) {
    ValueId n = kNoValue, result = kNoValue;
    int64_t count = kBuckets;
    if (bidirectional) {
      count /= 2;
      result = op("Mul", {cast(op("Greater", {distance, integer(0)}), DType::kI64), integer(count)});
      n = op("Abs", {distance});
    } else {
      const ValueId zeros = op("ConstantOfShape", {op("Shape", {distance})});
      graph_.nodes.back().attrs["value"].kind = Attribute::Kind::kTensor;
      graph_.nodes.back().attrs["value"].tensor = Tensor::vector_i64({0});
      n = op("Neg", {op("Min", {distance, zeros})});
    }
    const int64_t exact = count / 2;
    const float scale = static_cast<float>(count - exact) / std::log(128.0f / static_cast<float>(exact));
    ValueId far = op("Log", {op("Div", {cast(n, DType::kF32), number(static_cast<float>(exact))})});
    far = op("Add", {cast(op("Mul", {far, number(scale)}), DType::kI64), integer(exact)});
    far = op("Min", {far, integer(count - 1)});
    const ValueId bucket = op("Where", {op("Less", {n, integer(exact)}), n, far});
    return bidirectional ? op("Add", {result, bucket}) : bucket;
  }
  // [1, H, queries, keys], made for all positions of which the last are taken, as exports of T5 have it.
  ValueId relative_bias(bool bidirectional) {
    std::vector<float> table;
    for (int64_t i = 0; i < kBuckets * kHeads; ++i) table.push_back(static_cast<float>(i * 37 % 101) / 20 - 2);
    const ValueId all =
        op("Gather", {floats_of(table, {kBuckets, kHeads}), buckets(distance(Dim(0), keys_), bidirectional)});
    const ValueId heads = unsqueeze(op("Transpose", {all}, {}, {2, 0, 1}), 0);
    const ValueId begin = unsqueeze(dim(Dim(0) - queries_), 0);
    return op("Slice", {heads, begin, integers({INT64_MAX}), integers({2}), integers({1})});
  }
  // [1, 1, queries, keys]
  ValueId causal_mask() {
    const ValueId hidden = op("Greater", {distance(past(), queries_), integer(0)});
    return unsqueeze(unsqueeze(op("Where", {hidden, number(kHidden), number(0)}), 0), 0);
  }

  // Runs the pass, behind simplify() if that is wanted; the result must be that of the graph as it was.
  void recognise(Phase phase = Phase::kAny, bool simplified = false) {
    test::TestContext at(graph_, context_);
    PassContext& context = at.context;
    context.phase = phase;
    infer(context);
    const Graph before = graph_;
    if (simplified) {
      ASSERT_TRUE(simplify(context).is_ok());
      graph_.rebuild_links();
    }
    const Status passed = recognise_attention(context);
    ASSERT_TRUE(passed.is_ok()) << passed.message();
    const Status inferred = infer_shapes(context);
    ASSERT_TRUE(inferred.is_ok()) << inferred.message();
    order = token_order(graph_, at.binding, at.evaluator, phase, context_);
    for (auto [tokens, past] : {std::pair<int64_t, int64_t>{1, 0}, {3, 0}, {2, 5}, {40, 0}, {1, 250}, {30, 200}}) {
      if (tokens + past > context_) continue;
      Prober was(before, at.binding, at.evaluator), is(graph_, at.binding, at.evaluator);
      std::map<ValueId, Tensor> leaves;
      for (size_t i = 0; i < data_.size(); ++i)
        leaves[data_[i]] = was.random(was.dims(data_[i], tokens, past), static_cast<uint32_t>(i + 1));
      for (ValueId y : graph_.outputs) {
        const Result<Tensor> a = was.evaluate(y, leaves, tokens, past), b = is.evaluate(y, leaves, tokens, past);
        ASSERT_TRUE(a.is_ok() && b.is_ok()) << (a.is_ok() ? b : a).status().message();
        const std::vector<float> want = floats(*a), got = floats(*b);
        ASSERT_EQ(want.size(), got.size());
        for (size_t i = 0; i < want.size(); ++i) ASSERT_NEAR(got[i], want[i], tolerance) << tokens << ", " << past;
      }
    }
  }
  std::vector<const Node*> attention() const {
    std::vector<const Node*> found;
    for (const Node& n : graph_.nodes)
      if (n.is("Attention", "situ")) found.push_back(&n);
    return found;
  }
  size_t nodes() const { return graph_.nodes.size(); }
  double tolerance = 2e-5;
  using test::TestGraph::constant;
  const Tensor& constant(ValueId v) const { return graph_.values[v].constant; }
  TokenOrder order;

 private:
  ValueId rows_of(const std::string& name, const Dim& rows) {
    data_.push_back(input(name + std::to_string(data_.size()), {Dim(1), Dim(kHeads), rows, Dim(kSize)}));
    return data_.back();
  }

  const Dim queries_, keys_;
  const int64_t context_;
  std::vector<ValueId> data_;
};

using test::P, test::S;
Dim E() { return Dim::symbol(kFirstFileSymbol); }

void expect_by_distance(const AttentionGraph& g, size_t layers, bool causal) {
  const std::vector<const Node*> found = g.attention();
  ASSERT_EQ(found.size(), layers);
  for (const Node* n : found) {
    EXPECT_FALSE(n->has_input(3));
    EXPECT_FALSE(n->has_input(4));
    ASSERT_TRUE(n->has_input(6));
    EXPECT_EQ(n->in[6], found[0]->in[6]);
    EXPECT_EQ(n->attr_int("causal", 0) != 0, causal);
    EXPECT_LE(n->attr_int("window", 0), 0);
  }
  EXPECT_LE(g.constant(found[0]->in[6]).dims()[1], 260);  // distances that differ
}

TEST(DistanceBias, DecoderAddsItsMaskFirst) {
  AttentionGraph g(S(), P() + S());
  const ValueId both = g.op("Add", {g.relative_bias(false), g.causal_mask()});
  for (int i = 0; i < 2; ++i) g.layer([&](AttentionGraph& a, ValueId s) { return a.op("Add", {s, both}); });
  g.recognise();
  expect_by_distance(g, 2, true);
  EXPECT_EQ(g.order.mixing, "");
  EXPECT_EQ(g.order.one_sequence, "");
}

TEST(DistanceBias, DecoderAddsItsMaskLater) {
  AttentionGraph g(S(), P() + S());
  const ValueId bias = g.relative_bias(false), mask = g.causal_mask();
  for (int i = 0; i < 3; ++i)
    g.layer([&](AttentionGraph& a, ValueId s) {
      return i == 0 ? a.op("Add", {a.op("Add", {s, bias}), mask}) : a.op("Add", {bias, a.op("Add", {s, mask})});
    });
  g.recognise();
  expect_by_distance(g, 3, true);
  EXPECT_EQ(g.order.mixing, "");
}

TEST(DistanceBias, LayersWithConesOfTheirOwnShareATable) {
  AttentionGraph g(S(), P() + S());
  for (int i = 0; i < 2; ++i)
    g.layer([](AttentionGraph& a, ValueId s) {
      return a.op("Add", {s, a.op("Add", {a.relative_bias(false), a.causal_mask()})});
    });
  g.recognise();
  expect_by_distance(g, 2, true);
}

TEST(DistanceBias, Encoder) {
  AttentionGraph g(S(), S());
  const ValueId ones = g.ones(S());
  const ValueId hidden = g.op("Mul", {g.cast(g.op("Equal", {ones, g.number(1)}), DType::kF32), g.number(kHidden)});
  const ValueId both = g.op("Add", {g.relative_bias(true), g.unsqueeze(g.unsqueeze(hidden, 1), 1)});
  for (int i = 0; i < 2; ++i) g.layer([&](AttentionGraph& a, ValueId s) { return a.op("Add", {s, both}); });
  g.recognise();
  expect_by_distance(g, 2, false);
  EXPECT_NE(g.order.mixing, "");
}

TEST(DistanceBias, SingleTokens) {
  AttentionGraph g(Dim(1), P() + Dim(1));
  const ValueId bias = g.relative_bias(false);
  g.layer([&](AttentionGraph& a, ValueId s) { return a.op("Add", {s, bias}); });
  g.recognise(Phase::kDecode);
  ASSERT_EQ(g.attention().size(), 1u);
  EXPECT_TRUE(g.attention()[0]->has_input(6));
  EXPECT_FALSE(g.attention()[0]->has_input(3));
}

// The causal mask is in the table of distances.
TEST(DistanceBias, MaskByDistance) {
  AttentionGraph g(S(), P() + S());
  const ValueId d = g.distance(g.past(), S());
  std::vector<float> slopes{0.1f, 0.4f, 0.2f, 0.3f};
  ValueId bias =
      g.op("Mul", {g.op("Sin", {g.unsqueeze(g.cast(d, DType::kF32), 0)}), g.floats_of(slopes, {kHeads, 1, 1})});
  bias = g.op("Where", {g.op("Greater", {d, g.integer(0)}), g.number(kHidden), bias});
  g.layer([&](AttentionGraph& a, ValueId s) { return a.op("Add", {s, bias}); });
  g.recognise();
  ASSERT_EQ(g.attention().size(), 1u);
  EXPECT_TRUE(g.attention()[0]->has_input(6));
  EXPECT_EQ(g.attention()[0]->attr_int("causal", 0), 1);
}

// A table that has no rows for later keys tells all that a causal attention reads.
TEST(DistanceBias, TableOfPastDistances) {
  AttentionGraph g(S(), P() + S());
  std::vector<float> numbers;
  for (int64_t i = 0; i < kContext * kHeads; ++i) numbers.push_back(static_cast<float>(i * 37 % 101) / 50 - 1);
  const ValueId back = g.op("Neg", {g.distance(g.past(), S())}), seen = g.op("Max", {back, g.integer(0)});
  for (const bool clamped : {false, true}) {
    ValueId bias = g.op("Gather", {g.floats_of(numbers, {kContext, kHeads}),
                                   clamped ? seen : g.op("Add", {back, g.op("Mul", {back, g.integer(0)})})});
    bias = g.op("Transpose", {bias}, {}, {2, 0, 1});
    const ValueId mask = g.causal_mask();
    g.layer([&](AttentionGraph& a, ValueId s) { return a.op("Add", {a.op("Add", {s, bias}), mask}); });
  }
  g.recognise();
  ASSERT_EQ(g.attention().size(), 2u);
  EXPECT_TRUE(g.attention()[0]->has_input(6));
  EXPECT_TRUE(g.attention()[1]->has_input(6));
}

// What hides keys by another rule stays an operand beside the table.
TEST(DistanceBias, BesideAMaskWithoutClosedForm) {
  AttentionGraph g(S(), P() + S());
  const ValueId query = g.op("Div", {g.unsqueeze(g.range(P(), P() + S()), 1), g.integer(7)}),
                key = g.op("Div", {g.unsqueeze(g.range(Dim(0), P() + S()), 0), g.integer(7)});
  const ValueId mask = g.op("Where", {g.op("Equal", {query, key}), g.number(0), g.number(kHidden)});
  const ValueId both = g.op("Add", {g.relative_bias(true), mask});
  g.layer([&](AttentionGraph& a, ValueId s) { return a.op("Add", {s, both}); });
  g.recognise();
  ASSERT_EQ(g.attention().size(), 1u);
  EXPECT_TRUE(g.attention()[0]->has_input(6));
  EXPECT_TRUE(g.attention()[0]->has_input(3));
}

// Biases that only look like it: none may become a table of distances.
TEST(DistanceBias, OtherBiases) {
  using Make = std::function<ValueId(AttentionGraph&)>;
  std::vector<float> numbers;
  for (int64_t i = 0; i < kContext * kHeads; ++i) numbers.push_back(static_cast<float>(i * 37 % 101) / 50 - 1);
  const auto looked_up = [&](AttentionGraph& g, ValueId index) {
    return g.op("Transpose", {g.op("Gather", {g.floats_of(numbers, {kContext, kHeads}), index})}, {}, {2, 0, 1});
  };
  const std::map<std::string, Make> biases{
      {"by key", [&](AttentionGraph& g) { return looked_up(g, g.unsqueeze(g.range(Dim(0), P() + S()), 0)); }},
      {"by query", [&](AttentionGraph& g) { return looked_up(g, g.unsqueeze(g.range(P(), P() + S()), 1)); }},
      {"by the sum",
       [&](AttentionGraph& g) {
         const ValueId sum =
             g.op("Add", {g.unsqueeze(g.range(Dim(0), P() + S()), 0), g.unsqueeze(g.range(P(), P() + S()), 1)});
         return looked_up(g, g.op("Min", {sum, g.integer(kContext - 1)}));
       }},
      {"twice the distance",
       [&](AttentionGraph& g) {
         const ValueId d = g.op("Abs", {g.op("Mul", {g.distance(P(), S()), g.integer(2)})});
         return looked_up(g, g.op("Min", {d, g.integer(kContext - 1)}));
       }},
      {"from the first query of the step",
       [&](AttentionGraph& g) { return looked_up(g, g.op("Abs", {g.distance(Dim(0), S())})); }},
      {"by distance and length",
       [&](AttentionGraph& g) {
         const ValueId d = g.op("Abs", {g.distance(P(), S())});
         return looked_up(g, g.op("Min", {d, g.op("Div", {g.dim(P() + S()), g.integer(2)})}));
       }},
      {"by distance, another one for far keys",
       [&](AttentionGraph& g) {
         const ValueId near = g.op("Less", {g.unsqueeze(g.range(Dim(0), P() + S()), 0), g.integer(230)});
         return looked_up(g, g.op("Where", {near, g.op("Abs", {g.distance(P(), S())}), g.integer(9)}));
       }},
  };
  for (const auto& [name, make] : biases) {
    SCOPED_TRACE(name);
    AttentionGraph g(S(), P() + S());
    const ValueId both = g.op("Add", {make(g), g.causal_mask()});
    g.layer([&](AttentionGraph& a, ValueId s) { return a.op("Add", {s, both}); });
    g.recognise();
    for (const Node* n : g.attention()) EXPECT_FALSE(n->has_input(6));
  }
}

// What follows the sum may change what was added.
TEST(DistanceBias, ScaledBehindTheSum) {
  AttentionGraph g(S(), P() + S());
  const ValueId both = g.op("Add", {g.relative_bias(false), g.causal_mask()});
  g.layer([&](AttentionGraph& a, ValueId s) { return a.op("Mul", {a.op("Add", {s, both}), a.number(0.5f)}); });
  g.layer([&](AttentionGraph& a, ValueId s) {
    return a.op("Sub", {s, a.op("Add", {a.relative_bias(false), a.relative_bias(true)})});
  });
  g.recognise();
  for (const Node* n : g.attention()) EXPECT_FALSE(n->has_input(6));
}

// -- masks that are parts of a table, as long as the context

// A row of `seen` for each query; without the entry `but`, if that is one.
AttentionGraph masked_by_table(int64_t length, int64_t but = -1) {
  AttentionGraph g(S(), P() + S(), length);
  Tensor seen = Tensor::allocate(DType::kBool, {1, 1, length, length});
  for (int64_t i = 0; i < length * length; ++i) seen.view().as<uint8_t>()[i] = i % length <= i / length && i != but;
  g.layer([&](AttentionGraph& a, ValueId scores) {
    const ValueId one = a.integers({1}), keys = a.unsqueeze(a.dim(P() + S()), 0);
    ValueId mask = a.op("Slice", {a.constant(seen), a.unsqueeze(a.dim(P()), 0), keys, a.integers({2}), one});
    mask = a.op("Slice", {mask, a.integers({0}), keys, a.integers({3}), one});
    return a.op("Where", {mask, scores, a.number(kHidden)});
  });
  g.recognise();
  return g;
}

TEST(MaskTables, AreRulesInAnyContext) {
  const std::vector<int64_t> lengths{5, 8, 16, 15, 13, 17, 33, 32, 31, 34, 65, 48};
  for (size_t i = 0; i < lengths.size(); i += static_cast<size_t>(sweep_stride(2))) {
    const int64_t length = lengths[i];
    SCOPED_TRACE(length);
    const AttentionGraph g = masked_by_table(length);
    ASSERT_EQ(g.attention().size(), 1u);
    EXPECT_FALSE(g.attention()[0]->has_input(3));
    EXPECT_EQ(g.attention()[0]->attr_int("causal", 0), 1);
  }
}

TEST(MaskTables, EveryEntryTells) {
  const std::vector<int64_t> lengths{5, 15, 16, 48, 33, 32};
  for (size_t i = 0; i < lengths.size(); i += static_cast<size_t>(sweep_stride(2)))
    for (const int64_t length = lengths[i];
         const int64_t but : {length + 1, (length - 1) * length + 2, length * length - 2})
      EXPECT_TRUE(masked_by_table(length, but).attention().empty()) << length << ", " << but;
}

// -- keys that are rows of another source, or of the step alone

void expect_plain(const AttentionGraph& g) {
  ASSERT_EQ(g.attention().size(), 1u);
  for (size_t i = 3; i < 7; ++i) EXPECT_FALSE(g.attention()[0]->has_input(i)) << i;
  EXPECT_EQ(g.attention()[0]->attr_int("causal", 0), 0);
}

TEST(OtherKeys, OnesHideNothing) {
  for (const Dim& keys : {E(), S()}) {
    for (const std::string form : {"added", "chosen", "multiplied", "none"}) {
      SCOPED_TRACE(form);
      AttentionGraph g(S(), keys);
      const ValueId zeros =
          g.op("Expand", {g.unsqueeze(g.ones(keys), 1),
                          g.op("Concat", {g.integers({1, 1}), g.unsqueeze(g.dim(S()), 0), g.unsqueeze(g.dim(keys), 0)},
                               {{"axis", 0}})});
      const ValueId one = g.op("Sub", {g.number(1), zeros});
      g.layer([&](AttentionGraph& a, ValueId s) {
        const ValueId hidden = a.op("Mul", {a.op("Sub", {a.number(1), one}), a.number(kHidden)});
        if (form == "added") return a.op("Add", {s, hidden});
        if (form == "chosen") return a.op("Where", {a.cast(one, DType::kBool), s, a.number(kHidden)});
        if (form == "multiplied")
          return a.op("Add", {a.op("Mul", {s, a.cast(a.cast(one, DType::kBool), DType::kF32)}), hidden});
        return a.op("Mul", {s, a.number(0.3f)});
      });
      g.recognise();
      expect_plain(g);
      // Rows of another source are no tokens; those of the step are.
      EXPECT_EQ(g.order.mixing.empty(), keys == E());
    }
  }
}

// What hides some keys is computed, and not forgotten.
// A grid of one picture, say: more scores than are probed.
TEST(OtherKeys, ZerosByRowAreNoMask) {
  for (const bool zeros : {true, false}) {
    AttentionGraph g(Dim(1100), Dim(1100));
    g.layer([&](AttentionGraph& a, ValueId scores) {
      std::vector<float> mask(1100 * 1100);
      if (!zeros) mask[7] = kHidden;
      return a.op("Add", {scores, a.floats_of(mask, {1100, 1100})});
    });
    g.recognise(Phase::kAny, true);
    if (zeros)
      expect_plain(g);
    else
      EXPECT_TRUE(g.attention().empty());
  }
}

TEST(OtherKeys, MasksStay) {
  for (const Dim& keys : {E(), S()}) {
    AttentionGraph g(S(), keys);
    const ValueId hidden =
        g.op("Where", {g.op("Greater", {g.range(Dim(0), keys), g.integer(4)}), g.number(kHidden), g.number(0)});
    g.layer([&](AttentionGraph& a, ValueId s) { return a.op("Add", {s, hidden}); });
    g.recognise();
    ASSERT_EQ(g.attention().size(), 1u);
    EXPECT_TRUE(g.attention()[0]->has_input(3));
  }
  // Rows that see themselves and those before them.
  AttentionGraph g(S(), S());
  const ValueId mask = g.causal_mask();
  g.layer([&](AttentionGraph& a, ValueId s) { return a.op("Add", {s, mask}); });
  g.recognise();
  ASSERT_EQ(g.attention().size(), 1u);
  EXPECT_TRUE(g.attention()[0]->has_input(3) || g.attention()[0]->attr_int("causal", 0) != 0);
}

// -- rules about positions

// Query 1600 is where what is counted up to it is some number: it sees all keys, its later ones too. Far behind what is
// looked at query by query.
TEST(Masks, OneQueryFarOutByASum) {
  for (const std::string kind : {"sum of positions", "count of tokens"}) {
    SCOPED_TRACE(kind);
    AttentionGraph g(S(), P() + S(), 1700);
    const ValueId positions = g.range(Dim(0), P() + S());
    const ValueId counted =
        kind == "count of tokens" ? g.cast(g.op("GreaterOrEqual", {positions, g.integer(0)}), DType::kI64) : positions;
    const int64_t there = kind == "count of tokens" ? 1601 : 1600 * 1601 / 2;
    const ValueId alone = g.op("Equal", {g.op("CumSum", {counted, g.integer(0)}), g.integer(there)});
    const ValueId rows =
        g.op("Slice", {g.unsqueeze(alone, 1), g.unsqueeze(g.dim(P()), 0), g.integers({INT64_MAX}), g.integers({0})});
    const ValueId seen = g.op("Or", {g.op("LessOrEqual", {g.distance(P(), S()), g.integer(0)}), rows});
    const ValueId mask = g.op("Where", {seen, g.number(0), g.number(kHidden)});
    g.layer([&](AttentionGraph& a, ValueId s) { return a.op("Add", {s, mask}); });
    g.recognise();
    for (const Node* n : g.attention()) EXPECT_TRUE(n->has_input(3));
    EXPECT_NE(g.order.mixing, "");
  }
}

// Behind the keys that all heads of a step are looked at together with.
TEST(Masks, OneQueryFurtherOut) {
  constexpr int64_t kThere = 500000;
  AttentionGraph g(S(), P() + S(), 600000);
  const ValueId own = g.op("Equal", {g.unsqueeze(g.range(P(), P() + S()), 1), g.integer(kThere)}),
                early = g.op("Less", {g.unsqueeze(g.range(Dim(0), P() + S()), 0), g.integer(8)});
  const ValueId hidden = g.op("Or", {g.op("Greater", {g.distance(P(), S()), g.integer(0)}), g.op("And", {own, early})});
  const ValueId mask = g.op("Where", {hidden, g.number(kHidden), g.number(0)});
  g.layer([&](AttentionGraph& a, ValueId s) { return a.op("Add", {s, mask}); });
  g.recognise();
  for (const Node* n : g.attention()) EXPECT_TRUE(n->has_input(3));
}

// What is added to all keys that are seen rounds their scores, and is no softcap.
TEST(Masks, LargeNumbersOfSeenKeysAreNoSoftcap) {
  AttentionGraph g(S(), P() + S());
  const ValueId hidden = g.op("Greater", {g.distance(P(), S()), g.integer(0)});
  const ValueId mask = g.op("Where", {hidden, g.number(-std::numeric_limits<float>::infinity()), g.number(10000)});
  g.layer([&](AttentionGraph& a, ValueId s) { return a.op("Add", {s, mask}); });
  g.tolerance = 1e-3;  // the scores beside 10000 are rounded by as much
  g.recognise();
  for (const Node* n : g.attention()) EXPECT_EQ(n->attr_float("softcap", 0), 0);
}

// A number that hides all keys of a row hides none of them.
TEST(Masks, RowsThatAreHiddenByANumberSeeAll) {
  AttentionGraph g(S(), P() + S());
  const ValueId all = g.op("Equal", {g.unsqueeze(g.range(P(), P() + S()), 1), g.integer(7)}),
                hidden = g.op("Or", {g.op("Greater", {g.distance(P(), S()), g.integer(0)}), all});
  const ValueId mask = g.op("Where", {hidden, g.number(-10000), g.number(0)});
  g.layer([&](AttentionGraph& a, ValueId s) { return a.op("Add", {s, mask}); });
  g.recognise();
  EXPECT_NE(g.order.mixing, "");
}

// Scores may be larger than the number that is to hide a key.
TEST(Masks, LargeScoresAreNotHiddenByANumber) {
  AttentionGraph g(S(), P() + S());
  const ValueId hidden = g.op("Greater", {g.distance(P(), S()), g.integer(0)});
  const ValueId mask = g.op("Where", {hidden, g.number(-10000), g.number(0)});
  g.layer([&](AttentionGraph& a, ValueId s) { return a.op("Add", {a.op("Mul", {s, a.number(10000)}), mask}); });
  g.recognise();
  EXPECT_NE(g.order.mixing, "");
}

// Layers whose factors differ behind the sixth decimal.
TEST(Masks, SmallFactorsAreNotOne) {
  AttentionGraph g(S(), P() + S());
  const ValueId slopes = g.floats_of({1e6f, 2e6f, 3e6f, 4e6f}, {kHeads, 1, 1});
  const ValueId far = g.op("Mul", {g.unsqueeze(g.cast(g.distance(P(), S()), DType::kF32), 0), slopes});
  const ValueId hidden = g.op("Greater", {g.distance(P(), S()), g.integer(0)});
  const ValueId bias = g.op("Where", {hidden, g.number(-1e30f), far});
  for (const float factor : {1e-7f, 4e-7f})
    g.layer([&](AttentionGraph& a, ValueId s) { return a.op("Mul", {a.op("Add", {s, bias}), a.number(factor)}); });
  g.recognise();
  const std::vector<const Node*> found = g.attention();
  ASSERT_EQ(found.size(), 2u);
  for (size_t i = 0; i < 2; ++i) {
    ASSERT_TRUE(found[i]->has_input(4));
    EXPECT_NEAR(g.constant(found[i]->in[4]).view().as<const float>()[0], i == 0 ? 0.1f : 0.4f, 1e-4);
  }
}

}  // namespace
}  // namespace situ
