#include "runtime/pool.h"

#include <exception>
#include <string>

namespace situ {

Result<std::unique_ptr<ThreadPool>> make_pool(int threads) {
  if (threads < 0 || threads > ThreadPool::kMost)
    return Status::error(Code::kInvalidArgument, "threads should be an integer from 1 to " +
                                                     std::to_string(ThreadPool::kMost) + ", or 0 for one per CPU, is " +
                                                     std::to_string(threads));
  try {
    return std::make_unique<ThreadPool>(threads);
  } catch (const std::exception& e) {  // the system has none left
    return Status::error(Code::kNoRoom, "cannot start " + std::to_string(threads) + " threads: " + e.what());
  }
}

}  // namespace situ
