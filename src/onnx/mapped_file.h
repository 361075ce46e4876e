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
  // Error: what is wrong with the file, which it does not name.
  static Result<std::shared_ptr<const MappedFile>> open(const std::filesystem::path& path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

 private:
  MappedFile() = default;
};

}  // namespace situ::onnx
