// The executor of a decoder's program: whatever threads do between calls, the results are those of one thread.
#include "runtime/executor.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <memory>
#include <random>
#include <thread>

#include "runtime/program.h"
#include "schedule/tiny_decoder_test.h"

namespace situ {
namespace {

constexpr int64_t kMostTokens = 96, kCapacity = 400, kWanted = 4;
constexpr int kSplits = 3;  // of attention, however many threads there are

// A program with memory of its own.
struct Machine {
  Machine(const test::TinyDecoder& decoder, const Plan& p, int threads)
      : plan(p), pool(threads), executor(pool), memory(static_cast<size_t>(p.arena_bytes + p.io_bytes) + 128) {
    Result<std::unique_ptr<StatePool>> made = StatePool::create(plan.states, {4 * kCapacity});
    EXPECT_TRUE(made.is_ok());
    states = std::move(*made);
    std::byte* base = memory.data() + (64 - reinterpret_cast<uintptr_t>(memory.data()) % 64);
    Result<std::unique_ptr<Program>> created = Program::create(decoder.graph, decoder.binding, plan, decoder.order,
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

// Sums of few rows have other last bits where threads share them (3e-5 behind some steps on the portable kernels and
// AVX2); what a thread reads too early is another number altogether.
testing::AssertionResult near(const std::vector<float>& is, const std::vector<float>& want) {
  if (is.size() != want.size()) return testing::AssertionFailure() << is.size() << " numbers, not " << want.size();
  for (size_t i = 0; i < is.size(); ++i)
    if (!(std::fabs(is[i] - want[i]) <= 2e-4f * (1 + std::fabs(want[i]))))
      return testing::AssertionFailure() << "number " << i << " is " << is[i] << ", not " << want[i];
  return testing::AssertionSuccess();
}

class ExecutorTest : public ::testing::Test {
 protected:
  const test::TinyDecoder decoder_{3, kSplits, kWanted};
  const Plan plan_ = decoder_.plan(kMostTokens, kCapacity, kWanted);
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
      EXPECT_TRUE(near(many.step(kSteps[i].first, kSteps[i].second), want[i]))
          << "step " << i << ", " << threads << " threads";
  }
}

TEST_F(ExecutorTest, OneThreadThatTakesThePartsOfAllGivesTheSame) {
  Machine one(decoder_, plan_, 1), alone(decoder_, plan_, 3);
  alone.executor.work_alone();
  for (const auto& [counts, wanted] : kSteps) EXPECT_TRUE(near(alone.step(counts, wanted), one.step(counts, wanted)));
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
    EXPECT_TRUE(near(both.step(counts, wanted), one.step(counts, wanted)));
    std::swap(both.program, *second);
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

TEST_F(ExecutorTest, TakesAsManySingleTokensAsThereIsRoomFor) {
  Machine machine(decoder_, plan_, 2);
  const std::vector<int64_t> ids(kWanted + 1, 3);
  std::vector<Segment> segments;
  for (int64_t i = 0; i <= kWanted; ++i) {
    machine.sequences.emplace_back(*machine.states);
    const Result<situ::Run> run = machine.sequences.back().append(1);
    ASSERT_TRUE(run.is_ok());
    segments.push_back(
        segment_of(machine.sequences.back(), {&ids[static_cast<size_t>(i)], 1}, 0, run->first_slot, false));
  }
  for (size_t i = 0; i < segments.size(); ++i) {
    segments[i].runs = machine.sequences[i].runs().data();
    segments[i].run_count = 1;
  }
  Ledger ledger;
  EXPECT_EQ(machine.program->run({segments, kWanted}, ledger).message(),
            "a step of 5 single tokens; 4 are planned for");
}

}  // namespace
}  // namespace situ
