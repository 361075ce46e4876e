#include "base/thread_pool.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <memory>

namespace situ {
namespace {

// Bit t of the result: thread t entered a job with two barriers.
unsigned entered(ThreadPool& pool) {
  std::atomic<unsigned> seen{0};
  pool.run([&](int thread, int) {
    pool.barrier().wait();
    seen |= 1u << thread;
    pool.barrier().wait();
  });
  return seen;
}

TEST(ThreadPool, EveryThreadEnters) {
  ThreadPool pool(3);
  for (int i = 0; i < 20; ++i) EXPECT_EQ(entered(pool), 7u);
}

// What a thread writes before a barrier, the others read behind it: plain memory, which ThreadSanitizer looks at.
TEST(ThreadPool, ABarrierOrdersWhatThreadsWrite) {
  ThreadPool pool(3);
  int numbers[3] = {}, sums[3] = {};
  for (int i = 0; i < 20; ++i)
    pool.run([&](int thread, int) {
      for (int step = 0; step < 5; ++step) {
        ++numbers[thread];
        pool.barrier().wait();
        sums[thread] = numbers[0] + numbers[1] + numbers[2];
        pool.barrier().wait();
      }
    });
  for (const int sum : sums) EXPECT_EQ(sum, 300);
}

// Threads that ran on one processor, as the kernel may wake them, are parted and then free again.
TEST(ThreadPool, ThreadsAreWokenOnProcessorsOfTheirOwn) {
  cpu_set_t all, one;
  ASSERT_EQ(sched_getaffinity(0, sizeof(all), &all), 0);
  const int here = sched_getcpu();
  if (CPU_COUNT(&all) < 2) GTEST_SKIP() << "one processor";
  CPU_ZERO(&one);
  CPU_SET(here, &one);
  ASSERT_EQ(sched_setaffinity(0, sizeof(one), &one), 0);
  ThreadPool pool(2);  // whose worker is bound as this thread is
  entered(pool);
  std::atomic<pid_t> worker{0};
  pool.run([&](int thread, int) {
    if (thread == 1) worker = gettid();
  });
  ASSERT_EQ(sched_setaffinity(worker, sizeof(all), &all), 0);
  std::atomic<int> processor{-1};
  cpu_set_t free;
  pool.run([&](int thread, int) {
    if (thread != 1) return;
    processor = sched_getcpu();
    sched_getaffinity(0, sizeof(free), &free);
  });
  EXPECT_NE(processor, here);
  EXPECT_TRUE(CPU_EQUAL(&free, &all));
  ASSERT_EQ(sched_setaffinity(0, sizeof(all), &all), 0);
}

// A child has none of its parent's threads: it begins its own, and its parent's stay what they are.
TEST(ThreadPool, AChildOfForkUsesItToo) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "ThreadSanitizer allows a child no threads";
#endif
  for (const bool runs : {false, true}) {
    auto pool = std::make_unique<ThreadPool>(3);
    EXPECT_EQ(entered(*pool), 7u);
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      alarm(20);  // what hangs ends by a signal
      bool right = true;
      for (int i = 0; i < 5 && runs; ++i) right = right && entered(*pool) == 7u;
      pool.reset();
      _exit(right ? 0 : 1);
    }
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
    EXPECT_EQ(entered(*pool), 7u);
  }
}

}  // namespace
}  // namespace situ
