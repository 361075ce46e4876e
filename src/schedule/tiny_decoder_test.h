// A decoder for tests, as the passes leave one: packed products, attention over appended states, logits of wanted rows.
// And what an encoder has beside it: attention of rows that are no tokens of a step.
#pragma once

#include <gtest/gtest.h>

#include <limits>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "eval/interpreter.h"
#include "kernels/params.h"
#include "ops/add_node_test.h"
#include "passes/compile/token_order.h"
#include "passes/context/binding.h"
#include "passes/lower/attention_workspaces.h"
#include "place/plan.h"

namespace situ::test {

struct TinyGraph {
  static constexpr int64_t kVocabulary = 48, kHeads = 4, kKvHeads = 2, kHeadSize = 8, kWidth = kHeads * kHeadSize;

  Graph graph;
  Binding binding;
  TokenOrder order;

  Plan plan(int64_t tokens, int64_t capacity, int64_t wanted) const {
    Result<Plan> plan = make_plan(graph, binding, {tokens, capacity, wanted});
    EXPECT_TRUE(plan.is_ok()) << plan.status().message();
    return std::move(*plan);
  }

 protected:
  ValueId input(const std::string& name, DType type, const Shape& dims, InputRole role) {
    const ValueId v = graph.add_value(name, type);
    graph.values[v].info = {type, true, dims, std::nullopt};
    graph.inputs.push_back(v);
    binding.inputs[v] = role;
    return v;
  }
  ValueId random(const std::vector<int64_t>& dims) {
    Tensor t = Tensor::allocate(DType::kF32, dims);
    std::uniform_real_distribution<float> uniform(-0.5f, 0.5f);
    for (int64_t i = 0; i < t.count(); ++i) t.view().as<float>()[i] = uniform(random_);
    return graph.add_constant("c" + std::to_string(graph.values.size()), t);
  }
  ValueId integers(const std::vector<int64_t>& values) {
    const Tensor t = Tensor::vector_i64(values);
    return graph.add_constant("i" + std::to_string(graph.values.size()), t);
  }

  // [1, S, N] -> [1, heads, S, D]
  ValueId heads(ValueId x, int64_t count) {
    return add("Transpose", {add("Reshape", {x, integers({1, -1, count, kHeadSize})})}, {{"perm", {0, 2, 1, 3}}});
  }
  ValueId product(ValueId x, int64_t k, int64_t n) {
    const DenseMatMulParams p{k, n};
    Node made = node("DenseMatMul", "situ", {x, random({p.packed_count()})});
    made.set_int("K", k);
    made.set_int("N", n);
    return add(std::move(made));
  }

  static Node node(const std::string& op, const std::string& domain, const std::vector<ValueId>& in) {
    Node n;
    n.op = op;
    n.domain = domain;
    n.opset = domain.empty() ? 18 : 1;
    n.in = in;
    return n;
  }
  ValueId add(const std::string& op, const std::vector<ValueId>& in,
              const std::map<std::string, std::vector<int64_t>>& attributes = {}) {
    Node n = node(op, "", in);
    for (const auto& [key, values] : attributes) n.set_ints(key, values);
    return add(std::move(n));
  }
  ValueId add(Node n) { return test::add_node(graph, std::move(n)); }

  // Rows [1, S, kWidth] of heads' results.
  ValueId joined(ValueId y) {
    return add("Reshape", {add("Transpose", {y}, {{"perm", {0, 2, 1, 3}}}), integers({1, -1, kWidth})});
  }

 private:
  std::mt19937 random_{1};
};

struct TinyDecoder : TinyGraph {
  // `threads`, `keys`: of the attention's workspaces (passes/lower/attention_workspaces.cc). `few_queries`: the last
  // layer's are those of wanted tokens alone, which is the same decoder.
  TinyDecoder(int layers, int threads, int64_t keys, bool few_queries = false) {
    const ValueId ids = input("ids", DType::kI64, {Dim(1), Dim::symbol(kSymS)}, InputRole::kTokenIds);
    ValueId x = add("Gather", {random({kVocabulary, kWidth}), ids});
    for (int i = 0; i < layers; ++i) x = layer(x, few_queries && i + 1 == layers);
    if (!few_queries) x = wanted(x);
    binding.logits = product(add("Tanh", {x}), kWidth, kVocabulary);
    graph.outputs.push_back(binding.logits);
    graph.rebuild_links();
    ThreadPool pool(1);
    Evaluator evaluator(pool);
    order = token_order(graph, binding, evaluator, Phase::kAny, 64);
    EXPECT_EQ(order.one_sequence, "");
    add_attention_workspaces(graph, threads, keys, 4);
  }

 private:
  ValueId layer(ValueId all, bool few_queries) {
    const ValueId x = few_queries ? wanted(all) : all, q = heads(product(x, kWidth, kWidth), kHeads),
                  k = heads(product(all, kWidth, kWidth / 2), kKvHeads),
                  v = heads(product(all, kWidth, kWidth / 2), kKvHeads);
    Node attention = node("Attention", "situ", {q, append(k), append(v)});
    attention.set_int("causal", 1);
    const ValueId o = product(joined(add(std::move(attention))), kWidth, kWidth);
    const ValueId h = add("Tanh", {add("Add", {x, o})});
    return add("Add", {h, product(product(h, kWidth, 3 * kWidth), 3 * kWidth, kWidth)});
  }
  // [1, S, N] -> [1, L, N]
  ValueId wanted(ValueId x) {
    const ValueId begin = graph.add_value("begin", DType::kI64);
    graph.values[begin].info = {DType::kI64, true, {Dim(1)}, Shape{Dim(-1) * Dim::symbol(kSymL)}};
    return add("Slice", {x, begin, integers({std::numeric_limits<int64_t>::max()}), integers({1})});
  }
  ValueId append(ValueId rows) {
    const ValueId past = input("past" + std::to_string(binding.states.size()), DType::kF32,
                               {Dim(1), Dim(kKvHeads), Dim::symbol(kSymP), Dim(kHeadSize)}, InputRole::kState);
    Node n = node("Concat", "", {past, rows});
    n.set_int("axis", 2);
    const ValueId present = add(std::move(n));
    graph.outputs.push_back(present);
    binding.states.push_back({past, present, StateRule::kAppend, 2});
    return present;
  }
};

// Attention of kRows rows, however many tokens a step has; its logits are all of them.
struct TinyEncoder : TinyGraph {
  static constexpr int64_t kRows = 7;

  TinyEncoder() {
    const ValueId q = random({1, kHeads, kRows, kHeadSize}), k = random({1, kKvHeads, kRows, kHeadSize}),
                  v = random({1, kKvHeads, kRows, kHeadSize});
    binding.logits = product(joined(add(node("Attention", "situ", {q, k, v}))), kWidth, kVocabulary);
    graph.outputs.push_back(binding.logits);
    graph.rebuild_links();
    order.one_sequence = "its rows are no tokens";
  }
};

}  // namespace situ::test
