// Work that takes long, while Python's main thread, if it waits for it, runs signal handlers: one may raise, as that of
// Control-C does, and ends the work; or use the model.
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
  handle.check_process();
  constexpr size_t kFew = 64;
  if (gettid() != getpid() || tokens <= kFew) {
    nanobind::gil_scoped_release no_gil;
    return work(handle.model());
  }
  auto done = std::async(std::launch::async, [&] {
    handle.model().interrupt_when(&handle.interrupted());
    auto result = work(handle.model());
    handle.model().interrupt_when(nullptr);
    return result;
  });
  std::optional<nanobind::python_error> raised;
  for (bool ready = false; !ready;) {
    {
      nanobind::gil_scoped_release no_gil;
      ready = done.wait_for(kSignals) == std::future_status::ready;
    }
    if (ready || raised || PyErr_CheckSignals() == 0) continue;
    raised.emplace();
    handle.interrupted() = true;
  }
  handle.interrupted() = false;
  if (raised) throw nanobind::python_error(std::move(*raised));
  return done.get();
}

}  // namespace situ::python
