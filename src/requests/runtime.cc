#include "requests/runtime.h"

#include <exception>
#include <map>
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
  static std::mutex mutex;
  static std::map<int, std::weak_ptr<Impl>> all;
  const std::lock_guard held(mutex);
  const auto found = all.find(threads);
  if (std::shared_ptr<Impl> impl = found == all.end() ? nullptr : found->second.lock()) return Runtime(std::move(impl));
  Result<Runtime> made = create(threads);
  if (made.is_ok()) all[threads] = made->impl_;
  return made;
}

int Runtime::threads() const { return impl_->pool->threads(); }

}  // namespace situ
