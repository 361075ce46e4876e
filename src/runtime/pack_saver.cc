#include "runtime/pack_saver.h"

#include <sys/resource.h>
#include <unistd.h>

#include <system_error>

namespace situ {

// The thread yields to those that compute, a little: at nice 19 the end of a program waited for minutes on a busy
// machine.
void PackSaver::save(PackSave save) {
  const std::lock_guard held(mutex_);
  thread_.join();
  try {
    thread_ = ProcessThread([this, save = std::move(save)]() mutable {
      setpriority(PRIO_PROCESS, static_cast<id_t>(gettid()), 5);
      problem_ = save.run();
    });
  } catch (const std::system_error& e) {
    problem_ = e.what();
  }
}

void PackSaver::finish() {
  const std::lock_guard held(mutex_);
  thread_.join();
}

std::string PackSaver::problem() {
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
