// StepThreads: when a step is taken by one thread alone.
#include "runtime/step_threads.h"

#include <gtest/gtest.h>

namespace situ {
namespace {

StepThreads one_program() {
  StepThreads threads(2);
  threads.add_program();
  return threads;
}

// Steps of which `count` are taken; how many of them alone. `use`: of a step that all take.
int alone_of(StepThreads& threads, int count, double together_ms, int sleeps, double alone_ms, int tokens = 1,
             const ProcessorUse& use = {}) {
  int alone = 0;
  for (int i = 0; i < count; ++i) {
    const bool now = threads.alone();
    alone += now;
    threads.done(0, tokens, now ? alone_ms : together_ms, now ? 0 : sleeps, threads.asks_use() ? use : ProcessorUse{});
  }
  return alone;
}

TEST(StepThreads, All_while_they_come) {
  StepThreads threads = one_program();
  EXPECT_EQ(alone_of(threads, 1000, 1.5, 0, 3), 0);
  EXPECT_EQ(alone_of(threads, 1000, 1.5, 3, 3), 0);
}

TEST(StepThreads, One_where_the_others_do_not_come_and_all_again_later) {
  StepThreads threads = one_program();
  EXPECT_EQ(alone_of(threads, 2, 100, 40, 8), 0);
  EXPECT_GE(alone_of(threads, 3000, 100, 40, 8), 2960);     // looks again less and less often
  EXPECT_LE(alone_of(threads, 2000, 1.5, 0, 3) * 3, 4000);  // but every four seconds
  EXPECT_EQ(alone_of(threads, 1000, 1.5, 0, 3), 0);
}

TEST(StepThreads, All_where_one_alone_would_be_slower) {
  StepThreads threads = one_program();
  EXPECT_LE(alone_of(threads, 1000, 10, 8, 20), 20);
}

// A step alone would take long: it is not tried for the sake of threads that wait for a slow core.
TEST(StepThreads, All_where_they_sleep_beside_one_that_runs) {
  StepThreads threads = one_program();
  EXPECT_EQ(alone_of(threads, 1000, 20, 40, 350, 1, {30, 0}), 0);
  EXPECT_EQ(alone_of(threads, 1000, 20, 40, 350, 1, {30, 1}), 0);
}

TEST(StepThreads, One_where_a_thread_was_put_aside_or_none_of_them_ran) {
  StepThreads aside = one_program(), quota = one_program();
  EXPECT_GE(alone_of(aside, 1000, 20, 40, 8, 1, {30, 2}), 900);
  EXPECT_GE(alone_of(quota, 1000, 20, 40, 8, 1, {16, 0}), 900);
}

TEST(StepThreads, A_slow_first_step_says_nothing) {
  StepThreads threads = one_program();
  EXPECT_EQ(alone_of(threads, 1, 300, 20, 3), 0);
  EXPECT_EQ(alone_of(threads, 1000, 1.5, 0, 3), 0);
}

// Prompt lookup guesses other numbers of tokens at every step.
TEST(StepThreads, Steps_of_any_length_are_alone_where_the_others_do_not_come) {
  StepThreads threads = one_program();
  int alone = 0;
  for (int i = 0; i < 600; ++i) alone += alone_of(threads, 1, 100 + i % 7, 40, 8 + i % 7, 1 + i % 7);
  EXPECT_GE(alone, 560);
}

TEST(StepThreads, All_where_one_alone_would_be_slower_for_some_length) {
  StepThreads threads = one_program();
  int alone = 0;
  for (int i = 0; i < 1000; ++i) alone += alone_of(threads, 1, 10 + i % 3, 8, 20 + i % 3, 1 + i % 3);
  EXPECT_LE(alone, 20);
}

TEST(StepThreads, A_trial_without_a_like_step_ends) {
  StepThreads threads = one_program();
  alone_of(threads, 2, 100, 40, 8, 1);
  EXPECT_LE(alone_of(threads, 1000, 1.5, 0, 3, 2), 90);
  EXPECT_EQ(alone_of(threads, 1000, 1.5, 0, 3, 2), 0);
}

// Two threads that begin, or wake, on one processor are parted by the kernel soon.
TEST(StepThreads, All_where_a_start_takes_less_than_the_kernel_needs_to_part_them) {
  StepThreads threads = one_program();
  EXPECT_EQ(alone_of(threads, 7, 2.6, 40, 2, 1, {2.6, 9}), 0);
  EXPECT_EQ(alone_of(threads, 1000, 1.5, 0, 2), 0);
}

TEST(StepThreads, Steps_that_wait_for_pages_say_nothing) {
  StepThreads threads = one_program();
  EXPECT_EQ(alone_of(threads, 4, 300, 40, 3, 1, {100, 9, 5000}), 0);
}

// One thread was believed to be sooner, and the others come again: it looks after 20 ms.
TEST(StepThreads, All_soon_where_the_others_come_again) {
  StepThreads threads = one_program();
  const int before = alone_of(threads, 15, 2.6, 40, 2, 1, {2.6, 9});
  EXPECT_GT(before, 0);
  EXPECT_TRUE(threads.alone());
  const int after = alone_of(threads, 1000, 1.5, 0, 2);
  EXPECT_LE(after, 10);
  EXPECT_EQ(threads.alone_steps(), before + after);
}

// A look costs at most 2% of the time.
TEST(StepThreads, Looks_are_as_rare_as_they_are_dear) {
  StepThreads threads = one_program();
  alone_of(threads, 10, 100, 40, 8, 1, {20, 9});
  EXPECT_GE(alone_of(threads, 5000, 48, 40, 8, 1, {20, 9}), 4970);  // a look loses 40 ms, 250 steps take 2,000
}

}  // namespace
}  // namespace situ
