// Threads that share the keys of a token: what one leaves in the workspace of a call must not be overwritten by the
// next call, even where neither reads what the other writes.
#include <gtest/gtest.h>

#include <chrono>
#include <random>
#include <thread>

#include "kernels/replace_kernels.h"
#include "ops/add_node_test.h"
#include "passes/compile/token_order.h"
#include "passes/context/binding.h"
#include "passes/lower/attention_workspaces.h"
#include "runtime/program.h"

namespace situ {
namespace {

constexpr int64_t kDepth = 64, kIds = 64, kMostTokens = 128;

// ids [1, S] -> two attentions, each with q, k and v of its own, made before either of them runs; the sum of all
// results and of both q is the logits [1, S, kDepth].
struct TwoAttentions {
  Graph graph;
  Binding binding;

  TwoAttentions() {
    ids_ = graph.add_value("ids", DType::kI64);
    graph.values[ids_].info = {DType::kI64, true, {Dim(1), Dim::symbol(kSymS)}, std::nullopt};
    graph.inputs.push_back(ids_);
    binding.inputs[ids_] = InputRole::kTokenIds;
    std::vector<std::vector<ValueId>> operands;
    for (int a = 0; a < 2; ++a) operands.push_back({rows(), state(rows()), state(rows())});
    std::vector<ValueId> results;
    for (const std::vector<ValueId>& o : operands) results.push_back(add("Attention", "situ", o, {{"causal", 1}}));
    // Each q is read at the end too, so that no result is written in its place, which would take a barrier.
    ValueId sum = add("Add", "", results, {});
    for (const std::vector<ValueId>& o : operands) sum = add("Add", "", {sum, o[0]}, {});
    const ValueId axis = graph.add_constant("axis", Tensor::vector_i64({1}));
    graph.values[axis].info = info_of(graph.values[axis].constant);
    binding.logits = add("Squeeze", "", {sum, axis}, {});
    graph.outputs.push_back(binding.logits);
    graph.rebuild_links();
    add_attention_workspaces(graph, 2, kMostTokens, 2);
  }

  TokenOrder order() const {
    TokenOrder order;
    for (const Node& n : graph.nodes) order.by_sequence.push_back(n.is("Attention", "situ"));
    return order;
  }

 private:
  // [1, 1, S, kDepth] of the tokens
  ValueId rows() {
    Tensor table = Tensor::allocate(DType::kF32, {kIds, 1, kDepth});
    std::uniform_real_distribution<float> uniform(-1, 1);
    for (int64_t i = 0; i < table.count(); ++i) table.view().as<float>()[i] = uniform(random_);
    const ValueId t = graph.add_constant("c" + std::to_string(graph.values.size()), table);
    const ValueId gathered = add("Gather", "", {t, ids_}, {});
    return add("Transpose", "", {gathered}, {}, {0, 2, 1, 3});
  }
  ValueId state(ValueId rows) {
    const ValueId past = graph.add_value("past" + std::to_string(binding.states.size()), DType::kF32);
    graph.values[past].info = {DType::kF32, true, {Dim(1), Dim(1), Dim::symbol(kSymP), Dim(kDepth)}, std::nullopt};
    graph.inputs.push_back(past);
    binding.inputs[past] = InputRole::kState;
    const ValueId present = add("Concat", "", {past, rows}, {{"axis", 2}});
    graph.outputs.push_back(present);
    binding.states.push_back({past, present, StateRule::kAppend, 2});
    return present;
  }
  ValueId add(const std::string& op, const std::string& domain, const std::vector<ValueId>& in,
              const std::map<std::string, int64_t>& ints, const std::vector<int64_t>& perm = {}) {
    Node n;
    n.op = op;
    n.domain = domain;
    n.opset = domain.empty() ? 18 : 1;
    n.in = in;
    for (const auto& [key, v] : ints) n.set_int(key, v);
    if (!perm.empty()) n.set_ints("perm", perm);
    return test::add_node(graph, std::move(n));
  }

  ValueId ids_ = kNoValue;
  std::mt19937 random_{1};
};

// Feeds `count` tokens to each of two sequences in one step.
Status feed(Program& program, std::vector<Sequence>& sequences, int64_t count) {
  std::vector<std::vector<int64_t>> ids(sequences.size());
  std::vector<Segment> segments;
  for (size_t i = 0; i < sequences.size(); ++i) {
    Sequence& s = sequences[i];
    for (int64_t t = 0; t < count; ++t) ids[i].push_back(((s.length() + t) * 7 + static_cast<int64_t>(i)) % kIds);
    const Result<Run> slots = s.append(count);
    SITU_RETURN_IF_ERROR(slots.status());
    Segment segment = segment_of(s, ids[i], s.length() - count, slots->first_slot, false);
    segment.runs = s.runs().data();
    segment.run_count = static_cast<int>(s.runs().size());
    segments.push_back(segment);
  }
  Ledger ledger;
  return program.run({segments, count * static_cast<int64_t>(segments.size())}, ledger);
}

// The logits of two sequences' tokens after a few others.
std::vector<float> logits_of_tokens(bool alone) {
  const TwoAttentions model;
  const Result<Plan> plan = make_plan(model.graph, model.binding, {kMostTokens, 2 * kMostTokens, kMostTokens});
  EXPECT_TRUE(plan.is_ok()) << plan.status().message();
  Result<std::unique_ptr<StatePool>> states = StatePool::create(plan->states, {4 * kMostTokens});
  EXPECT_TRUE(states.is_ok());
  std::vector<std::byte> memory(static_cast<size_t>(plan->arena_bytes + plan->io_bytes) + 64);
  std::byte* base = memory.data() + (64 - reinterpret_cast<uintptr_t>(memory.data()) % 64);
  ThreadPool pool(2);
  Executor executor(pool);
  if (alone) executor.work_alone();
  Result<std::unique_ptr<Program>> program = Program::create(model.graph, model.binding, *plan, model.order(),
                                                             {base, base + plan->arena_bytes, states->get()}, executor);
  EXPECT_TRUE(program.is_ok()) << program.status().message();
  EXPECT_EQ((*program)->one_sequence(), "");
  std::vector<Sequence> sequences;
  for (int i = 0; i < 2; ++i) sequences.emplace_back(**states);
  for (const int64_t count : {kMostTokens / 2, kMostTokens / 2, int64_t{1}}) {  // keys in two blocks
    const Status done = feed(**program, sequences, count);
    EXPECT_TRUE(done.is_ok()) << done.message();
  }
  const View& logits = (*program)->logits();
  return {logits.as<const float>(), logits.as<const float>() + logits.count()};
}

std::thread::id slow_thread;
const KernelTable* real_kernels = nullptr;
int delays = 0;  // of the slow thread

void attend_late(const KernelCall& call, int thread, int threads) {
  if (std::this_thread::get_id() == slow_thread) {
    ++delays;
    std::this_thread::sleep_for(std::chrono::milliseconds(30));
  }
  real_kernels->attention(call, thread, threads);
}

TEST(AttentionWorkspaceTest, CallsThatDoNotReadEachOtherKeepTheirSums) {
  const std::vector<float> want = logits_of_tokens(true);
  ASSERT_EQ(want.size(), static_cast<size_t>(2 * kDepth));
  real_kernels = &kernels();
  KernelTable delayed = *real_kernels;
  delayed.attention = attend_late;
  slow_thread = std::this_thread::get_id();  // thread 0 of the pool is the one that calls it
  delays = 0;
  replace_kernels(&delayed);
  const std::vector<float> got = logits_of_tokens(false);
  replace_kernels(nullptr);
  EXPECT_EQ(delays, 6);  // two calls in each of three steps
  EXPECT_EQ(got, want);
}

}  // namespace
}  // namespace situ
