// A child of fork() neither saves nor waits for the threads of its parent.
#include "runtime/pack_saver.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <thread>

namespace situ {
namespace {

TEST(PackSaver, AChildNeitherSavesNorWaits) {
  PackSaver saver;
  std::atomic<bool> may_end{false};
  saver.save([&] {
    may_end.wait(false);
    return std::string("the disk is full");
  });
  std::atomic<bool> waits{false};
  std::thread other([&] {
    waits = true;
    saver.finish();  // has it locked as long as it is saved
  });
  while (!waits) std::this_thread::yield();
  std::this_thread::sleep_for(std::chrono::milliseconds(5));
  const pid_t child = fork();
  if (child == 0) {
    alarm(20);  // rather than for ever
    saver.save([] { return std::string(); });
    saver.finish();
    const bool told = !saver.problem().empty();
    saver.~PackSaver();
    _exit(told ? 0 : 1);
  }
  int status = -1;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  may_end = true;
  may_end.notify_all();
  other.join();
  EXPECT_EQ(saver.problem(), "the disk is full");
}

}  // namespace
}  // namespace situ
