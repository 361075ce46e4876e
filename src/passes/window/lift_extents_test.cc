// A fixed window without its fixed extents: the proof holds for what lift_extents makes, and for nothing that is off by
// one.
#include <gtest/gtest.h>

#include "passes/context/pass_context.h"
#include "passes/host/infer.h"
#include "passes/window/fixed_window.h"
#include "passes/window/passes.h"

namespace situ {
namespace {

constexpr int64_t kModelWidth = 4, kVocabulary = 8;

Tensor real(const std::vector<int64_t>& dims, float first, float step) {
  Tensor t = Tensor::allocate(DType::kF32, dims);
  for (int64_t i = 0; i < t.count(); ++i) t.view().as<float>()[i] = first + step * static_cast<float>(i % 7);
  return t;
}

// One head: x = table[ids] + table[positions counted in the mask], attention over past and x, logits. All extents that
// an exporter folds are constants.
class Window {
 public:
  // As many attentions as `factors`, each with that of the mask.
  Window(int64_t tokens, int64_t length, const std::vector<float>& factors = {1}) : w_(tokens), t_(length) {
    const ValueId ids = input("input_ids", DType::kI64, {1, w_}), mask = input("attention_mask", DType::kI64, {1, t_}),
                  past = input("past.0.key", DType::kF32, {1, t_ - w_, kModelWidth});
    const ValueId count = op("Sub", {op("CumSum", {mask, scalar(1)}), scalar(1)});
    const ValueId positions =
        op("Slice", {op("Max", {count, scalar(0)}), list({t_ - w_}), list({t_}), list({1}), list({1})});
    const ValueId x = op("Add", {op("Gather", {constant(real({kVocabulary, kModelWidth}, 0.25f, 0.5f)), ids}),
                                 op("Gather", {constant(real({t_, kModelWidth}, -1, 0.25f)), positions})});
    const ValueId rows = op("Reshape", {op("Reshape", {x, list({w_, kModelWidth})}), list({1, w_, kModelWidth})});
    const ValueId keys = graph_.add_value("present.0.key", DType::kF32);
    append(past, rows, keys);
    const ValueId queries = op("Unsqueeze", {range(t_ - w_, t_), list({1})});
    const ValueId causal = op("LessOrEqual", {op("Unsqueeze", {range(0, t_), list({0})}), queries});
    const ValueId shown = op("And", {op("Expand", {causal, list({w_, t_})}), cast(mask, DType::kBool)});
    const ValueId bias = op("Where", {shown, constant(real({}, 0, 0)), constant(real({}, -1e9f, 0))});
    ValueId seen = rows;
    for (const float factor : factors) {
      const ValueId scores = op("MatMul", {seen, transposed(keys)});
      const ValueId hides = factor == 1 ? bias : op("Mul", {bias, constant(real({}, factor, 0))});
      seen = op("MatMul", {op("Softmax", {op("Add", {scores, hides})}), keys});
    }
    const ValueId logits = op("MatMul", {seen, constant(real({kModelWidth, kVocabulary}, 0.5f, -0.25f))});
    graph_.values[logits].name = "logits";
    graph_.outputs = {logits, keys};
    declare(logits, {1, w_, kVocabulary});
    declare(keys, {1, t_, kModelWidth});
    EXPECT_TRUE(resolve_ops(graph_).is_ok());
    EXPECT_TRUE(graph_.sort().is_ok());
  }
  const Graph& graph() const { return graph_; }

 private:
  ValueId input(const std::string& name, DType type, const Shape& shape) {
    const ValueId v = graph_.add_value(name, type);
    graph_.values[v].info = {type, true, shape, std::nullopt};
    graph_.inputs.push_back(v);
    return v;
  }
  void declare(ValueId v, const Shape& shape) { graph_.values[v].info = {DType::kF32, true, shape, std::nullopt}; }
  ValueId constant(Tensor t) { return graph_.add_constant("c" + std::to_string(graph_.values.size()), std::move(t)); }
  ValueId scalar(int64_t x) { return constant(Tensor::scalar_i64(x)); }
  ValueId list(const std::vector<int64_t>& x) { return constant(Tensor::vector_i64(x)); }
  ValueId range(int64_t from, int64_t to) { return op("Range", {scalar(from), scalar(to), scalar(1)}); }
  ValueId op(const std::string& name, const std::vector<ValueId>& in, ValueId out = kNoValue) {
    Node n;
    n.op = name;
    n.opset = 17;
    n.name = name + std::to_string(graph_.nodes.size());
    n.in = in;
    n.out = {out == kNoValue ? graph_.add_value(n.name + "_out") : out};
    graph_.add_node(n);
    return n.out[0];
  }
  void append(ValueId past, ValueId rows, ValueId out) {
    op("Concat", {past, rows}, out);
    graph_.nodes.back().set_int("axis", 1);
  }
  ValueId transposed(ValueId x) {
    const ValueId y = op("Transpose", {x});
    graph_.nodes.back().set_ints("perm", {0, 2, 1});
    return y;
  }
  ValueId cast(ValueId x, DType to) {
    const ValueId y = op("Cast", {x});
    graph_.nodes.back().set_int("to", static_cast<int64_t>(to));
    return y;
  }

  const int64_t w_, t_;
  Graph graph_;
};

class LiftExtents : public testing::TestWithParam<std::pair<int64_t, int64_t>> {
 protected:
  LiftExtents() : pool_(1), evaluator_(pool_), symbols_(StepLimits{GetParam().second}) {}

  Status lift(Graph& graph) {
    Binding binding;
    PassContext context{graph, evaluator_, binding, {}, GetParam().second, GetParam().second};
    return lift_extents(context);
  }
  // The proof for a graph that lift_extents made, or what was made of it.
  Status prove(const Graph& fixed_graph, const Graph& lifted_graph) {
    const Result<std::optional<FixedWindow>> window = find_fixed_window(fixed_graph, {});
    Graph fixed = fixed_graph, lifted = lifted_graph;
    for (Graph* g : {&fixed, &lifted}) {
      Binding binding;
      PassContext context{*g, evaluator_, binding, {}, GetParam().second, GetParam().second};
      SITU_RETURN_IF_ERROR(infer_shapes(context));
    }
    return prove_lifted(**window, fixed, lifted, evaluator_);
  }

  ThreadPool pool_;
  Evaluator evaluator_;
  ScopedSymbols symbols_;
};

TEST_P(LiftExtents, FollowTheStep) {
  const Window window(GetParam().first, GetParam().second);
  Graph graph = window.graph();
  const Status lifted = lift(graph);
  ASSERT_TRUE(lifted.is_ok()) << lifted.message();
  EXPECT_EQ(shape_str(graph.values[graph.find("input_ids")].info.shape), "[1, S]");
  EXPECT_EQ(shape_str(graph.values[graph.find("past.0.key")].info.shape), "[1, P, 4]");
  // As prove() sees it, the exporter's graph has the numbers where the lifted one has its extents.
  Graph fixed = window.graph();
  while (fixed.values.size() < graph.values.size()) fixed.add_value("none");
  const Status proved = prove(fixed, graph);
  EXPECT_TRUE(proved.is_ok()) << proved.message();
}

// Each element of each extent, one more and one less.
TEST_P(LiftExtents, OffByOneIsCaught) {
  const Window window(GetParam().first, GetParam().second);
  Graph graph = window.graph();
  ASSERT_TRUE(lift(graph).is_ok());
  Graph fixed = window.graph();
  while (fixed.values.size() < graph.values.size()) fixed.add_value("none");
  int mutants = 0;
  for (size_t v = 0; v < graph.values.size(); ++v) {
    const ValueInfo& info = graph.values[v].info;
    if (!info.content || graph.values[v].producer >= 0) continue;
    for (size_t i = 0; i < info.content->size(); ++i) {
      if ((*info.content)[i].is_const()) continue;
      for (const int64_t by : {-1, 1}) {
        Graph mutant = graph;
        Dim& d = (*mutant.values[v].info.content)[i];
        d = d + Dim(by);
        // An end of a Slice behind the last row is the last row.
        if (d == Dim::symbol(kSymP) + Dim::symbol(kSymS) + Dim(1) && graph.values[v].name.ends_with("extents_2"))
          continue;
        ++mutants;
        EXPECT_FALSE(prove(fixed, mutant).is_ok()) << graph.values[v].name << "[" << i << "] + " << by;
      }
    }
  }
  EXPECT_GE(mutants, 12);
}

TEST_P(LiftExtents, HiddenRowsThatAreSeenAreNot) {
  Graph graph = Window(GetParam().first, GetParam().second).graph();
  for (Node& n : graph.nodes)
    if (n.is("And")) n.op = "Or";
  ASSERT_TRUE(resolve_ops(graph).is_ok());
  const Status lifted = lift(graph);
  ASSERT_FALSE(lifted.is_ok());
  EXPECT_NE(lifted.message().find("which holds no token"), std::string::npos) << lifted.message();
}

// Each attention is looked at, however little its factor differs from another one's.
TEST_P(LiftExtents, HiddenByTheFactorOfAnother) {
  Graph hidden = Window(GetParam().first, GetParam().second, {9.4e-6f, 1}).graph();
  const Status lifted = lift(hidden);
  EXPECT_TRUE(lifted.is_ok()) << lifted.message();
  Graph seen = Window(GetParam().first, GetParam().second, {9.4e-6f, 8.6e-6f}).graph();
  const Status refused = lift(seen);
  ASSERT_FALSE(refused.is_ok());
  EXPECT_NE(refused.message().find("which holds no token"), std::string::npos) << refused.message();
}

INSTANTIATE_TEST_SUITE_P(Windows, LiftExtents,
                         testing::Values(std::pair{1, 6}, std::pair{3, 9}, std::pair{4, 8}, std::pair{4, 20},
                                         std::pair{2, 200}));

}  // namespace
}  // namespace situ
