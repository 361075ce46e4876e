#include "runtime/pack_saver.h"

#include <sys/resource.h>

#include <system_error>

namespace situ {

bool PackSaver::is_child() const { return getpid() != process_; }

// The thread yields to those that compute, a little: at nice 19 the end of a program waited for minutes on a busy
// machine.
void PackSaver::save(std::function<std::string()> write) {
  if (is_child()) return;
  const std::lock_guard held(mutex_);
  thread_.join();
  try {
    thread_ = ProcessThread([this, write = std::move(write)] {
      setpriority(PRIO_PROCESS, static_cast<id_t>(gettid()), 5);
      problem_ = write();
    });
  } catch (const std::system_error& e) {
    problem_ = e.what();
  }
}

void PackSaver::finish() {
  if (is_child()) return;
  const std::lock_guard held(mutex_);
  thread_.join();
}

std::string PackSaver::problem() {
  if (is_child()) return "a child of the process that loaded the model does not save";
  const std::lock_guard held(mutex_);
  thread_.join();
  return problem_;
}

std::vector<PackSource> pack_sources(const ImportedModel& model) {
  std::vector<PackSource> sources;
  for (const auto& file : model.files) sources.push_back({file.get(), file->path, file->data, file->identity});
  return sources;
}

}  // namespace situ
