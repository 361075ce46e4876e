#include "python/no_gil.h"

#include <unistd.h>

#include <condition_variable>
#include <mutex>
#include <optional>
#include <thread>

namespace situ::python {

struct Outside {
  const pid_t process = getpid();
  std::mutex mutex;
  std::condition_variable changed;
  int64_t threads = 0;
  std::optional<std::thread::id> last;  // once the program ends
  const std::shared_ptr<std::atomic<bool>> ending = std::make_shared<std::atomic<bool>>(false);

  // Whether this thread is to sleep. Needs the mutex.
  bool bars_this_thread() const { return last && *last != std::this_thread::get_id(); }
  // Those of this process: a child of fork() has one thread, which is inside, and perhaps a mutex that another locked.
  static Outside& here() {
    static std::atomic<Outside*> current{nullptr};
    Outside* found = current.load();
    if (found && found->process == getpid()) return *found;
    auto mine = std::make_unique<Outside>();
    if (current.compare_exchange_strong(found, mine.get())) return *mine.release();
    return *found;
  }
};

[[noreturn]] static void sleep_for_ever() {
  for (;;) pause();
}

NoGil::NoGil() : outside_(Outside::here()) {
  bool barred = false;
  {
    const std::lock_guard held(outside_.mutex);
    barred = outside_.bars_this_thread();
    if (!barred) ++outside_.threads;
  }
  state_ = PyEval_SaveThread();
  if (barred) sleep_for_ever();
}

NoGil::~NoGil() {
  const auto come_back = [&] {
    --outside_.threads;
    outside_.changed.notify_all();
  };
  {
    std::unique_lock held(outside_.mutex);
    if (outside_.bars_this_thread()) {
      come_back();
      held.unlock();
      sleep_for_ever();
    }
  }
  PyEval_RestoreThread(state_);
  bool barred = false;
  {
    const std::lock_guard held(outside_.mutex);
    come_back();
    barred = outside_.bars_this_thread();
  }
  if (!barred) return;
  PyEval_SaveThread();
  sleep_for_ever();
}

std::shared_ptr<const std::atomic<bool>> ending() { return Outside::here().ending; }

void end_other_threads() {
  Outside& outside = Outside::here();
  {
    const std::lock_guard held(outside.mutex);
    outside.last = std::this_thread::get_id();
  }
  *outside.ending = true;
  const nanobind::gil_scoped_release no_gil;  // others may come back for it
  std::unique_lock held(outside.mutex);
  outside.changed.wait(held, [&] { return outside.threads == 0; });
}

void begin_last_calls() { *Outside::here().ending = false; }

}  // namespace situ::python
