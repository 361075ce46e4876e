#include "base/side_thread.h"

#include <unistd.h>

#include <system_error>
#include <utility>

namespace situ {

SideThread::~SideThread() {
  ended_ = true;
  news_.fetch_add(1);
  news_.notify_all();
  thread_.clear();  // which joins it
}

bool SideThread::post(std::function<void()> job) {
  {
    const std::lock_guard lock(mutex_);
    if (process_ != getpid()) {
      jobs_.clear();
      thread_.clear();
      try {
        thread_.emplace_back([this] { run(); });
      } catch (const std::system_error&) {
        return false;
      }
      process_ = getpid();
    }
    jobs_.push_back(std::move(job));
  }
  news_.fetch_add(1);
  news_.notify_all();
  return true;
}

void SideThread::run() {
  for (;;) {
    const unsigned seen = news_.load();
    if (ended_) return;
    std::function<void()> job;
    {
      const std::lock_guard lock(mutex_);
      if (!jobs_.empty()) {
        job = std::move(jobs_.front());
        jobs_.pop_front();
      }
    }
    if (job)
      job();
    else
      news_.wait(seen);
  }
}

}  // namespace situ
