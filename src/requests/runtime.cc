#include "requests/runtime.h"

#include <map>
#include <mutex>

namespace situ {

Result<Runtime> Runtime::create(int threads) {
  Result<std::unique_ptr<ThreadPool>> pool = make_pool(threads);
  if (!pool.is_ok()) return pool.status();
  return Runtime(std::make_shared<Impl>(std::shared_ptr<ThreadPool>(std::move(*pool))));
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
