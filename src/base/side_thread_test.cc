#include "base/side_thread.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <vector>

namespace situ {
namespace {

TEST(SideThread, DoesItsJobsInOrder) {
  for (const bool beside : {true, false}) {
    std::vector<int> order;
    SideThread thread(beside);
    for (int i = 0; i < 1000; ++i) {
      thread.post([&order, i] { order.push_back(i); });
      if (i % 100 == 99) {
        thread.wait(thread.posted());
        EXPECT_EQ(order.size(), static_cast<size_t>(i) + 1);
      }
    }
    thread.wait(1000);
    for (int i = 0; i < 1000; ++i) EXPECT_EQ(order[static_cast<size_t>(i)], i);
  }
}

TEST(SideThread, ThePosterGoesOn) {
  std::atomic<bool> open = false;
  SideThread thread;
  thread.post([&] {
    while (!open) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  });
  open = true;  // never reached if post() did the job
  thread.wait(1);
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

}  // namespace
}  // namespace situ
