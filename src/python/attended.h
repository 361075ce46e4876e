// Work that takes long, while Python's main thread, if it waits for it, runs signal handlers: one may raise, as that of
// Control-C does, and ends the work; or use the model, between two tokens.
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

class Attended {
 public:
  explicit Attended(ModelHandle& model) : model_(model) {}

  // Returns work(model), called alone and without the GIL, by another thread where this is the main one. Throws what a
  // handler raised. `tokens` that are fed, where it is known: a few are not worth a thread. Needs the GIL.
  template <typename Work>
  auto run(Work&& work, size_t tokens = SIZE_MAX) {
    model_.check_process();
    const auto alone = [&] {
      held_ = model_.lock(&interrupted_);
      struct Release {
        ModelLock& lock;
        ~Release() { lock.unlock(); }
      } const release{held_};
      return work(model_.model());
    };
    constexpr size_t kFew = 64;
    if (gettid() != getpid() || tokens <= kFew) {
      nanobind::gil_scoped_release no_gil;
      return alone();
    }
    auto done = std::async(std::launch::async, alone);
    std::optional<nanobind::python_error> raised;
    for (bool ready = false; !ready;) {
      {
        nanobind::gil_scoped_release no_gil;
        ready = done.wait_for(kSignals) == std::future_status::ready;
      }
      if (!ready && !raised) run_handlers(raised);
    }
    if (raised) throw nanobind::python_error(std::move(*raised));
    return done.get();
  }

  // For the work, where it shows a token: leaves the model to the handlers that run. Not with text alone, which comes
  // before the logits of the prompt are read.
  void give_way(const Token& token) {
    if (!handlers_run_ || token.id < 0) return;
    held_.unlock();
    handlers_run_.wait(true);
    held_ = model_.lock(&interrupted_);
  }

 private:
  void run_handlers(std::optional<nanobind::python_error>& raised) {
    handlers_run_ = true;
    if (PyErr_CheckSignals() != 0) {
      raised.emplace();
      interrupted_ = true;
    }
    handlers_run_ = false;
    handlers_run_.notify_all();
  }

  ModelHandle& model_;
  ModelLock held_;  // by the thread that works
  std::atomic<bool> interrupted_{false}, handlers_run_{false};
};

}  // namespace situ::python
