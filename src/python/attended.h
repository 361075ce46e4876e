// Work that takes long, while Python's main thread, if it waits for it, runs signal handlers: one may raise, as that of
// Control-C does, and ends the work; or use the model. Work of other threads goes on.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <future>
#include <optional>

#include "python/model_handle.h"

namespace situ::python {

// How long a signal may wait. Asking takes the GIL, for which a busy thread of Python makes others wait 5 ms.
constexpr std::chrono::milliseconds kSignals{100};

// Returns work(model), called without the GIL, by another thread where this is the main one. Throws what a handler
// raised. `tokens` that are fed, where it is known: a few are not worth a thread. Needs the GIL.
template <typename Work>
auto attended(ModelHandle& handle, Work&& work, size_t tokens = SIZE_MAX) {
  constexpr size_t kFew = 64;
  if (gettid() != getpid() || tokens <= kFew) return handle.apart(std::forward<Work>(work));
  handle.check_process();
  const auto interrupted = std::make_shared<std::atomic<bool>>(false);
  auto done = std::async(std::launch::async, [&] {
    const CallsOfThread until(interrupted);
    return work(handle.model());
  });
  std::optional<nanobind::python_error> raised;
  for (bool ready = false; !ready;) {
    {
      const NoGil no_gil;
      ready = done.wait_for(kSignals) == std::future_status::ready;
    }
    if (ready || raised || PyErr_CheckSignals() == 0) continue;
    raised.emplace();
    *interrupted = true;
  }
  if (raised) throw nanobind::python_error(std::move(*raised));
  return done.get();
}

}  // namespace situ::python
