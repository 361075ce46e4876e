// Caches of a fixed size, however a graph writes into them: rows are appended, and attention gives what it gave. What
// sees more than tokens stays as it was.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "passes/compile/test_graph.h"
#include "passes/states/passes.h"

namespace situ {
namespace {

using test::P;
using test::S;

constexpr int64_t kHeads = 2, kSize = 8, kPlaces = 12, kContext = 12;

class CacheGraph : public test::TestGraph {
 public:
  using Writes = std::function<ValueId(CacheGraph&, ValueId past, ValueId rows)>;
  using Mask = std::function<ValueId(CacheGraph&)>;  // of bool, [S, N]

  // `more`: added to scores beside the mask.
  CacheGraph(const Writes& writes, const Mask& mask, bool places_first = false, const Mask& more = nullptr) {
    graph_.symbol("E");  // the first of the file
    position = input("position", {S()}, DType::kI64);
    const ValueId q = input("q", {Dim(1), Dim(kHeads), S(), Dim(kSize)});
    ValueId both[2];
    for (const int i : {0, 1}) {
      const std::string part = i == 0 ? "key" : "value";
      rows[i] = input(part, {Dim(1), Dim(kHeads), S(), Dim(kSize)});
      past[i] = input("past_key_values.0." + part, places_first ? Shape{Dim(1), Dim(kPlaces), Dim(kHeads * kSize)}
                                                                : Shape{Dim(1), Dim(kHeads), Dim(kPlaces), Dim(kSize)});
      ValueId x = rows[i];
      if (places_first) x = op("Reshape", {op("Transpose", {x}, {}, {0, 2, 1, 3}), integers({1, -1, kHeads * kSize})});
      const ValueId after = writes(*this, past[i], x);
      present[i] = op("Identity", {after});
      graph_.values[present[i]].name = "present.0." + part;
      both[i] = after;
      if (places_first)
        both[i] = op("Transpose", {op("Reshape", {after, integers({1, kPlaces, kHeads, kSize})})}, {}, {0, 2, 1, 3});
    }
    const ValueId scores = op("MatMul", {q, op("Transpose", {both[0]}, {}, {0, 1, 3, 2})});
    ValueId shown = op("Where", {mask(*this), number(0), number(-1e9f)});
    if (more) shown = op("Add", {shown, more(*this)});
    const ValueId weights = op("Softmax", {op("Add", {scores, shown})}, {{"axis", -1}});
    graph_.outputs = {op("MatMul", {weights, both[1]}), present[0], present[1]};
    leaves = {q, rows[0], rows[1]};
  }

  ValueId places() { return range(Dim(0), Dim(kPlaces)); }
  ValueId column() { return unsqueeze(position, 1); }
  // [S, N]: 1 where a token is written.
  ValueId hot() { return cast(op("Equal", {unsqueeze(places(), 0), column()}), DType::kF32); }
  ValueId any_hot() { return unsqueeze(op("ReduceSum", {hot(), integers({0})}, {{"keepdims", 0}}), 1); }
  ValueId hot_rows(ValueId x) { return op("MatMul", {op("Transpose", {hot()}, {}, {1, 0}), x}); }

  // Runs the pass, and compares; whether rows are appended then.
  bool lift(int64_t context = kContext) {
    test::TestContext at(graph_, context);
    for (const ValueId v : past) at.binding.inputs[v] = InputRole::kState;
    at.binding.inputs[position] = InputRole::kPositions;
    infer(at.context);
    const Graph before = graph_;
    const Status passed = lift_caches(at.context);
    message = passed.message();
    if (!passed.is_ok()) return false;
    graph_.rebuild_links();
    const int64_t rank = static_cast<int64_t>(graph_.values[past[0]].info.shape.size());
    const size_t axis = rank == 3 ? 1 : 2;
    if (graph_.values[past[0]].info.shape[axis] != P()) return false;
    EXPECT_EQ(graph_.values[graph_.outputs[1]].info.shape[axis], P() + S());
    Prober was(before, at.binding, at.evaluator), is(graph_, at.binding, at.evaluator);
    for (auto [tokens, past_tokens] : {std::pair<int64_t, int64_t>{1, 0}, {3, 0}, {2, 5}, {1, kPlaces - 1}, {5, 4}}) {
      std::map<ValueId, Tensor> a, b;
      for (const ValueId v : leaves)
        a[v] = b[v] = was.random(was.dims(v, tokens, past_tokens), static_cast<uint32_t>(v));
      for (const ValueId v : past) {
        a[v] = was.random(was.dims(v, tokens, past_tokens), static_cast<uint32_t>(v));
        b[v] = first_rows(a[v], static_cast<int>(axis), past_tokens, at_the_end ? kPlaces - past_tokens : 0);
      }
      const Result<Tensor> wanted = was.evaluate(before.outputs[0], a, tokens, past_tokens),
                           got = is.evaluate(graph_.outputs[0], b, tokens, past_tokens);
      EXPECT_TRUE(wanted.is_ok() && got.is_ok()) << (wanted.is_ok() ? got : wanted).status().message();
      if (!wanted.is_ok() || !got.is_ok()) return false;
      const std::vector<float> x = floats(*wanted), y = floats(*got);
      EXPECT_EQ(x.size(), y.size());
      for (size_t i = 0; i < x.size() && i < y.size(); ++i)
        EXPECT_NEAR(x[i], y[i], 1e-5) << tokens << ", " << past_tokens;
    }
    return true;
  }

  static Tensor first_rows(const Tensor& t, int axis, int64_t count, int64_t begin) {
    std::vector<int64_t> dims = t.dims();
    const int64_t all = dims[static_cast<size_t>(axis)];
    dims[static_cast<size_t>(axis)] = count;
    Tensor r = Tensor::allocate(DType::kF32, dims);
    int64_t inner = 1;
    for (size_t i = static_cast<size_t>(axis) + 1; i < dims.size(); ++i) inner *= dims[i];
    for (int64_t i = 0; i < r.count(); ++i) {
      const int64_t outer = i / (inner * count), rest = i % (inner * count);
      r.view().as<float>()[i] = t.view().as<float>()[(outer * all + begin) * inner + rest];
    }
    return r;
  }

  ValueId position = kNoValue, rows[2], past[2], present[2];
  std::vector<ValueId> leaves;
  std::string message;
  bool at_the_end = false;  // the last token always lies at the last place
};

ValueId causal(CacheGraph& g) { return g.op("LessOrEqual", {g.unsqueeze(g.places(), 0), g.column()}); }

// [places, 1, heads, size] and back.
ValueId scatter_nd(CacheGraph& g, ValueId past, ValueId rows) {
  const ValueId front = g.op("Transpose", {past}, {}, {2, 0, 1, 3}), x = g.op("Transpose", {rows}, {}, {2, 0, 1, 3});
  return g.op("Transpose", {g.op("ScatterND", {front, g.column(), x})}, {}, {1, 2, 0, 3});
}
ValueId scatter_elements(CacheGraph& g, ValueId past, ValueId rows) {
  const ValueId index = g.op("Expand", {g.unsqueeze(g.column(), 0), g.op("Shape", {rows})});
  return g.op("ScatterElements", {past, index, rows}, {{"axis", 2}});
}
// A tuple [batch, head, place] for each row of one head.
ValueId index_put(CacheGraph& g, ValueId past, ValueId rows) {
  const ValueId extents = g.graph_.add_shape("extents", {Dim(1), Dim(kHeads), S(), Dim(1)});
  const auto spread = [&](ValueId x) { return g.op("Expand", {x, extents}); };
  const ValueId heads = g.constant(Tensor::vector_i64({0, 1}).reshaped({1, kHeads, 1, 1})),
                batch = g.constant(Tensor::vector_i64({0}).reshaped({1, 1, 1, 1}));
  const ValueId tuples = g.op("Concat", {spread(batch), spread(heads), spread(g.column())}, {{"axis", -1}});
  return g.op("ScatterND", {past, tuples, rows});
}
ValueId chosen(CacheGraph& g, ValueId past, ValueId rows) {
  return g.op("Where", {g.op("Greater", {g.any_hot(), g.number(0)}), g.hot_rows(rows), past});
}
ValueId added(CacheGraph& g, ValueId past, ValueId rows) {
  const ValueId kept = g.op("Mul", {past, g.op("Sub", {g.number(1), g.any_hot()})});
  return g.op("Add", {kept, g.hot_rows(rows)});
}
ValueId rank3(CacheGraph& g, ValueId past, ValueId rows) {
  const ValueId front = g.op("Transpose", {past}, {}, {1, 0, 2}), x = g.op("Transpose", {rows}, {}, {1, 0, 2});
  return g.op("Transpose", {g.op("ScatterND", {front, g.column(), x})}, {}, {1, 0, 2});
}

// What stands before and behind the rows stays.
ValueId joined(CacheGraph& g, ValueId past, ValueId rows) {
  const ValueId first = g.op("Slice", {g.position, g.integers({0}), g.integers({1}), g.integers({0})}),
                last = g.op("ReduceMax", {g.position}, {{"keepdims", 1}});
  const auto cut = [&](ValueId begin, ValueId end) { return g.op("Slice", {past, begin, end, g.integers({2})}); };
  const ValueId behind = cut(g.op("Add", {last, g.integer(1)}), g.integers({INT64_MAX}));
  return g.op("Concat", {cut(g.integers({0}), first), rows, behind}, {{"axis", 2}});
}
// Updated without the batch that the state has.
ValueId squeezed(CacheGraph& g, ValueId past, ValueId rows) {
  const auto by_place = [&](ValueId x) {
    return g.op("Transpose", {g.op("Squeeze", {x, g.integers({0})})}, {}, {1, 0, 2});
  };
  const ValueId after = g.op("ScatterND", {by_place(past), g.column(), by_place(rows)});
  return g.unsqueeze(g.op("Transpose", {after}, {}, {1, 0, 2}), 0);
}

TEST(LiftCaches, RowsAreAppendedHoweverTheyAreWritten) {
  const std::map<std::string, CacheGraph::Writes> ways{{"ScatterND", scatter_nd}, {"ScatterElements", scatter_elements},
                                                       {"index_put", index_put},  {"chosen", chosen},
                                                       {"added", added},          {"joined", joined},
                                                       {"squeezed", squeezed}};
  for (const auto& [name, writes] : ways) {
    SCOPED_TRACE(name);
    EXPECT_TRUE(CacheGraph(writes, causal).lift());
  }
  EXPECT_TRUE(CacheGraph(rank3, causal, true).lift());
}

TEST(LiftCaches, RowsThatAreChangedAreNotAppended) {
  for (const char* op : {"Round", "Floor"}) {
    const auto changed = [&](CacheGraph& g, ValueId past, ValueId rows) {
      return g.op(op, {scatter_nd(g, past, rows)});
    };
    EXPECT_FALSE(CacheGraph(changed, causal).lift()) << op;
  }
}

TEST(LiftCaches, PlacesThatLeaveOneOutAreNoRows) {
  const auto but_for_five = [](CacheGraph& g, ValueId past, ValueId rows) {
    const ValueId place = g.op("Where", {g.op("Equal", {g.column(), g.integer(5)}), g.integer(4), g.column()});
    const ValueId front = g.op("Transpose", {past}, {}, {2, 0, 1, 3}), x = g.op("Transpose", {rows}, {}, {2, 0, 1, 3});
    return g.op("Transpose", {g.op("ScatterND", {front, place, x})}, {}, {1, 2, 0, 3});
  };
  EXPECT_FALSE(CacheGraph(but_for_five, causal).lift());
}

TEST(LiftCaches, NoMorePlacesThanTokens) {
  CacheGraph g(scatter_nd, causal);
  EXPECT_FALSE(g.lift(100));
  EXPECT_NE(g.message.find("[1, 2, 12, 8] has places for 12"), std::string::npos) << g.message;
}

TEST(LiftCaches, WhatSeesPlacesWithoutATokenStays) {
  const auto all = [](CacheGraph& g) { return g.op("GreaterOrEqual", {g.unsqueeze(g.places(), 0), g.integer(0)}); };
  // As far as one place behind the last token.
  const auto one_more = [](CacheGraph& g) {
    return g.op("LessOrEqual", {g.unsqueeze(g.places(), 0), g.op("Add", {g.column(), g.integer(1)})});
  };
  // From the tenth token on all.
  const auto late = [](CacheGraph& g) {
    return g.op("Or", {causal(g), g.op("GreaterOrEqual", {g.column(), g.integer(9)})});
  };
  for (const CacheGraph::Mask& mask : {CacheGraph::Mask(all), CacheGraph::Mask(one_more), CacheGraph::Mask(late)}) {
    CacheGraph g(scatter_nd, mask);
    EXPECT_FALSE(g.lift());
    EXPECT_EQ(g.message, "");
  }
}

// What a mask adds to scores of one query alone stays.
TEST(LiftCaches, WhatOneQueryAddsToScoresStays) {
  for (const int64_t query : {4, 7, 10}) {
    const auto more = [&](CacheGraph& g) {
      const ValueId own = g.op("Equal", {g.column(), g.integer(query)}),
                    early = g.op("Less", {g.unsqueeze(g.places(), 0), g.integer(3)});
      return g.op("Where", {g.op("And", {own, early}), g.number(-1), g.number(0)});
    };
    EXPECT_TRUE(CacheGraph(scatter_nd, causal, false, more).lift()) << query;
  }
}

TEST(LiftCaches, RowsThatGoElsewhereAreNotAppended) {
  const auto later = [](CacheGraph& g, ValueId past, ValueId rows) {
    const ValueId place = g.op("Mod", {g.op("Add", {g.column(), g.integer(1)}), g.integer(kPlaces)});
    const ValueId front = g.op("Transpose", {past}, {}, {2, 0, 1, 3}), x = g.op("Transpose", {rows}, {}, {2, 0, 1, 3});
    return g.op("Transpose", {g.op("ScatterND", {front, place, x})}, {}, {1, 2, 0, 3});
  };
  EXPECT_FALSE(CacheGraph(later, causal).lift());
}

// Token t lies at t mod N; a token sees the last N, or fewer.
TEST(LiftCaches, Circles) {
  const auto circle = [](CacheGraph& g, ValueId past, ValueId rows) {
    const ValueId place = g.op("Mod", {g.column(), g.integer(kPlaces)});
    const ValueId front = g.op("Transpose", {past}, {}, {2, 0, 1, 3}), x = g.op("Transpose", {rows}, {}, {2, 0, 1, 3});
    return g.op("Transpose", {g.op("ScatterND", {front, place, x})}, {}, {1, 2, 0, 3});
  };
  const auto last = [](int64_t window) {
    return [window](CacheGraph& g) {
      const ValueId end = g.op("Sub", {g.dim(P() + S()), g.integer(1)});
      const ValueId back = g.op("Mod", {g.op("Sub", {end, g.unsqueeze(g.places(), 0)}), g.integer(kPlaces)});
      const ValueId token = g.op("Sub", {end, back});  // [1, N]: that lies there
      const ValueId shown =
          g.op("And", {g.op("GreaterOrEqual", {token, g.integer(0)}), g.op("LessOrEqual", {token, g.column()})});
      return g.op("And", {shown, g.op("Greater", {token, g.op("Sub", {g.column(), g.integer(window)})})});
    };
  };
  for (const int64_t window : {kPlaces, int64_t{5}}) {
    CacheGraph g(circle, last(window));
    EXPECT_TRUE(g.lift(100)) << g.message;
  }
  CacheGraph all(circle, [](CacheGraph& g) {
    return g.op("GreaterOrEqual", {g.unsqueeze(g.places(), 0), g.op("Sub", {g.column(), g.column()})});
  });
  EXPECT_FALSE(all.lift(100));
  EXPECT_NE(all.message.find("is written in a circle"), std::string::npos) << all.message;
}

// The rows move on by those of each step.
TEST(LiftCaches, RowsThatMoveOn) {
  const auto rolled = [](CacheGraph& g, ValueId past, ValueId rows) {
    const ValueId tokens = g.graph_.add_shape("tokens", {S()});
    const ValueId kept = g.op("Slice", {past, tokens, g.integers({INT64_MAX}), g.integers({2})});
    return g.op("Concat", {kept, rows}, {{"axis", 2}});
  };
  const auto cut = [](CacheGraph& g, ValueId past, ValueId rows) {
    const ValueId both = g.op("Concat", {past, rows}, {{"axis", 2}});
    return g.op("Slice", {both, g.integers({-kPlaces}), g.integers({INT64_MAX}), g.integers({2})});
  };
  const auto shown = [](CacheGraph& g) {
    const ValueId token = g.op("Add", {g.unsqueeze(g.places(), 0), g.dim(P() + S() - Dim(kPlaces))});
    return g.op("And", {g.op("GreaterOrEqual", {token, g.integer(0)}), g.op("LessOrEqual", {token, g.column()})});
  };
  for (const auto& [writes, context] :
       {std::pair<CacheGraph::Writes, int64_t>{rolled, kPlaces}, {cut, kPlaces}, {cut, 100}}) {
    CacheGraph g(writes, shown);
    g.at_the_end = true;
    EXPECT_TRUE(g.lift(context)) << g.message;
  }
  // By places, as if the first token lay at the first one.
  CacheGraph other(rolled, causal);
  EXPECT_FALSE(other.lift(kPlaces));
  EXPECT_EQ(other.message, "");
}

}  // namespace
}  // namespace situ
