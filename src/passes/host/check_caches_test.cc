// How many tokens a graph holds: caches of a fixed size in all spellings, tables that are read by position, and what
// looks like them.
#include <gtest/gtest.h>

#include <functional>

#include "passes/context/pass_context.h"
#include "passes/host/infer.h"
#include "passes/host/probe.h"
#include "passes/host/room.h"

namespace situ {
namespace {

constexpr int64_t kContext = 100, kPlaces = 12, kHeads = 2, kSize = 4;

Dim S() { return Dim::symbol(kSymS); }
Dim P() { return Dim::symbol(kSymP); }

// present [1, H, N, D] made of past and of the rows [1, H, S, D] of the new tokens, at positions [S].
class CacheGraph {
 public:
  using Makes = std::function<ValueId(CacheGraph&)>;
  explicit CacheGraph(const Makes& makes, DType type = DType::kF32) {
    past = value("past", type, {Dim(1), Dim(kHeads), Dim(kPlaces), Dim(kSize)});
    rows = value("rows", type, {Dim(1), Dim(kHeads), S(), Dim(kSize)});
    positions = value("positions", DType::kI64, {S()});
    graph_.inputs = {past, rows, positions};
    binding_.inputs = {{past, InputRole::kState}, {positions, InputRole::kPositions}};
    const ValueId present = makes(*this);
    graph_.outputs = {present};
    binding_.states = {{past, present, StateRule::kReplace, 0, "cache"}};
  }

  ValueId op(const std::string& name, const std::vector<ValueId>& in, const std::map<std::string, int64_t>& ints = {}) {
    Node n;
    n.op = name;
    n.opset = 18;
    n.name = name + std::to_string(graph_.nodes.size());
    n.in = in;
    for (const auto& [key, v] : ints) n.set_int(key, v);
    n.out = {graph_.add_value(n.name + "_out")};
    graph_.add_node(n);
    return n.out[0];
  }
  ValueId permuted(ValueId x, const std::vector<int64_t>& perm) {
    const ValueId y = op("Transpose", {x});
    graph_.nodes.back().set_ints("perm", perm);
    return y;
  }
  ValueId integers(const std::vector<int64_t>& x) { return graph_.add_constant("i", Tensor::vector_i64(x)); }
  ValueId scalar(int64_t x) { return graph_.add_constant("s", Tensor::scalar_i64(x)); }
  ValueId places() {
    std::vector<int64_t> all;
    for (int64_t i = 0; i < kPlaces; ++i) all.push_back(i);
    return integers(all);
  }
  ValueId unsqueeze(ValueId x, std::vector<int64_t> axes) { return op("Unsqueeze", {x, integers(axes)}); }
  ValueId cast(ValueId x, DType to) { return op("Cast", {x}, {{"to", static_cast<int64_t>(to)}}); }
  ValueId one_hot() { return op("Equal", {places(), unsqueeze(positions, {1})}); }  // [S, N]
  ValueId spread() {                                                                // rows at their places, zeros else
    return op("MatMul", {permuted(cast(one_hot(), graph_.values[rows].info.type), {1, 0}), rows});
  }
  ValueId written() {  // [N, 1]
    const ValueId any = op("ReduceMax", {cast(one_hot(), DType::kF32), integers({0})}, {{"keepdims", 0}});
    return unsqueeze(cast(any, DType::kBool), {1});
  }
  ValueId past_tokens() {
    const ValueId v = graph_.add_value("P", DType::kI64);
    graph_.values[v].info = {DType::kI64, true, {Dim(1)}, Shape{P()}};
    return v;
  }

  Status check(Phase phase = Phase::kAny) {
    const ScopedSymbols symbols(StepLimits{kContext});
    ThreadPool pool(1);
    Evaluator evaluator(pool);
    Status status = resolve_ops(graph_);
    PassContext context{graph_, evaluator, binding_, {}, kContext, kContext};
    context.phase = phase;
    graph_.rebuild_links();
    if (status.is_ok()) status = infer_shapes(context);
    EXPECT_TRUE(status.is_ok()) << status.message();
    status = check_positions(context);
    if (status.is_ok()) status = check_caches(context);
    holds = context.holds.empty() || status.is_ok() ? 0 : context.holds.begin()->first;
    return status;
  }
  int64_t holds = 0;  // tokens, where not all of them
  ValueId past, rows, positions;

 private:
  ValueId value(const std::string& name, DType type, Shape shape) {
    const ValueId v = graph_.add_value(name, type);
    graph_.values[v].info = {type, true, std::move(shape), std::nullopt};
    return v;
  }
  Graph graph_;
  Binding binding_;
};

ValueId chosen(CacheGraph& g) { return g.op("Where", {g.written(), g.spread(), g.past}); }
ValueId blended(CacheGraph& g) {
  const ValueId kept = g.op("Sub", {g.cast(g.integers({1}), DType::kF32), g.cast(g.written(), DType::kF32)});
  return g.op("Add", {g.op("Mul", {g.past, kept}), g.spread()});
}
ValueId scattered(CacheGraph& g) {  // on [N, 1, H, D], by rows
  const ValueId past = g.permuted(g.past, {2, 0, 1, 3}), rows = g.permuted(g.rows, {2, 0, 1, 3});
  return g.permuted(g.op("ScatterND", {past, g.unsqueeze(g.positions, {1}), rows}), {1, 2, 0, 3});
}
ValueId scattered_elements(CacheGraph& g) {
  const ValueId shape = g.op("Shape", {g.rows});
  const ValueId index = g.op("Expand", {g.unsqueeze(g.positions, {0, 1, 3}), shape});
  return g.op("ScatterElements", {g.past, index, g.rows}, {{"axis", 2}});
}

TEST(CheckCaches, AreFullAfterTheirLastPlace) {
  const auto clamped = [](const CacheGraph::Makes& makes, bool clips) {
    return [=](CacheGraph& g) {
      const ValueId last = g.integers({kPlaces - 1});
      g.positions =
          clips ? g.op("Clip", {g.positions, g.scalar(0), g.scalar(kPlaces - 1)}) : g.op("Min", {g.positions, last});
      return makes(g);
    };
  };
  const std::map<std::string, CacheGraph::Makes> spellings{{"chosen", chosen},
                                                           {"blended", blended},
                                                           {"scattered", scattered},
                                                           {"elements", scattered_elements},
                                                           {"chosen, clamped", clamped(chosen, false)},
                                                           {"scattered, clipped", clamped(scattered, true)},
                                                           {"elements, clamped", clamped(scattered_elements, false)}};
  for (const auto& [name, makes] : spellings)
    for (const Phase phase : {Phase::kAny, Phase::kDecode}) {
      SCOPED_TRACE(name);
      CacheGraph g(makes);
      const Status status = g.check(phase);
      EXPECT_EQ(g.holds, kPlaces);
      EXPECT_EQ(status.code(), Code::kContextExceeded);
      EXPECT_EQ(status.message(), "a context of 100 tokens does not fit: state 'past' [1, 2, 12, 4] has places for 12");
    }
  CacheGraph half([](CacheGraph& g) { return scattered(g); }, DType::kF16);
  EXPECT_FALSE(half.check().is_ok());
  EXPECT_EQ(half.holds, kPlaces);
}

TEST(CheckCaches, HaveAPlaceForEachToken) {
  const std::map<std::string, CacheGraph::Makes> spellings{
      {"round and round",
       [](CacheGraph& g) {
         g.positions = g.op("Mod", {g.positions, g.integers({kPlaces})});
         return chosen(g);
       }},
      {"moved on when it is full",  // ScatterND to the last place of what is moved by one
       [](CacheGraph& g) {
         const ValueId full = g.op("GreaterOrEqual", {g.past_tokens(), g.integers({kPlaces})});
         const ValueId on = g.op("Slice", {g.op("Concat", {g.past, g.rows}, {{"axis", 2}}), g.integers({-kPlaces}),
                                           g.integers({INT64_MAX}), g.integers({2})});
         return g.op("Where", {full, on, chosen(g)});
       }},
      {"the last rows",
       [](CacheGraph& g) {
         const ValueId all = g.op("Concat", {g.past, g.rows}, {{"axis", 2}});
         return g.op("Slice", {all, g.integers({-kPlaces}), g.integers({INT64_MAX}), g.integers({2})});
       }},
      {"a sum",
       [](CacheGraph& g) {
         return g.op("Add", {g.past, g.op("ReduceSum", {g.rows, g.integers({2})}, {{"keepdims", 1}})});
       }},
      {"never written", [](CacheGraph& g) { return g.op("Mul", {g.past, g.cast(g.integers({1}), DType::kF32)}); }},
  };
  for (const auto& [name, makes] : spellings) {
    SCOPED_TRACE(name);
    CacheGraph g(makes);
    const Status status = g.check();
    EXPECT_TRUE(status.is_ok()) << status.message();
  }
}

TEST(CheckPositions, TablesHaveARowForEachToken) {
  const auto table = [](CacheGraph& g, const std::function<ValueId(ValueId all)>& part, int64_t first) {
    std::vector<int64_t> numbers(20);
    const ValueId all = part(g.cast(g.integers(numbers), DType::kF32));
    const ValueId read = g.op("Gather", {all, g.op("Add", {g.positions, g.integers({first})})});
    return g.op("Add", {g.past, g.op("ReduceSum", {read}, {{"keepdims", 0}})});
  };
  for (const int64_t first : {0, 2}) {
    CacheGraph whole([&](CacheGraph& g) { return table(g, [](ValueId all) { return all; }, first); });
    EXPECT_EQ(whole.check().code(), Code::kContextExceeded);
    EXPECT_EQ(whole.holds, 20 - first);
    CacheGraph cut([&](CacheGraph& g) {
      const auto begin = [&](ValueId all) {
        const ValueId end = g.op("Add", {g.op("Shape", {g.positions}), g.past_tokens()});
        return g.op("Slice", {all, g.integers({0}), end, g.integers({0})});
      };
      return table(g, begin, 0);
    });
    EXPECT_EQ(cut.check().code(), Code::kContextExceeded);
    EXPECT_EQ(cut.holds, 20);
  }
}

TEST(CheckPositions, TheMostThatHolds) {
  for (const int64_t n : {0, 1, 5, 63, 64, 100})
    EXPECT_EQ(most_that(100, [&](int64_t tokens) { return tokens <= n; }), n);
}

}  // namespace
}  // namespace situ
