// Graphs that tests of passes make in memory.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "passes/context/pass_context.h"
#include "passes/host/infer.h"
#include "passes/host/probe.h"

namespace situ::test {

class TestGraph {
 public:
  ValueId op(const std::string& name, const std::vector<ValueId>& in, const std::map<std::string, int64_t>& ints = {},
             const std::vector<int64_t>& perm = {}) {
    Node n;
    n.op = name;
    n.opset = 17;
    n.name = name + std::to_string(graph_.nodes.size());
    n.in = in;
    for (const auto& [key, v] : ints) n.set_int(key, v);
    if (!perm.empty()) n.set_ints("perm", perm);
    n.out = {graph_.add_value(n.name + "_out")};
    graph_.add_node(n);
    return n.out[0];
  }
  ValueId floats_of(const std::vector<float>& x, const std::vector<int64_t>& dims) {
    Tensor t = Tensor::allocate(DType::kF32, dims);
    std::copy(x.begin(), x.end(), t.view().as<float>());
    return constant(t);
  }
  ValueId number(float x) { return floats_of({x}, {}); }
  ValueId integer(int64_t x) { return constant(Tensor::scalar_i64(x)); }
  ValueId integers(const std::vector<int64_t>& x) { return constant(Tensor::vector_i64(x)); }
  ValueId constant(const Tensor& t) { return graph_.add_constant("c" + std::to_string(graph_.values.size()), t); }
  ValueId dim(const Dim& d) {  // a scalar of shape arithmetic
    const ValueId v = graph_.add_value("dim", DType::kI64);
    graph_.values[v].info = {DType::kI64, true, {}, Shape{d}};
    graph_.inputs.push_back(v);
    return v;
  }
  ValueId range(const Dim& from, const Dim& to, const Dim& step = Dim(1)) {
    return op("Range", {dim(from), dim(to), dim(step)});
  }
  ValueId unsqueeze(ValueId x, int64_t axis) { return op("Unsqueeze", {x, integers({axis})}); }
  ValueId cast(ValueId x, DType to) { return op("Cast", {x}, {{"to", static_cast<int64_t>(to)}}); }
  // `x` throughout.
  ValueId filled(const Shape& dims, const Tensor& x) {
    const ValueId v = op("ConstantOfShape", {graph_.add_shape("shape", dims)});
    graph_.nodes.back().attrs["value"].kind = Attribute::Kind::kTensor;
    graph_.nodes.back().attrs["value"].tensor = x;
    return v;
  }
  ValueId input(const std::string& name, const Shape& dims, DType type = DType::kF32) {
    const ValueId v = graph_.add_value(name, type);
    graph_.values[v].info = {type, true, dims, std::nullopt};
    graph_.inputs.push_back(v);
    return v;
  }

  // Shapes and types of all values; a test calls it behind the last node.
  void infer(PassContext& context) {
    const Status resolved = resolve_ops(graph_);
    ASSERT_TRUE(resolved.is_ok()) << resolved.message();
    graph_.rebuild_links();
    const Status inferred = infer_shapes(context);
    ASSERT_TRUE(inferred.is_ok()) << inferred.message();
  }

  // Runs a pass, behind which outputs are the same numbers, made of random `leaves`, in steps of so many tokens.
  void run_pass(Status (*pass)(PassContext&), const std::vector<ValueId>& leaves, const std::vector<int64_t>& tokens);

  Graph graph_;
};

// What passes want to be called with, for steps of up to `context` tokens in all.
struct TestContext {
  TestContext(Graph& graph, int64_t tokens)
      : symbols(StepLimits{tokens}), evaluator(pool), context{graph, evaluator, binding, {}, tokens, tokens} {}
  const ScopedSymbols symbols;
  ThreadPool pool{1};
  Evaluator evaluator;
  Binding binding;
  PassContext context;
};

inline void TestGraph::run_pass(Status (*pass)(PassContext&), const std::vector<ValueId>& leaves,
                                const std::vector<int64_t>& tokens) {
  TestContext at(graph_, 16);
  infer(at.context);
  const Graph before = graph_;
  const Status passed = pass(at.context);
  EXPECT_TRUE(passed.is_ok()) << passed.message();
  infer(at.context);
  Prober was(before, at.binding, at.evaluator), is(graph_, at.binding, at.evaluator);
  for (const int64_t count : tokens) {
    std::map<ValueId, Tensor> numbers;
    for (const ValueId v : leaves) numbers[v] = was.random(was.dims(v, count, 0), static_cast<uint32_t>(v));
    for (size_t o = 0; o < graph_.outputs.size(); ++o) {
      const Result<Tensor> wanted = was.evaluate(before.outputs[o], numbers, count, 0),
                           found = is.evaluate(graph_.outputs[o], numbers, count, 0);
      EXPECT_TRUE(wanted.is_ok() && found.is_ok()) << (wanted.is_ok() ? found : wanted).status().message();
      if (!wanted.is_ok() || !found.is_ok()) continue;
      EXPECT_EQ(wanted->to_f64(), found->to_f64()) << "output " << o;
    }
  }
}

inline Dim S() { return Dim::symbol(kSymS); }
inline Dim P() { return Dim::symbol(kSymP); }

}  // namespace situ::test
