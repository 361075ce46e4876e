#include "python/model_handle.h"

#include <chrono>
#include <thread>
#include <vector>

namespace situ::python {

// With the GIL.
static std::vector<std::weak_ptr<ModelHandle>>& handles() {
  static auto* const all = new std::vector<std::weak_ptr<ModelHandle>>();
  return *all;
}

std::shared_ptr<ModelHandle> share(Model model) {
  auto handle = std::make_shared<ModelHandle>(std::move(model));
  std::erase_if(handles(), [](const auto& h) { return h.expired(); });
  handles().push_back(handle);
  return handle;
}

void end_program() {
  end_other_threads();
  for (const std::weak_ptr<ModelHandle>& weak : handles()) {
    const std::shared_ptr<ModelHandle> handle = weak.lock();
    if (!handle || !handle->in_this_process()) continue;
    const NoGil no_gil;
    const auto busy = [&] {
      const Stats now = handle->model().stats();
      return now.running + now.waiting > 0;
    };
    while (busy()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    handle->model().finish_saving();
  }
  begin_last_calls();
}

}  // namespace situ::python
