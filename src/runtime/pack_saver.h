// Writes packed weights on a thread of its own: the first token does not wait for a disk.
#pragma once

#include <functional>
#include <mutex>
#include <string>

#include "base/process_thread.h"
#include "onnx/importer.h"
#include "passes/pack/pack_cache.h"

namespace situ {

// Any thread. In a child of fork(), whose parent may be saving, and whose threads may have this locked for ever, it
// does nothing.
class PackSaver {
 public:
  PackSaver() = default;
  ~PackSaver() { finish(); }
  PackSaver(const PackSaver&) = delete;
  PackSaver& operator=(const PackSaver&) = delete;

  // `write`, as PackSave, writes and returns why nothing was saved. Waits for the one before.
  void save(std::function<std::string()> write);
  void finish();
  // Waits too: why nothing was saved; else empty.
  std::string problem();

 private:
  bool is_child() const;

  const pid_t process_ = getpid();
  std::mutex mutex_;  // of who waits for the thread, or begins it
  ProcessThread thread_;
  std::string problem_;
};

// The files that a model's weights stand in.
std::vector<PackSource> pack_sources(const ImportedModel& model);

}  // namespace situ
