#include "base/side_thread.h"

#include <system_error>
#include <utility>

namespace situ {

SideThread::SideThread(bool beside) {
  if (!beside) return;
  try {
    thread_ = std::thread([this] { run(); });
  } catch (const std::system_error&) {
  }
}

SideThread::~SideThread() {
  if (!thread_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    ended_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void SideThread::post(std::function<void()> job) {
  ++posted_;
  if (!thread_.joinable()) return job();
  {
    const std::lock_guard lock(mutex_);
    jobs_.push_back(std::move(job));
  }
  changed_.notify_all();
}

void SideThread::wait(size_t jobs) {
  if (!thread_.joinable()) return;
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return done_ >= jobs; });
}

void SideThread::run() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] { return ended_ || !jobs_.empty(); });
    if (ended_) return;
    const std::function<void()> job = std::move(jobs_.front());
    jobs_.pop_front();
    lock.unlock();
    job();
    lock.lock();
    ++done_;
    changed_.notify_all();
  }
}

}  // namespace situ
