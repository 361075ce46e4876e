#include "base/side_thread.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <vector>

namespace situ {
namespace {

void wait_for(const std::atomic<int>& done, int count) {
  for (int seen = done; seen < count; seen = done) done.wait(seen);
}

TEST(SideThread, DoesItsJobsInOrder) {
  std::vector<int> order;
  std::atomic<int> done{0};
  SideThread thread;
  for (int i = 0; i < 1000; ++i)
    thread.post([&, i] {
      order.push_back(i);
      ++done;
      done.notify_all();
    });
  wait_for(done, 1000);
  for (int i = 0; i < 1000; ++i) EXPECT_EQ(order[static_cast<size_t>(i)], i);
}

TEST(SideThread, EndsWithJobsLeft) {
  std::atomic<int> done = 0;
  {
    SideThread thread;
    for (int i = 0; i < 100; ++i)
      thread.post([&] {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
        ++done;
      });
  }
  EXPECT_LE(done, 100);
}

TEST(SideThread, BeginsAnewInAChild) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "ThreadSanitizer allows a child no threads";
#endif
  SideThread thread;
  std::atomic<int> done = 0;
  const auto post = [&] {
    thread.post([&] {
      ++done;
      done.notify_all();
    });
  };
  post();
  wait_for(done, 1);
  const pid_t child = fork();
  if (child == 0) {
    post();
    wait_for(done, 2);
    _exit(7);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(WEXITSTATUS(status), 7);
}

}  // namespace
}  // namespace situ
