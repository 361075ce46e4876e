// The executor of a program: whatever threads do between calls, the results are those of one thread.
#include "runtime/executor.h"

#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <mutex>
#include <random>
#include <set>
#include <thread>

#include "runtime/program.h"
#include "schedule/tiny_decoder_test.h"

namespace situ {
namespace {

constexpr int64_t kMostStepTokens = 96, kCapacity = 400, kWanted = 4;
constexpr int64_t kLongPiece = 300;
constexpr int kMostThreads = 5, kFollowing = 3;

// A program with memory of its own.
struct Machine {
  Machine(const test::TinyGraph& model, const Plan& p, int threads, int64_t slots = 4 * kCapacity)
      : plan(p), pool(threads), executor(pool), memory(static_cast<size_t>(p.arena_bytes + p.io_bytes) + 128) {
    Result<std::unique_ptr<StatePool>> made = StatePool::create(plan.states, {slots});
    EXPECT_TRUE(made.is_ok());
    states = std::move(*made);
    states->space(SpaceKind::kAppend).spread();  // none grows into another one's slots
    std::byte* base = memory.data() + (64 - reinterpret_cast<uintptr_t>(memory.data()) % 64);
    Result<std::unique_ptr<Program>> created = Program::create(model.graph, model.binding, plan, model.order,
                                                               {base, base + plan.arena_bytes, states.get()}, executor);
    EXPECT_TRUE(created.is_ok()) << created.status().message();
    program = std::move(*created);
  }

  // Feeds sequences the next tokens, as many as `counts` says; a negative number is a piece of a prompt. The logits of
  // the last `wanted` tokens.
  std::vector<float> step(const std::vector<int64_t>& counts, int64_t wanted) {
    std::vector<Segment> segments;
    std::vector<std::vector<int64_t>> ids(counts.size());
    while (sequences.size() < counts.size()) sequences.emplace_back(*states);
    for (size_t i = 0; i < counts.size(); ++i) {
      const int64_t count = std::abs(counts[i]), past = sequences[i].length();
      if (count == 0) continue;
      const Result<situ::Run> run = sequences[i].append(count);
      EXPECT_TRUE(run.is_ok() && run->length == count);
      for (int64_t j = 0; j < count; ++j)
        ids[i].push_back((past + j + 5 * static_cast<int64_t>(i)) * 7 % test::TinyDecoder::kVocabulary);
      segments.push_back(segment_of(sequences[i], ids[i], past, run->first_slot, counts[i] < 0));
      segments.back().runs = sequences[i].runs().data();
      segments.back().run_count = static_cast<int>(sequences[i].runs().size());
    }
    Ledger ledger;
    const Status done = program->run({segments, wanted}, ledger);
    EXPECT_TRUE(done.is_ok()) << done.message();
    EXPECT_EQ(ledger.copied, 0);
    if (wanted == 0) return {};
    const View& logits = program->logits();
    return {logits.as<const float>(), logits.as<const float>() + logits.count()};
  }

  const Plan plan;
  ThreadPool pool;
  Executor executor;
  std::vector<std::byte> memory;
  std::unique_ptr<StatePool> states;
  std::unique_ptr<Program> program;
  std::vector<Sequence> sequences;
};

// Sleeps now and then, each thread in its own way.
void pause(int thread) {
  thread_local std::mt19937 random(static_cast<uint32_t>(thread) + 1);
  const uint32_t x = random() % 8;
  if (x == 0) std::this_thread::sleep_for(std::chrono::microseconds(random() % 300));
  if (x == 1) std::this_thread::yield();
}

class ExecutorTest : public ::testing::Test {
 protected:
  const test::TinyDecoder decoder_{3, kMostThreads, kCapacity};
  const Plan plan_ = decoder_.plan(kMostStepTokens, kCapacity, kWanted);
};

// Pieces of prompts, single tokens of up to four sequences, both in one step, nothing wanted, and many rows.
const std::vector<std::pair<std::vector<int64_t>, int64_t>> kSteps{
    {{-5}, 0},         {{1}, 1},         {{1, -7, -3}, 0}, {{1, 1, 1}, 3},    {{-2, 0, -20, 1}, 1},
    {{1, 1, 1, 1}, 4}, {{-80}, 0},       {{0, -90, 1}, 1}, {{1, 1, 1, 1}, 4}, {{0, 0, -40, -50}, 0},
    {{1, 1, 1, 1}, 4}, {{-1, -1, 1}, 1}, {{1}, 1},         {{1, 1, 1, 1}, 2}, {{-3, -4, -5, 1}, 1},
};

TEST_F(ExecutorTest, ThreadsThatSleepAtRandomGiveTheResultsOfOne) {
  Machine one(decoder_, plan_, 1);
  std::vector<std::vector<float>> want;
  for (const auto& [counts, wanted] : kSteps) want.push_back(one.step(counts, wanted));
  for (const int threads : {2, 3, 5}) {
    Machine many(decoder_, plan_, threads);
    many.executor.before_calls(pause);
    for (size_t i = 0; i < kSteps.size(); ++i)
      EXPECT_EQ(many.step(kSteps[i].first, kSteps[i].second), want[i]) << "step " << i << ", " << threads << " threads";
  }
}

TEST_F(ExecutorTest, OneThreadThatTakesThePartsOfAllGivesTheSame) {
  Machine one(decoder_, plan_, 1), alone(decoder_, plan_, 3);
  alone.executor.work_alone();
  for (const auto& [counts, wanted] : kSteps) EXPECT_EQ(alone.step(counts, wanted), one.step(counts, wanted));
}

// The logits of `context` tokens of sequence `index`, then of some single tokens.
std::vector<float> logits_alone(Machine& machine, size_t index, int64_t context) {
  std::vector<int64_t> counts(index + 1);
  for (int64_t left = context; left > 0; left += counts[index]) {
    counts[index] = -std::min<int64_t>(left, kLongPiece);
    machine.step(counts, 0);
  }
  std::vector<float> all;
  counts[index] = 1;
  for (int i = 0; i < kFollowing; ++i) {
    const std::vector<float> logits = machine.step(counts, 1);
    all.insert(all.end(), logits.begin(), logits.end());
  }
  return all;
}

// Of a decoder, where keys are of no block, of two and of many: neither threads nor who else is in the step changes a
// bit of the logits.
TEST(ExecutorOfLongSequences, ThreadsAndNeighboursChangeNoBit) {
  constexpr int64_t kLong = 3000 + kFollowing;
  const test::TinyDecoder decoder(2, kMostThreads, kLong);
  const Plan plan = decoder.plan(kLongPiece, kLong, 3);
  const std::vector<int64_t> contexts{10, 300, 3000};
  std::vector<std::vector<float>> want;
  for (size_t i = 0; i < contexts.size(); ++i) {
    Machine alone(decoder, plan, 1, kLong);
    want.push_back(logits_alone(alone, i, contexts[i]));
  }
  for (const int threads : {2, 5})
    for (size_t i = 0; i < contexts.size(); ++i) {
      Machine alone(decoder, plan, threads, kLong);
      EXPECT_EQ(logits_alone(alone, i, contexts[i]), want[i]) << contexts[i] << " tokens, " << threads << " threads";
    }
  for (const int threads : {1, 3}) {
    Machine machine(decoder, plan, threads, 8 * kLong);
    for (bool more = true; more;) {  // the prompts side by side, as far as they go
      std::vector<int64_t> counts;
      for (size_t i = 0; i < contexts.size(); ++i) {
        const int64_t past = i < machine.sequences.size() ? machine.sequences[i].length() : 0;
        counts.push_back(-std::min<int64_t>(contexts[i] - past, kLongPiece / 3));
      }
      more = std::any_of(counts.begin(), counts.end(), [](int64_t c) { return c != 0; });
      if (more) machine.step(counts, 0);
    }
    std::vector<std::vector<float>> together(contexts.size());
    for (int i = 0; i < kFollowing; ++i) {
      const std::vector<float> logits = machine.step({1, 1, 1}, 3);
      ASSERT_EQ(logits.size(), contexts.size() * test::TinyDecoder::kVocabulary);
      for (size_t s = 0; s < contexts.size(); ++s)
        together[s].insert(together[s].end(), logits.begin() + static_cast<int64_t>(s) * test::TinyDecoder::kVocabulary,
                           logits.begin() + static_cast<int64_t>(s + 1) * test::TinyDecoder::kVocabulary);
    }
    EXPECT_EQ(together, want) << threads << " threads";
  }
}

// Attention whose queries are fewer than the step's tokens.
TEST_F(ExecutorTest, TheLastQueriesAloneGiveTheSame) {
  const test::TinyDecoder few(3, kMostThreads, kCapacity, true);
  const Plan few_plan = few.plan(kMostStepTokens, kCapacity, kWanted);
  for (const int threads : {1, 3}) {
    Machine all(decoder_, plan_, threads), last(few, few_plan, threads);
    for (const auto& [count, wanted] : std::vector<std::pair<int64_t, int64_t>>{{-5, 1}, {-90, 4}, {1, 1}, {-30, 2}})
      EXPECT_EQ(last.step({count}, wanted), all.step({count}, wanted)) << count << " tokens, " << threads << " threads";
  }
}

// An encoder's attention: of rows that are no tokens of the step.
TEST(ExecutorOfAnEncoder, AttentionHasItsOwnRows) {
  const test::TinyEncoder encoder;
  const Plan plan = encoder.plan(kMostStepTokens, kCapacity, 1);
  for (const int threads : {1, 2, 3}) {
    Machine machine(encoder, plan, threads);
    const std::vector<float> want = machine.step({test::TinyEncoder::kRows}, 1);
    for (const int64_t tokens : {1, 2, 40}) {
      std::fill_n(const_cast<float*>(machine.program->logits().as<const float>()), want.size(), -1.0f);
      EXPECT_EQ(machine.step({tokens}, 1), want) << tokens << " tokens, " << threads << " threads";
    }
  }
}

// The arrays of an encoder stand for one token: that does not make a short step, which one thread may take alone.
TEST_F(ExecutorTest, AnEncoderIsNoShortStep) {
  for (const bool encodes : {true, false}) {
    Machine machine(decoder_, plan_, 3);
    machine.executor.work_alone();
    std::mutex mutex;
    std::set<std::thread::id> threads;
    machine.executor.before_calls([&](int) {
      const std::lock_guard held(mutex);
      threads.insert(std::this_thread::get_id());
    });
    Sequence sequence(*machine.states);
    const Result<situ::Run> run = sequence.append(1);
    ASSERT_TRUE(run.is_ok());
    const std::vector<int64_t> ids{1};
    const Segment segment = with_runs(segment_of(sequence, ids, 0, run->first_slot, false), sequence);
    StepInput input{{&segment, 1}, 1};
    input.encodes = encodes;
    Ledger ledger;
    ASSERT_TRUE(machine.program->run(input, ledger).is_ok());
    EXPECT_EQ(threads.size(), encodes ? 3u : 1u);
  }
}

// Two programs, one executor, the same states in turn.
TEST_F(ExecutorTest, ServesSeveralPrograms) {
  Machine one(decoder_, plan_, 1), both(decoder_, plan_, 3);
  both.executor.before_calls(pause);
  std::vector<std::byte> memory(static_cast<size_t>(plan_.arena_bytes + plan_.io_bytes) + 128);
  std::byte* base = memory.data() + (64 - reinterpret_cast<uintptr_t>(memory.data()) % 64);
  Result<std::unique_ptr<Program>> second =
      Program::create(decoder_.graph, decoder_.binding, plan_, decoder_.order,
                      {base, base + plan_.arena_bytes, both.states.get()}, both.executor);
  ASSERT_TRUE(second.is_ok());
  for (const auto& [counts, wanted] : kSteps) {
    EXPECT_EQ(both.step(counts, wanted), one.step(counts, wanted));
    std::swap(both.program, *second);
  }
}

// A step that is suspended at every barrier, and others between its pieces by other memory.
TEST_F(ExecutorTest, GoesOnWhereItWasSuspended) {
  for (const int threads : {1, 3}) {
    Machine machine(decoder_, plan_, threads), other(decoder_, plan_, 1);
    std::vector<std::byte> memory(static_cast<size_t>(plan_.arena_bytes + plan_.io_bytes) + 128);
    std::byte* base = memory.data() + (64 - reinterpret_cast<uintptr_t>(memory.data()) % 64);
    Result<std::unique_ptr<Program>> own =
        Program::create(decoder_.graph, decoder_.binding, plan_, decoder_.order,
                        {base, base + plan_.arena_bytes, machine.states.get()}, machine.executor);
    ASSERT_TRUE(own.is_ok());
    const std::vector<float> want = other.step({-60}, 1);
    machine.sequences.emplace_back(*machine.states);
    machine.sequences.emplace_back(*machine.states);
    Sequence& sequence = machine.sequences[0];
    std::vector<int64_t> ids;
    for (int64_t j = 0; j < 60; ++j) ids.push_back(j * 7 % test::TinyDecoder::kVocabulary);
    const Result<situ::Run> run = sequence.append(60);
    ASSERT_TRUE(run.is_ok());
    Segment segment = segment_of(sequence, ids, 0, run->first_slot, true);
    segment.runs = sequence.runs().data();
    segment.run_count = 1;
    Ledger whole, pieces;
    const StepInput input{{&segment, 1}, 1};
    ASSERT_TRUE((*own)->run(input, whole).is_ok());
    ASSERT_TRUE((*own)->prepare(input, pieces).is_ok());
    int suspended = 0;
    for (;; ++suspended) {
      const Result<bool> done = (*own)->go_on(Clock::time_point::min(), pieces);
      ASSERT_TRUE(done.is_ok()) << done.status().message();
      if (*done) break;
      machine.step({0, -3}, 0);
    }
    EXPECT_GT(suspended, 3);
    const View& logits = (*own)->logits();
    EXPECT_EQ(std::vector<float>(logits.as<const float>(), logits.as<const float>() + logits.count()), want);
    EXPECT_EQ(pieces.computed, whole.computed);
    EXPECT_EQ(pieces.copied, 0);
  }
}

TEST_F(ExecutorTest, EndsAtABarrierWhenInterrupted) {
  Machine machine(decoder_, plan_, 3);
  std::atomic<bool> flag{false};
  std::atomic<int> calls{0};
  machine.pool.interrupt_when(&flag);
  machine.executor.before_calls([&](int) {
    if (++calls == 10) flag = true;
  });
  Sequence sequence(*machine.states);
  const Result<situ::Run> run = sequence.append(2);
  ASSERT_TRUE(run.is_ok());
  const std::vector<int64_t> ids{1, 2};
  Segment segment = segment_of(sequence, ids, 0, run->first_slot, false);
  segment.runs = sequence.runs().data();
  segment.run_count = 1;
  Ledger ledger;
  EXPECT_EQ(machine.program->run({{&segment, 1}, 1}, ledger).message(), "interrupted");
  EXPECT_LT(calls, 30);  // of more than 80
  flag = false;
  EXPECT_TRUE(machine.program->run({{&segment, 1}, 1}, ledger).is_ok());
}

}  // namespace
}  // namespace situ
