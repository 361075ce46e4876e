// Read-only maps of whole files.
#pragma once

#include <filesystem>
#include <memory>

#include "base/status.h"
#include "onnx/importer.h"

namespace situ::onnx {

// A map of one regular file, undone by the destructor. The file must not shrink while it is mapped.
class MappedFile : public MappedBytes {
 public:
  static Result<std::shared_ptr<const MappedFile>> open(const std::filesystem::path& path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

 private:
  MappedFile() = default;
};

// Gives the whole pages inside [data, data + size) of a map back; the next read loads them again. For bytes
// that have been copied elsewhere, so that they are not resident twice.
void release_pages(const std::byte* data, int64_t size);

}  // namespace situ::onnx
