#include "requests/runtime.h"

#include <unistd.h>

#include <atomic>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <string>

namespace situ {

Result<Runtime> Runtime::create(int threads) {
  if (threads < 0 || threads > ThreadPool::kMost)
    return Status::error(Code::kInvalidArgument, "threads should be an integer from 1 to " +
                                                     std::to_string(ThreadPool::kMost) + ", or 0 for one per CPU, is " +
                                                     std::to_string(threads));
  try {
    return Runtime(std::make_shared<Impl>(std::make_shared<ThreadPool>(threads)));
  } catch (const std::exception& e) {  // the system has none left
    return Status::error(Code::kNoRoom, "cannot start " + std::to_string(threads) + " threads: " + e.what());
  }
}

Result<Runtime> Runtime::shared(int threads) {
  // A child of fork() has runtimes of its own: the threads of its parent's are not there, and their locks may be held.
  struct All {
    const pid_t process = getpid();
    std::mutex mutex;
    std::map<int, std::weak_ptr<Impl>> by_threads;
  };
  static std::atomic<All*> current{nullptr};
  All* all = current.load();
  if (!all || all->process != getpid()) {
    auto mine = std::make_unique<All>();
    if (current.compare_exchange_strong(all, mine.get())) all = mine.release();
  }
  const std::lock_guard held(all->mutex);
  const auto found = all->by_threads.find(threads);
  if (found != all->by_threads.end())
    if (std::shared_ptr<Impl> impl = found->second.lock()) return Runtime(std::move(impl));
  Result<Runtime> made = create(threads);
  if (made.is_ok()) all->by_threads[threads] = made->impl_;
  return made;
}

int Runtime::threads() const { return impl_->pool->threads(); }

}  // namespace situ
