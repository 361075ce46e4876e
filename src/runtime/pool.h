// The threads of an engine.
#pragma once

#include <memory>

#include "base/status.h"
#include "base/thread_pool.h"

namespace situ {

// `threads`: 0 for one per CPU. Errors: out of range; the system has none left.
Result<std::unique_ptr<ThreadPool>> make_pool(int threads);

}  // namespace situ
