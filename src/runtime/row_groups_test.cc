// Products that threads take a few rows through: what the plan says of them, what the verifier says when it lies, and
// the results.
#include "place/row_groups.h"
#include "kernels/params.h"
#include "ops/add_node_test.h"
#include "passes/context/binding.h"
#include "runtime/program.h"

#include <gtest/gtest.h>

#include <random>

namespace situ {
namespace {

constexpr int64_t kMostRowTokens = 700;

// ids [1, S] -> Gather -> products one behind the other, of these widths -> logits.
struct Products {
  Graph graph;
  Binding binding;
  std::vector<ValueId> results;  // of the Gather and of each product

  explicit Products(const std::vector<int64_t>& widths) {
    const ValueId ids = graph.add_value("ids", DType::kI64);
    graph.values[ids].info = {DType::kI64, true, {Dim(1), Dim::symbol(kSymS)}, std::nullopt};
    graph.inputs.push_back(ids);
    binding.inputs[ids] = InputRole::kTokenIds;
    results.push_back(add("Gather", "", {random({64, widths[0]}), ids}, {}));
    for (size_t i = 1; i < widths.size(); ++i) {
      const DenseMatMulParams p{widths[i - 1], widths[i]};
      results.push_back(
          add("DenseMatMul", "situ", {results.back(), random({p.packed_count()})}, {{"K", p.k}, {"N", p.n}}));
    }
    binding.logits = results.back();
    graph.outputs.push_back(binding.logits);
    graph.rebuild_links();
  }

  Plan plan() const {
    Result<Plan> plan = make_plan(graph, binding, {kMostRowTokens, 2 * kMostRowTokens, kMostRowTokens});
    EXPECT_TRUE(plan.is_ok()) << plan.status().message();
    return std::move(*plan);
  }
  Root& root_of(Plan& plan, size_t result) const {
    return plan.arena[static_cast<size_t>(plan.values[results[result]].root)];
  }

 private:
  ValueId random(const std::vector<int64_t>& dims) {
    Tensor t = Tensor::allocate(DType::kF32, dims);
    std::uniform_real_distribution<float> uniform(-1, 1);
    for (int64_t i = 0; i < t.count(); ++i) t.view().as<float>()[i] = uniform(random_);
    return graph.add_constant("c" + std::to_string(graph.values.size()), t);
  }
  ValueId add(const std::string& op, const std::string& domain, const std::vector<ValueId>& in,
              const std::map<std::string, int64_t>& ints) {
    Node n;
    n.op = op;
    n.domain = domain;
    n.opset = domain.empty() ? 18 : 1;
    n.in = in;
    for (const auto& [key, v] : ints) n.set_int(key, v);
    return test::add_node(graph, std::move(n));
  }

  std::mt19937 random_{1};
};

std::vector<float> run(const Products& products, const Plan& plan, int threads, int64_t tokens) {
  Result<std::unique_ptr<StatePool>> states = StatePool::create(plan.states, {2 * kMostRowTokens});
  EXPECT_TRUE(states.is_ok());
  std::vector<std::byte> memory(static_cast<size_t>(plan.arena_bytes + plan.io_bytes) + 64);
  std::byte* base = memory.data() + (64 - reinterpret_cast<uintptr_t>(memory.data()) % 64);
  ThreadPool pool(threads);
  Executor executor(pool);
  Result<std::unique_ptr<Program>> program =
      Program::create(products.graph, products.binding, plan, {"", {}, "not asked for"},
                      {base, base + plan.arena_bytes, states->get()}, executor);
  EXPECT_TRUE(program.is_ok()) << program.status().message();
  std::vector<int64_t> ids;
  for (int64_t i = 0; i < tokens; ++i) ids.push_back(i * 7 % 64);
  Sequence sequence(**states);
  const Result<situ::Run> slots = sequence.append(tokens);
  EXPECT_TRUE(slots.is_ok());
  Segment segment;
  segment.tokens = ids.data();
  segment.count = tokens;
  segment.write_slot = slots->first_slot;
  segment.write_state = 1;
  segment.runs = sequence.runs().data();
  segment.run_count = static_cast<int>(sequence.runs().size());
  segment.keys = sequence.kept();
  Ledger ledger;
  const Status done = (*program)->run({{&segment, 1}, tokens}, ledger);
  EXPECT_TRUE(done.is_ok()) << done.message();
  const View& logits = (*program)->logits();
  return {logits.as<const float>(), logits.as<const float>() + logits.count()};
}

TEST(RowGroupsTest, ProductsOfTheSameRowsAreOneGroupThatSharesNoMemory) {
  const Products products({32, 96, 16, 48, 32});
  Plan plan = products.plan();
  ASSERT_EQ(plan.steps.size(), 5u);
  EXPECT_EQ(end_of_row_group(plan, 0), 1u);  // the Gather
  EXPECT_EQ(end_of_row_group(plan, 1), 5u);
  for (size_t a = 0; a < 4; ++a)
    for (size_t b = 0; b < a; ++b) {
      const Root &x = products.root_of(plan, a), &y = products.root_of(plan, b);
      EXPECT_TRUE(x.offset + x.bytes <= y.offset || y.offset + y.bytes <= x.offset) << a << " and " << b;
    }
}

TEST(RowGroupsTest, TheVerifierTakesRowsOneByOne) {
  const Products products({32, 96, 16, 48});
  Plan plan = products.plan();
  EXPECT_TRUE(verify_plan(products.graph, products.binding, plan, {3, 4}).is_ok());
  // Nothing reads the first block when the third is written, unless a thread is still at the first product.
  products.root_of(plan, 2).offset = products.root_of(plan, 0).offset;
  const Status wrong = verify_plan(products.graph, products.binding, plan, {3, 4});
  EXPECT_NE(wrong.message().find("row 1 read by"), std::string::npos) << wrong.message();
  for (Step& s : plan.steps) s.same_rows = false;
  const Status right = verify_plan(products.graph, products.binding, plan, {3, 4});
  EXPECT_TRUE(right.is_ok()) << right.message();
}

TEST(RowGroupsTest, ResultsAreThoseOfOneProductAfterTheOther) {
  const Products products({32, 96, 16, 48, 32, 64, 16});
  const Plan plan = products.plan();
  Plan one_by_one = plan;
  for (Step& s : one_by_one.steps) s.same_rows = false;
  for (const int64_t tokens : {1, 47, 48, 50, 257, 640, 700})
    for (const int threads : {1, 2, 3}) {
      const std::vector<float> want = run(products, one_by_one, threads, tokens),
                               got = run(products, plan, threads, tokens);
      EXPECT_EQ(got, want) << tokens << " tokens, " << threads << " threads";
    }
}

}  // namespace
}  // namespace situ
