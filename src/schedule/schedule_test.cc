// Schedules: what make_schedule says of a decoder, and mutations of it, which the verifier must reject.
#include "schedule/schedule.h"
#include "passes/lower/attention_workspaces.h"
#include "schedule/tiny_decoder_test.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>

namespace situ {
namespace {

constexpr int64_t kTokens = 12, kCapacity = 40, kWanted = 4;

class ScheduleTest : public ::testing::Test {
 protected:
  ScheduleTest() {
    Result<Schedule> made = make_schedule(decoder_.graph, plan_, decoder_.order);
    EXPECT_TRUE(made.is_ok()) << made.status().message();
    schedule_ = std::move(*made);
  }

  Status verify(const Schedule& s) const { return verify_schedule(decoder_.graph, plan_, decoder_.order, s); }
  // Why a changed schedule is rejected; "": it is not.
  std::string rejected(const std::function<void(Schedule&)>& change) const {
    Schedule s = schedule_;
    change(s);
    const Status status = verify(s);
    return status.is_ok() ? "" : status.message();
  }
  const Node& node(const Call& c) const {
    return decoder_.graph.nodes[static_cast<size_t>(plan_.steps[static_cast<size_t>(c.step)].node)];
  }
  std::string op(const Call& c) const { return node(c).op; }
  std::vector<size_t> calls(const std::function<bool(const Call&)>& wanted) const {
    std::vector<size_t> list;
    for (size_t i = 0; i < schedule_.calls.size(); ++i)
      if (wanted(schedule_.calls[i])) list.push_back(i);
    return list;
  }

  const test::TinyDecoder decoder_{2, 3, kCapacity};
  const Plan plan_ = decoder_.plan(kTokens, kCapacity, kWanted);
  Schedule schedule_;
};

TEST_F(ScheduleTest, OfADecoderIsVerified) {
  const Status good = verify(schedule_);
  EXPECT_TRUE(good.is_ok()) << good.message();
  EXPECT_EQ(schedule_.one_sequence, "");
  EXPECT_FALSE(schedule_.needs_contiguous);
  EXPECT_EQ(plan_.steps.size(), schedule_.calls.size());
  EXPECT_EQ(schedule_.row_groups.size(), 2u);  // q, k, v and up, down of the first layer
  EXPECT_EQ(calls([](const Call& c) { return c.out_by_slot != 0; }).size(), 4u);  // keys and values of two layers
  EXPECT_GE(calls([](const Call& c) { return c.last_rows; }).size(), 5u);
}

TEST_F(ScheduleTest, AttentionOverRunsIsToldByATable) {
  const std::vector<size_t> told = calls([](const Call& c) { return c.takes == Takes::kTable; });
  ASSERT_EQ(told.size(), 2u);
  for (const size_t i : told) {
    EXPECT_EQ(op(schedule_.calls[i]), "Attention");
    EXPECT_EQ(schedule_.calls[i].out.size(), 2u);  // the workspace
    EXPECT_NE(rejected([&](Schedule& s) { s.calls[i].out.pop_back(); }), "");
    EXPECT_NE(rejected([&](Schedule& s) { s.calls[i].takes = Takes::kStep; }), "");
    EXPECT_EQ(rejected([&](Schedule& s) { s.calls[i].takes = Takes::kEach; }), "");  // slower, not wrong
  }
  for (const size_t i : calls([](const Call& c) { return c.takes != Takes::kTable; }))
    EXPECT_NE(rejected([&](Schedule& s) { s.calls[i].takes = Takes::kTable; }), "") << i;
}

// Attention of two layers whose workspaces were one block: the next one waits for the first.
TEST_F(ScheduleTest, WorkspacesAreMemoryLikeAnyOther) {
  Plan plan = plan_;
  std::vector<int> roots;
  for (const Node& n : decoder_.graph.nodes)
    if (attention_workspace(n) != kNoValue) roots.push_back(plan.values[attention_workspace(n)].root);
  ASSERT_EQ(roots.size(), 2u);
  plan.arena[static_cast<size_t>(roots[1])].offset = plan.arena[static_cast<size_t>(roots[0])].offset =
      plan.arena_bytes;
  Result<Schedule> made = make_schedule(decoder_.graph, plan, decoder_.order);
  ASSERT_TRUE(made.is_ok());
  EXPECT_TRUE(verify_schedule(decoder_.graph, plan, decoder_.order, *made).is_ok());
}

TEST_F(ScheduleTest, NoEdgeIsOneTooMany) {
  ASSERT_GT(schedule_.edges.size(), schedule_.calls.size() / 2);
  for (size_t e = 0; e < schedule_.edges.size(); ++e)
    EXPECT_NE(rejected([&](Schedule& s) { s.edges.erase(s.edges.begin() + static_cast<ptrdiff_t>(e)); }), "")
        << schedule_.edges[e].before << " -> " << schedule_.edges[e].after;
}

TEST_F(ScheduleTest, EdgesGoForwardInOrder) {
  for (size_t e = 0; e < schedule_.edges.size(); ++e) {
    EXPECT_NE(rejected([&](Schedule& s) { std::swap(s.edges[e].before, s.edges[e].after); }), "");
    EXPECT_NE(rejected([&](Schedule& s) { s.edges[e].before = -1; }), "");
    EXPECT_NE(rejected([&](Schedule& s) { s.edges[e].after = static_cast<int>(s.calls.size()); }), "");
  }
  EXPECT_NE(rejected([](Schedule& s) { std::reverse(s.edges.begin(), s.edges.end()); }), "");
  // More of them do no harm.
  EXPECT_EQ(rejected([](Schedule& s) { s.edges.push_back({0, static_cast<int>(s.calls.size()) - 1}); }), "");
}

// `s` with call `from` moved to `to`, before it: what it waits for there waits for it no more.
Schedule moved(Schedule s, int from, int to) {
  const auto place = [&](int call) { return call == from ? to : call >= to && call < from ? call + 1 : call; };
  std::rotate(s.calls.begin() + to, s.calls.begin() + from, s.calls.begin() + from + 1);
  for (Edge& e : s.edges) e = {place(e.before), place(e.after)};
  std::erase_if(s.edges, [](const Edge& e) { return e.before >= e.after; });
  std::sort(s.edges.begin(), s.edges.end(), [](const Edge& a, const Edge& b) { return a.after < b.after; });
  s.row_groups.clear();
  return s;
}

TEST_F(ScheduleTest, CallsStandBehindWhatTheyWaitFor) {
  for (const Edge& e : schedule_.edges) {
    EXPECT_FALSE(verify(moved(schedule_, e.after, e.before)).is_ok()) << e.before << " -> " << e.after;
    EXPECT_NE(rejected([&](Schedule& s) {
                std::swap(s.calls[static_cast<size_t>(e.before)], s.calls[static_cast<size_t>(e.after)]);
              }),
              "");
  }
}

TEST_F(ScheduleTest, EveryStepIsCalledOnce) {
  for (size_t i = 0; i < schedule_.calls.size(); ++i) {
    EXPECT_NE(rejected([&](Schedule& s) { s.calls[i].step = -1; }), "");
    EXPECT_NE(rejected([&](Schedule& s) { s.calls[i].prepared.kernel = nullptr; }), "");
    EXPECT_NE(rejected([&](Schedule& s) { s.calls[i].step = s.calls[(i + 5) % s.calls.size()].step; }), "");
    EXPECT_NE(rejected([&](Schedule& s) { s.calls[i].in.push_back(s.calls[i].out[0]); }), "");
    EXPECT_NE(rejected([&](Schedule& s) { s.calls[i].out.clear(); }), "");
  }
  EXPECT_NE(rejected([](Schedule& s) { s.calls.pop_back(); }), "");
  EXPECT_NE(rejected([](Schedule& s) { s.calls.push_back(s.calls.back()); }), "");
}

TEST_F(ScheduleTest, AccessesAreWhatCallsTouch) {
  ASSERT_GT(schedule_.accesses.size(), 2 * schedule_.calls.size());
  for (size_t a = 0; a < schedule_.accesses.size(); ++a) {
    const auto change = [&](const std::function<void(Access&)>& f) {
      return rejected([&](Schedule& s) { f(s.accesses[a]); });
    };
    EXPECT_NE(change([](Access& x) { --x.end; }), "");
    EXPECT_NE(change([](Access& x) { ++x.begin; }), "");
    EXPECT_NE(change([](Access& x) { x.write = !x.write; }), "");
    EXPECT_NE(change([](Access& x) { ++x.root; }), "");
    EXPECT_NE(change([](Access& x) { x.region = RegionKind::kNone; }), "");
  }
  EXPECT_NE(rejected([](Schedule& s) { s.accesses.pop_back(); }), "");
  EXPECT_NE(rejected([](Schedule& s) { s.calls[0].accesses = -1; }), "");
}

TEST_F(ScheduleTest, RowGroupsAreOfProductsOfTheSameRows) {
  for (size_t g = 0; g < schedule_.row_groups.size(); ++g) {
    EXPECT_NE(rejected([&](Schedule& s) { ++s.row_groups[g].end; }), "");
    EXPECT_NE(rejected([&](Schedule& s) { --s.row_groups[g].begin; }), "");
    EXPECT_NE(rejected([&](Schedule& s) { s.row_groups[g].end = s.row_groups[g].begin + 1; }), "");
    EXPECT_NE(rejected([&](Schedule& s) { s.calls[static_cast<size_t>(s.row_groups[g].begin)].takes = Takes::kEach; }),
              "");
    if (g == 0) continue;
    EXPECT_NE(rejected([&](Schedule& s) {
                s.row_groups[g - 1].end = s.row_groups[g].end;
                s.row_groups.erase(s.row_groups.begin() + static_cast<ptrdiff_t>(g));
              }),
              "");
    EXPECT_NE(rejected([&](Schedule& s) { std::swap(s.row_groups[g - 1], s.row_groups[g]); }), "");
  }
}

TEST_F(ScheduleTest, RowGroupsShareNoMemory) {
  Plan plan = plan_;
  const RowGroup& g = schedule_.row_groups.back();
  const auto root = [&](int call) -> Root& {
    const Call& c = schedule_.calls[static_cast<size_t>(call)];
    return plan.arena[static_cast<size_t>(plan.values[c.out[0]].root)];
  };
  root(g.begin + 1).offset = root(g.begin).offset;
  EXPECT_FALSE(verify_schedule(decoder_.graph, plan, decoder_.order, schedule_).is_ok());
}

TEST_F(ScheduleTest, WhatIsLeftOutWithoutLogitsIsNotNeeded) {
  const std::vector<size_t> needed = calls([](const Call& c) { return !c.for_logits; });
  ASSERT_GE(needed.size(), 8u);
  for (const size_t i : needed) EXPECT_NE(rejected([&](Schedule& s) { s.calls[i].for_logits = true; }), "") << i;
  for (const size_t i : calls([](const Call& c) { return c.takes == Takes::kStep && c.for_logits && !c.last_rows; }))
    EXPECT_EQ(rejected([&](Schedule& s) { s.calls[i].for_logits = false; }), "") << i;  // slower, not wrong
}

TEST_F(ScheduleTest, RowsThatAreNotComputedAreNotRead) {
  int changed = 0;
  for (const size_t i : calls([](const Call& c) { return c.last_rows; })) {
    EXPECT_NE(rejected([&](Schedule& s) { s.calls[i].for_logits = false; }), "");
    // What it reads is computed for the last rows too, unless all of it is.
    const auto reads_last_rows = [&](const Call& c) {
      return c.last_rows && std::any_of(c.out.begin(), c.out.end(), [&](ValueId v) {
               const auto& in = schedule_.calls[i].in;
               return std::find(in.begin(), in.end(), v) != in.end();
             });
    };
    if (calls(reads_last_rows).empty()) continue;
    EXPECT_NE(rejected([&](Schedule& s) { s.calls[i].last_rows = false; }), "") << i;
    ++changed;
  }
  EXPECT_GE(changed, 2);
  for (const size_t i : calls([](const Call& c) { return !c.last_rows && !c.for_logits; }))
    EXPECT_NE(rejected([&](Schedule& s) { s.calls[i].last_rows = true; }), "") << i;
}

TEST_F(ScheduleTest, RowsOfStatesAreWrittenBySlot) {
  for (size_t i = 0; i < schedule_.calls.size(); ++i)
    for (uint32_t bit = 0; bit <= schedule_.calls[i].out.size(); ++bit)
      EXPECT_NE(rejected([&](Schedule& s) { s.calls[i].out_by_slot ^= 1u << bit; }), "") << i << ", output " << bit;
}

TEST_F(ScheduleTest, KeysAreReadByRuns) {
  const std::vector<size_t> readers = calls([](const Call& c) { return c.by_run != 0; });
  ASSERT_EQ(readers.size(), 2u);
  for (const size_t i : readers) {
    EXPECT_NE(rejected([&](Schedule& s) { s.calls[i].by_run = 0; }), "");
    EXPECT_NE(rejected([&](Schedule& s) { s.calls[i].by_run = 0b010; }), "");
    EXPECT_NE(rejected([&](Schedule& s) { s.calls[i].by_run = 0b111; }), "");
  }
}

TEST_F(ScheduleTest, StepsHaveSeveralSequencesOnlyWhereTheOrderOfTokensSaysSo) {
  TokenOrder one = decoder_.order;
  one.one_sequence = "tested";
  EXPECT_FALSE(verify_schedule(decoder_.graph, plan_, one, schedule_).is_ok());
  Result<Schedule> made = make_schedule(decoder_.graph, plan_, one);
  ASSERT_TRUE(made.is_ok());
  EXPECT_TRUE(verify_schedule(decoder_.graph, plan_, one, *made).is_ok());
  EXPECT_EQ(made->one_sequence, "tested");
  EXPECT_EQ(made->calls.size(), plan_.steps.size());
  for (const Call& c : made->calls) EXPECT_TRUE(c.takes == Takes::kStep && !c.last_rows && c.out_by_slot == 0);
}

}  // namespace
}  // namespace situ
