// What the models of a runtime share: the threads that compute, and the scheduler, whose thread feeds all of them.
#pragma once

#include <memory>

#include "base/thread_pool.h"
#include "requests/scheduler.h"
#include "situ/load_options.h"

namespace situ {

struct Runtime::Impl {
  explicit Impl(std::shared_ptr<ThreadPool> threads) : pool(std::move(threads)), scheduler(*pool) {}
  const std::shared_ptr<ThreadPool> pool;
  Scheduler scheduler;
};

}  // namespace situ
