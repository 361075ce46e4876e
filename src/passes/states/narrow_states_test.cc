// States of half precision, whatever stands between them and the Concat that they grow by.
#include "passes/compile/test_graph.h"
#include "passes/states/passes.h"

namespace situ {
namespace {

using test::P, test::S, test::TestGraph;

TEST(NarrowStates, BehindWhatChangesNothing) {
  for (const char* op : {"", "Add", "Mul"}) {
    SCOPED_TRACE(op);
    TestGraph g;
    const ValueId past = g.input("past_key_values.0.key", {Dim(1), P(), Dim(4)}, DType::kF16),
                  rows = g.input("rows", {Dim(1), S(), Dim(4)});
    ValueId wide = g.cast(past, DType::kF32);
    if (*op) wide = g.op(op, {g.number(*op == 'M' ? 1 : 0), wide});
    const ValueId all = g.op("Concat", {wide, rows}, {{"axis", 1}}), present = g.cast(all, DType::kF16);
    g.graph_.values[static_cast<size_t>(present)].name = "present.0.key";
    g.graph_.outputs = {g.op("ReduceSum", {all, g.integers({1})}), present};
    test::TestContext at(g.graph_, 64);
    at.binding.inputs[past] = InputRole::kState;
    at.binding.logits = g.graph_.outputs[0];
    g.infer(at.context);
    if (::testing::Test::HasFatalFailure()) return;
    const Status found = find_states(at.context), narrowed = narrow_states(at.context);
    ASSERT_TRUE(found.is_ok() && narrowed.is_ok()) << found.message() << narrowed.message();
    ASSERT_EQ(at.binding.states.size(), 1u);
    const StatePair& s = at.binding.states[0];
    const Node* concat = g.graph_.producer(s.present);
    ASSERT_TRUE(concat && concat->is("Concat"));
    EXPECT_EQ(concat->in[0], s.past);
    EXPECT_EQ(g.graph_.values[static_cast<size_t>(s.present)].info.type, DType::kF16);
  }
}

}  // namespace
}  // namespace situ
