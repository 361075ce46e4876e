// Products of rows that are sorted by expert, in a graph whose steps have a fixed number of choices.
#include "passes/compile/test_graph.h"
#include "passes/experts/passes.h"

namespace situ {
namespace {

using test::TestGraph;

constexpr int64_t kExperts = 4, kChoices = 2;

// Steps of one token: how many choices there are stands in constants. `wrong`: rows of the last expert begin one late.
// Literally no row has a matrix of its own.
TEST(UngroupProducts, FixedNumberOfChoices) {
  for (const auto& [wrong, literal] : {std::pair{false, false}, {true, false}, {false, true}}) {
    TestGraph g;
    const ValueId choices = g.input("choices", {Dim(kChoices)}, DType::kI64), x = g.input("x", {Dim(kChoices), Dim(8)}),
                  weights = g.floats_of(std::vector<float>(kExperts * 8 * 8, .5f), {kExperts, 8, 8}),
                  sorted = g.op("TopK", {choices, g.integers({kChoices})}, {{"largest", 0}, {"axis", -1}});
    Node& sort = g.graph_.nodes.back();
    sort.out.push_back(g.graph_.add_value("order", DType::kI64));
    Tensor none = Tensor::allocate(DType::kF32, {kExperts});
    std::fill_n(none.view().as<float>(), kExperts, 0.0f);
    const ValueId counts =
        g.op("ScatterElements", {g.constant(none), sorted, g.floats_of({1, 1}, {kChoices})}, {{"axis", 0}});
    g.graph_.nodes.back().set_string("reduction", "add");
    const ValueId ends = g.op("CumSum", {g.cast(counts, DType::kI64), g.integer(0)});
    std::vector<ValueId> products;
    ValueId begin = g.integer(0);
    for (int64_t e = 0; e < kExperts; ++e) {
      const ValueId end = g.op("Gather", {ends, g.integer(e)}, {{"axis", 0}});
      if (wrong && e + 1 == kExperts) begin = g.op("Add", {begin, g.integer(1)});
      const ValueId rows = g.op("Gather", {x, g.op("Range", {begin, end, g.integer(1)})}, {{"axis", 0}});
      products.push_back(g.op("MatMul", {rows, g.op("Gather", {weights, g.integer(e)}, {{"axis", 0}})}));
      begin = end;
    }
    g.graph_.outputs = {g.op("Concat", products, {{"axis", 0}})};
    test::TestContext at(g.graph_, 16);
    at.context.literal = literal;
    const Status resolved = resolve_ops(g.graph_);
    ASSERT_TRUE(resolved.is_ok()) << resolved.message();
    g.graph_.rebuild_links();
    const Status done = ungroup_products(at.context);
    ASSERT_TRUE(done.is_ok()) << done.message();
    const Node* squeeze = g.graph_.producer(g.graph_.outputs[0], "Squeeze");
    EXPECT_EQ(squeeze != nullptr, !wrong);
    if (squeeze) EXPECT_EQ(g.graph_.producer(squeeze->in[0])->op, literal ? "ExpertMatMul" : "MatMul");
  }
}

}  // namespace
}  // namespace situ
