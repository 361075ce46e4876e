// Decisions of the scheduler, on a model that is none: it has slots, steps and a clock of its own.
#include "requests/policy.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <map>
#include <vector>

#include "base/sweep_for_tests.h"

namespace situ {
namespace {

using Waiting = Policy::Waiting;

std::vector<uint64_t> order_of(Policy& policy, std::vector<Waiting> waiting) {
  std::vector<uint64_t> order;
  while (!waiting.empty()) {
    const size_t chosen = policy.next(waiting);
    order.push_back(waiting[chosen].number);
    policy.admitted(waiting[chosen]);
    waiting.erase(waiting.begin() + static_cast<int64_t>(chosen));
  }
  return order;
}

TEST(Policy, OneClientIsServedInOrder) {
  Policy policy;
  EXPECT_EQ(order_of(policy, {{0, "", false, 1}, {0, "", false, 2}, {0, "", false, 3}}),
            (std::vector<uint64_t>{1, 2, 3}));
}

TEST(Policy, ClientsTakeTurns) {
  Policy policy;
  EXPECT_EQ(order_of(policy, {{0, "a", false, 1},
                              {0, "a", false, 2},
                              {0, "a", false, 3},
                              {0, "b", false, 4},
                              {0, "b", false, 5},
                              {0, "c", false, 6}}),
            (std::vector<uint64_t>{1, 4, 6, 2, 5, 3}));
}

// A new connection for each request is a new client each time.
TEST(Policy, NewClientsDoNotKeepAnOldOneWaiting) {
  Policy policy;
  std::vector<Waiting> waiting{{0, "old", false, 0}};
  policy.admitted(waiting[0]);
  waiting[0].number = 1;
  for (uint64_t i = 2; i < 6; ++i) {
    waiting.push_back({0, "new " + std::to_string(i), false, i});
    const size_t chosen = policy.next(waiting);
    if (waiting[chosen].client == "old") return;
    policy.admitted(waiting[chosen]);
    waiting.erase(waiting.begin() + static_cast<int64_t>(chosen));
  }
  FAIL() << "the old client was never chosen";
}

TEST(Policy, PriorityIsBeforeTurns) {
  Policy policy;
  EXPECT_EQ(order_of(policy, {{0, "a", false, 1}, {2, "a", false, 2}, {2, "a", false, 3}, {-1, "b", false, 4}}),
            (std::vector<uint64_t>{2, 3, 1, 4}));
}

TEST(Policy, WhoGaveWayIsAtTheHeadOfItsQueue) {
  Policy policy;
  EXPECT_EQ(order_of(policy, {{0, "", false, 7}, {0, "", false, 8}, {0, "", true, 9}}),
            (std::vector<uint64_t>{9, 7, 8}));
}

TEST(Policy, TheYoungestOfTheLowestPriorityGivesWay) {
  EXPECT_EQ(Policy::victim(std::vector<Policy::Running>{{0, 1, true}, {0, 5, true}, {0, 3, true}}), 1);
  EXPECT_EQ(Policy::victim(std::vector<Policy::Running>{{1, 9, true}, {0, 1, true}}), 1);
  EXPECT_EQ(Policy::victim(std::vector<Policy::Running>{{0, 9, false}, {0, 1, true}}), 1);
  EXPECT_EQ(Policy::victim(std::vector<Policy::Running>{{0, 9, false}}), -1);
}

TEST(Policy, ASecondOfWaitingCountsAsAPriorityOfOne) {
  Policy policy;
  const std::vector<Waiting> waiting{{3, "a", false, 1, 0}, {0, "b", false, 2, 2}, {0, "c", false, 3, 4}};
  EXPECT_EQ(policy.next(waiting), 0u);  // of those on one level by turns
  policy.admitted(waiting[0]);
  EXPECT_EQ(policy.next(waiting), 2u);
  EXPECT_EQ(Policy::level(waiting[0], waiting), 3);
  EXPECT_EQ(Policy::level(waiting[1], waiting), 2);
  EXPECT_EQ(Policy::level(waiting[2], waiting), 3);
}

TEST(Policy, OneSlotIn32IsHeldBackAndWhatIsPromised) {
  EXPECT_TRUE(Policy::fits(300, {310, 0, 320, false}));
  EXPECT_FALSE(Policy::fits(301, {310, 0, 320, false}));
  EXPECT_FALSE(Policy::fits(300, {310, 1, 320, false}));
  EXPECT_TRUE(Policy::fits(310, {310, 0, 320, true}));
}

// A large request lets small ones pass, and is not passed for ever.
TEST(Policy, OneThatDoesNotFitIsPassedForAWhile) {
  Policy policy;
  std::vector<Waiting> waiting{{0, "large", false, 0}};
  int passed = 0;
  for (uint64_t number = 1; number < 100; ++number) {
    waiting.push_back({0, "small " + std::to_string(number), false, number});
    const size_t chosen = policy.choose(waiting, [&](size_t i) { return waiting[i].client != "large"; });
    if (chosen == waiting.size()) break;
    policy.admitted(waiting[chosen]);
    waiting.erase(waiting.begin() + static_cast<int64_t>(chosen));
    ++passed;
  }
  EXPECT_EQ(passed, 16);
  EXPECT_EQ(policy.choose(waiting, [](size_t) { return true; }), 0u);
  EXPECT_EQ(waiting[0].passed, 0);
}

// Requests whose tokens need slots, and a scheduler that decides as Policy says. All that it does not decide is tried:
// when a request arrives, in which order those that run take slots, and how long the pieces of prompts are.
class Exhaustion {
 public:
  struct Size {
    int prompt, answer;
  };
  Exhaustion(std::vector<Size> sizes, int slots) : sizes_(std::move(sizes)), slots_(slots) {}

  // Whether every way comes to an end: none goes in a circle. A step that changes nothing is a circle.
  bool always_ends() { return visit(State(sizes_.size())); }

 private:
  enum Place { kAway, kWaits, kRuns, kDone };
  struct One {
    int place = kAway, fed = 0, tokens = 0, number = 0, passed = 0;
    bool preempted = false;
    bool operator<(const One& other) const { return key() < other.key(); }
    std::array<int, 6> key() const { return {place, fed, tokens, number, passed, preempted}; }
  };
  using State = std::vector<One>;
  using Choices = std::vector<int>;

  bool visit(const State& state) {
    const auto [entry, is_new] = seen_.emplace(state, false);
    if (!is_new) return entry->second;  // false: it is on the way here
    if (std::ranges::all_of(state, [](const One& r) { return r.place == kDone; })) return entry->second = true;
    for (size_t who = 0; who <= state.size(); ++who) {  // who arrives; the last: nobody
      if (who < state.size() && state[who].place != kAway) continue;
      State next = state;
      if (who < state.size()) {
        next[who].place = kWaits;
        next[who].tokens = sizes_[who].prompt;
        next[who].number =
            1 + static_cast<int>(std::ranges::count_if(state, [](const One& r) { return r.number > 0; }));
      } else if (std::ranges::all_of(state, [](const One& r) { return r.place == kAway || r.place == kDone; })) {
        continue;  // nothing to do
      }
      if (!step(next)) return false;
    }
    return entry->second = true;
  }

  // Every step that may follow.
  bool step(State state) {
    admit(state);
    std::vector<size_t> order;
    for (size_t i = 0; i < state.size(); ++i)
      if (state[i].place == kRuns) order.push_back(i);
    const size_t eldest = *std::ranges::min_element(order, {}, [&](size_t i) { return state[i].number; });
    do {
      Choices pieces(order.size());
      while (true) {
        bool fair = true;  // answers are all fed, and the first prompt
        for (size_t k = 0; k < order.size(); ++k)
          fair = fair && (pieces[k] > 0 || (order[k] != eldest && state[order[k]].fed < sizes_[order[k]].prompt));
        if (fair && !visit(after(state, order, pieces))) return false;
        size_t k = 0;
        while (k < pieces.size() && ++pieces[k] == 3) pieces[k++] = 0;
        if (k == pieces.size()) break;
      }
    } while (std::ranges::next_permutation(order).found);
    return true;
  }

  int free(const State& state) const {
    int taken = 0;
    for (const One& r : state) taken += r.fed;
    return slots_ - taken;
  }

  void admit(State& state) const {
    while (true) {
      std::vector<Waiting> waiting;
      std::vector<size_t> who;
      Policy::Room room{free(state), 0, slots_, true};
      for (size_t i = 0; i < state.size(); ++i) {
        const One& r = state[i];
        if (r.place == kWaits) {
          who.push_back(i);
          waiting.push_back({0, "", r.preempted, static_cast<uint64_t>(r.number), 0, r.passed});
        }
        room.alone = room.alone && r.place != kRuns;
        if (r.place == kRuns) room.promised += r.tokens - r.fed;
      }
      Policy policy;
      const size_t chosen = policy.choose(waiting, [&](size_t i) { return Policy::fits(state[who[i]].tokens, room); });
      for (size_t i = 0; i < who.size(); ++i) state[who[i]].passed = static_cast<int>(waiting[i].passed);
      if (chosen == waiting.size()) return;
      state[who[chosen]].place = kRuns;
    }
  }

  // Pieces: none, one token, all.
  State after(State state, const std::vector<size_t>& order, const Choices& pieces) const {
    size_t refused = state.size();
    bool ended = false;
    for (size_t k = 0; k < order.size(); ++k) {
      One& r = state[order[k]];
      const int count = pieces[k] == 2 ? r.tokens - r.fed : pieces[k];
      if (count > free(state)) {
        refused = order[k];
        continue;
      }
      r.fed += count;
      if (r.fed < r.tokens || count == 0) continue;
      if (++r.tokens < sizes_[order[k]].prompt + sizes_[order[k]].answer) continue;
      r = {kDone, 0, 0, r.number, 0, false};
      ended = true;
    }
    if (refused == state.size() || ended) return state;
    std::vector<Policy::Running> running;
    for (const size_t i : order) running.push_back({0, static_cast<uint64_t>(state[i].number), true});
    One& gives = state[order[static_cast<size_t>(order.size() > 1 ? Policy::victim(running) : 0)]];
    if (order.size() > 1)
      gives = {kWaits, 0, gives.tokens, gives.number, gives.passed, true};
    else
      gives = {kDone, 0, 0, gives.number, 0, false};  // the state ends here
    return state;
  }

  const std::vector<Size> sizes_;
  const int slots_;
  std::map<State, bool> seen_;
};

// Up to four requests in up to twelve slots, of which one, two or none fit together. Of three and four few cases, but
// in a sweep.
TEST(Policy, WhoeverRunsLongestComesToAnEnd) {
  for (int slots = 1; slots <= 12; ++slots)
    for (size_t count = 1; count <= 4; ++count) {
      std::vector<Exhaustion::Size> kinds;
      const bool few = count >= 3 && !sweeping();
      if (few && (slots % 4 != 0 || slots * static_cast<int>(count) > 24)) continue;
      for (const int prompt : {1, slots / 2, slots / 2 + 1, slots - 1})
        for (const int answer : {1, 3})
          if (prompt > 0 && !(few && (answer == 1 ? prompt < slots - 1 : prompt != slots / 2)))
            kinds.push_back({prompt, answer});
      std::vector<size_t> of(count);  // not falling: every order of arrival is tried
      for (size_t k = 0; k < count && !kinds.empty();) {
        std::vector<Exhaustion::Size> sizes;
        std::string text;
        for (const size_t i : of) {
          sizes.push_back(kinds[i]);
          text += " " + std::to_string(kinds[i].prompt) + "+" + std::to_string(kinds[i].answer);
        }
        ASSERT_TRUE(Exhaustion(sizes, slots).always_ends()) << slots << " slots:" << text;
        for (k = 0; k < count && of[k] + 1 == kinds.size();) ++k;
        if (k < count) std::fill(of.begin(), of.begin() + static_cast<int64_t>(k) + 1, of[k] + 1);
      }
    }
}

TEST(StepCost, IsFittedToAllSteps) {
  StepCost cost;
  for (int64_t i = 0; i < 300; ++i) {
    const int64_t answers = i % 7, rows = i % 5 * 16;
    cost.learn(4 + 0.5 * static_cast<double>(answers) + 0.25 * static_cast<double>(rows), answers, rows);
  }
  EXPECT_NEAR(cost.answers_ms(0), 4, 0.2);
  EXPECT_NEAR(cost.answers_ms(10), 9, 0.2);
  EXPECT_NEAR(cost.row_ms(), 0.25, 0.01);
  // Never negative, whatever steps take.
  StepCost odd;
  for (int64_t i = 0; i < 50; ++i) odd.learn(50 - static_cast<double>(i % 4) * 16, i % 4, i % 4 * 16);
  EXPECT_GE(odd.answers_ms(0), 0);
  EXPECT_GE(odd.row_ms(), 0);
}

constexpr Policy::Budget kWatched{.interactive = true};

// Steps of 20 ms, and 0.5 ms for each row of a prompt beside it: the pieces that are fed soon keep to 40 ms, where
// somebody waits; else they are whole.
TEST(Policy, PromptsTakeWhatAnswersLeave) {
  Policy policy;
  constexpr double kDecode = 20, kRow = 0.5;
  constexpr int64_t kChunk = 512;
  EXPECT_EQ(policy.prompt_rows(0, kChunk, {}), kChunk);
  EXPECT_EQ(policy.prompt_rows(8, kChunk, {}), kChunk);
  for (int i = 0; i < 20; ++i) policy.cost.learn(kDecode, 8, 0);
  double longest = 0;
  for (int i = 0; i < 200; ++i) {
    const int64_t rows = policy.prompt_rows(8, kChunk, kWatched);
    const double ms = kDecode + kRow * static_cast<double>(rows);
    if (i > 1) longest = std::max(longest, ms);
    policy.cost.learn(ms, 8, rows);
  }
  EXPECT_LE(longest, 2 * kDecode + 2);
  EXPECT_GE(policy.prompt_rows(8, kChunk, kWatched), 38);
  // Prompts for 2 s wait: a step may take 60 ms, and 80 ms where they are for more.
  const auto rows = [&](double backlog_ms) {
    return policy.prompt_rows(8, kChunk, {.interactive = true, .backlog_ms = backlog_ms});
  };
  EXPECT_EQ(rows(1000), rows(0));
  EXPECT_EQ(policy.prompt_rows(8, kChunk, {.interactive = true, .later = true}), 0);  // another model's come first
  EXPECT_NEAR(static_cast<double>(rows(2000)), 80, 3);
  EXPECT_NEAR(static_cast<double>(rows(60000)), 120, 5);
  // Short steps may last 30 ms, and prompts come to an end beside steps of any length.
  Policy quick, slow;
  for (int i = 0; i < 20; ++i) {
    quick.cost.learn(2, 8, 0);
    quick.cost.learn(2 + 16 * 0.1, 8, 16);
    slow.cost.learn(2, 8, 0);
    slow.cost.learn(2 + 16 * 40, 8, 16);
  }
  EXPECT_NEAR(static_cast<double>(quick.prompt_rows(8, kChunk, kWatched)), 280, 5);
  EXPECT_EQ(slow.prompt_rows(8, kChunk, kWatched), 1);
}

// What one model's prompts have taken of a round is not left for another one's.
TEST(Policy, ModelsShareTheTimeOfPrompts) {
  Policy policy;
  for (int i = 0; i < 20; ++i) policy.cost.learn(0.5 * (16 + i), 0, 16 + i);
  EXPECT_NEAR(static_cast<double>(policy.prompt_rows(0, 512, kWatched)), 60, 2);
  EXPECT_NEAR(static_cast<double>(
                  policy.prompt_rows(0, 512, {.interactive = true, .backlog_ms = 0, .fed = true, .spent_ms = 20})),
              20, 2);
  EXPECT_EQ(policy.prompt_rows(0, 512, {.interactive = true, .backlog_ms = 0, .fed = true, .spent_ms = 40}), 0);
}

TEST(Policy, ShortPromptsPassLongOnesAndNoneStandsStill) {
  using Reading = Policy::Reading;
  using Rows = std::vector<int64_t>;
  EXPECT_EQ(Policy::share(std::vector<Reading>{{0, 1, 4000}, {0, 2, 20}}, 512), (Rows{492, 20}));
  EXPECT_EQ(Policy::share(std::vector<Reading>{{0, 1, 4000}, {0, 2, 600}, {0, 3, 300}}, 512), (Rows{256, 0, 256}));
  EXPECT_EQ(Policy::share(std::vector<Reading>{{0, 1, 100}, {0, 2, 100}}, 64), (Rows{64, 0}));
  EXPECT_EQ(Policy::share(std::vector<Reading>{{0, 1, 100}, {0, 2, 100}}, 1), (Rows{1, 0}));
  EXPECT_EQ(Policy::share(std::vector<Reading>{{0, 1, 9}, {1, 2, 100}}, 64), (Rows{0, 64}));
  EXPECT_EQ(Policy::share(std::vector<Reading>{{0, 1, 9}}, 0), (Rows{0}));
  EXPECT_EQ(Policy::share(std::vector<Reading>{}, 10), Rows{});
  Policy policy;
  const std::vector<Reading> two{{0, 1, 4000}, {0, 2, 20}};
  const size_t first = policy.one_of(two);
  EXPECT_EQ(policy.one_of(two) + first, 1u);
}

// An encoder of 200 pieces of 4 ms beside steps of 20 ms, and prompts whose rows take 0.5 ms: a step is at most twice
// as long as without them, but for the piece that was begun.
TEST(Policy, EncodersAreSuspendedBesideAnswers) {
  Policy policy;
  constexpr double kDecode = 20, kRow = 0.5, kPiece = 4;
  for (int i = 0; i < 20; ++i) policy.cost.learn(kDecode, 8, 0);
  for (int i = 0; i < 20; ++i) policy.cost.learn(kDecode + 16 * kRow, 8, 16);
  int left = 200, steps = 0;
  double longest = 0;
  for (; left > 0; ++steps) {
    Policy::Budget budget = kWatched;
    const double most = policy.encoder_ms(8, budget);
    do {
      budget.spent_ms += kPiece;
      --left;
    } while (left > 0 && budget.spent_ms < most);
    const int64_t rows = policy.prompt_rows(8, 512, budget);
    EXPECT_GE(rows, 14);
    longest = std::max(longest, budget.spent_ms + kDecode + kRow * static_cast<double>(rows));
    policy.cost.learn(kDecode + kRow * static_cast<double>(rows), 8, rows);
  }
  EXPECT_LE(longest, 2 * kDecode + kPiece);
  EXPECT_LE(steps, 70);
  // Beside none that somebody waits for, it goes on long.
  EXPECT_GT(policy.encoder_ms(8, {}), 10 * policy.encoder_ms(8, kWatched));
}

// Picks of one job are one part, also where another's stand between them: two threads would write into one answer.
TEST(Policy, PicksOfAJobAreOnePart) {
  struct Pick {
    int job;
  };
  std::vector<size_t> firsts{7};
  first_picks(std::vector<Pick>{{1}, {2}, {1}, {3}, {2}, {1}}, &firsts);
  EXPECT_EQ(firsts, (std::vector<size_t>{0, 1, 3}));
}

}  // namespace
}  // namespace situ
