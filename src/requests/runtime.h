// What the models of a process share: the threads that compute, and the scheduler, whose thread feeds all of them.
#pragma once

#include <memory>

#include "base/thread_pool.h"
#include "requests/scheduler.h"
#include "runtime/pool.h"

namespace situ {

class Runtime {
 public:
  // That of the process with so many threads (0: one per CPU), which lives as long as somebody has it. Errors: out of
  // range; the system has no threads left.
  static Result<std::shared_ptr<Runtime>> shared(int threads);

  explicit Runtime(std::shared_ptr<ThreadPool> pool) : pool_(std::move(pool)), scheduler_(*pool_) {}
  const std::shared_ptr<ThreadPool>& pool() const { return pool_; }
  Scheduler& scheduler() { return scheduler_; }

 private:
  std::shared_ptr<ThreadPool> pool_;
  Scheduler scheduler_;
};

}  // namespace situ
