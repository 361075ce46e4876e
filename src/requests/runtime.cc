#include "requests/runtime.h"

#include <map>
#include <mutex>

namespace situ {

Result<std::shared_ptr<Runtime>> Runtime::shared(int threads) {
  static std::mutex mutex;
  static std::map<int, std::weak_ptr<Runtime>> all;
  const std::lock_guard held(mutex);
  const auto found = all.find(threads);
  if (std::shared_ptr<Runtime> runtime = found == all.end() ? nullptr : found->second.lock()) return runtime;
  Result<std::unique_ptr<ThreadPool>> pool = make_pool(threads);
  if (!pool.is_ok()) return pool.status();
  auto runtime = std::make_shared<Runtime>(std::shared_ptr<ThreadPool>(std::move(*pool)));
  all[threads] = runtime;
  return runtime;
}

}  // namespace situ
